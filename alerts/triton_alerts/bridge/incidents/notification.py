"""Parse Alertmanager's webhook body, version 4, into a Notification, once, where it enters the bridge.

Fields that newer releases add (notification_reason, routeLabels) are ignored, as the webhook's contract asks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from triton_slo import problem_words
from triton_slo.names import SEVERITIES, SEVERITY

MAX_VALUE_LENGTH = 16_384
"""Characters of one label or annotation; a longer one is cut, because Triton's reasons have no limit."""


EXPORTER_DOWN = ("TritonExporterDown", "TritonModelExporterDown")
"""The alerts that the exporter of a server does not answer."""


class MalformedError(ValueError):
    """The body is not a webhook notification; the message names the wrong field."""


class Member(BaseModel, frozen=True):
    """One alert; times are Unix seconds, `ends_at` is None while it fires.

    `source` and `group` are the Alertmanager and its group that reported it: an incident has alerts of several.
    `earlier_end` is when it ended before it fired again, if that is known.
    """

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: float
    ends_at: float | None = None
    generator_url: str = ""
    source: str = ""
    group: str = ""
    earlier_end: float | None = None

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "alert")

    @property
    def firing(self) -> bool:
        return self.ends_at is None

    @property
    def severity(self) -> str:
        value = self.labels.get(SEVERITY, "")
        return value if value in SEVERITIES else "warning"


class Notification(BaseModel, frozen=True):
    """Report of one Alertmanager (`source`) about one group: its alerts by fingerprint.

    `key` identifies the group across notifications (receiver and groupKey). `newest` is the latest time that the
    notification names: it was made at that time or later.
    """

    key: str
    receiver: str
    all_resolved: bool
    alerts: dict[str, Member]
    group_labels: dict[str, str] = {}
    external_url: str = ""
    truncated: int = 0
    source: str = ""
    newest: float = 0.0

    def dated(self) -> Notification:
        """Return the notification with its time, and with its group in each alert: parts of it need both."""
        times = (alert.ends_at or alert.starts_at for alert in self.alerts.values())
        alerts = {
            fingerprint: alert.model_copy(update={"group": self.key})
            for fingerprint, alert in self.alerts.items()
        }
        return self.model_copy(update={"alerts": alerts, "newest": max([self.newest, *times])})

    def about(self, alerts: Mapping[str, Member]) -> Notification:
        """Return the part of the notification that reports these of its alerts."""
        return self.model_copy(update={"alerts": alerts})

    def omits(self, fingerprint: str, member: Member) -> bool:
        """Return whether this notification ends an alert without listing it.

        It does if its whole group is resolved and the same Alertmanager had reported the alert in this group.
        An Alertmanager may never have had the alerts that its peer reported, and a late notification does not
        know those that started since.
        """
        listed_before = (member.source, member.group) == (self.source, self.key)
        complete = self.all_resolved and not self.truncated and fingerprint not in self.alerts
        return complete and member.firing and listed_before and member.starts_at <= self.newest


def subject_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that name what an incident is about: a model, else a server, of a cluster.

    That the exporter of a server does not answer is about the server, however many of its models are named.
    """
    places = ("instance", "model") if labels.get("alertname") in EXPORTER_DOWN else ("model", "instance")
    name = next((label for label in places if labels.get(label)), "")
    return {label: labels[label] for label in ("cluster", name) if labels.get(label)} if name else {}


def incident_key(labels: Mapping[str, str], group: str) -> str:
    """Return what an incident is identified by: its subject, or Alertmanager's group where an alert names none.

    A silent exporter is no outage of its Triton: it is an incident of its own.
    """
    subject = subject_labels(labels)
    if labels.get("alertname") in EXPORTER_DOWN:
        subject["exporter"] = "silent"
    return json.dumps(subject, ensure_ascii=False) if subject else group


def parse(body: bytes, source: str = "") -> Notification:
    """Parse the webhook body that `source` sent; raises MalformedError."""
    try:
        wire = _Body.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"]) or "body"
        raise MalformedError(f"{place}: {problem_words.reason(problem)}") from error
    sender = f"{source} {wire.external_url}"[:2048]
    return Notification(
        key=f"{wire.receiver}|{wire.group_key}",
        receiver=wire.receiver,
        all_resolved=wire.status == "resolved",
        alerts=dict(_member(alert, sender, f"alerts.{place}") for place, alert in enumerate(wire.alerts)),
        group_labels=cut_values(wire.group_labels),
        external_url=wire.external_url[:2048],
        truncated=wire.truncated,
        source=sender,
    )


class _WireAlert(BaseModel):
    status: str = Field(pattern="^(firing|resolved)$")
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: AwareDatetime = Field(alias="startsAt")
    ends_at: AwareDatetime | None = Field(default=None, alias="endsAt")
    generator_url: str = Field(default="", alias="generatorURL")
    fingerprint: str = ""


class _Body(BaseModel):
    version: str = Field(pattern="^4$")
    receiver: str
    status: str = Field(pattern="^(firing|resolved)$")
    group_key: str = Field(alias="groupKey", min_length=1)
    group_labels: dict[str, str] = Field(default={}, alias="groupLabels")
    external_url: str = Field(default="", alias="externalURL")
    truncated: int = Field(default=0, ge=0, alias="truncatedAlerts")
    alerts: list[_WireAlert] = Field(min_length=1)


def _member(wire: _WireAlert, sender: str, place: str) -> tuple[str, Member]:
    labels = cut_values(wire.labels)
    start, end = _seconds(wire.starts_at, f"{place}.startsAt"), None
    if wire.status == "resolved":
        # A resolved alert without an end ended at its start.
        end = max(start, start if wire.ends_at is None else _seconds(wire.ends_at, f"{place}.endsAt"))
    member = Member(
        labels=labels,
        annotations=cut_values(wire.annotations),
        starts_at=start,
        ends_at=end,
        generator_url=wire.generator_url[:MAX_VALUE_LENGTH],
        source=sender,
    )
    return wire.fingerprint[:128] or fingerprint(labels), member


def _seconds(moment: datetime, place: str) -> float:
    """Return a Unix time. Raises MalformedError where its zone moves it out of the years that a time can have."""
    try:
        return moment.astimezone(UTC).timestamp()
    except OverflowError:
        raise MalformedError(f"{place}: {moment.isoformat()} is not within the years 1 to 9999 UTC") from None


def cut_values(pairs: Mapping[str, str]) -> dict[str, str]:
    return {
        name[:256]: value if len(value) <= MAX_VALUE_LENGTH else value[:MAX_VALUE_LENGTH] + " [cut]"
        for name, value in pairs.items()
    }


def fingerprint(labels: Mapping[str, str]) -> str:
    """Identify an alert whose notification names no fingerprint."""
    return hashlib.sha256(repr(sorted(labels.items())).encode("utf-8", "replace")).hexdigest()[:16]
