"""Alertmanager's webhook body, version 4, parsed once into a frozen value.

Fields that newer releases add (notification_reason, routeLabels) are ignored, as the webhook's contract asks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from triton_slo.objective import mistake

LONGEST_VALUE = 16_384
"""Characters kept of one label or annotation; Triton's reason text has no bound of its own."""


class MalformedError(ValueError):
    """The body is not a webhook notification; the message says where it departs."""


@dataclass(frozen=True, slots=True)
class ReceivedAlert:
    """One alert of a notification; times are Unix seconds, `ends_at` is None while it fires."""

    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    ends_at: float | None
    generator_url: str = ""


@dataclass(frozen=True, slots=True)
class Notification:
    """What one Alertmanager said about one group.

    `key` identifies the group across notifications (receiver and groupKey; it is the same again for a later
    incident), `source` the Alertmanager that spoke.
    """

    key: str
    receiver: str
    all_resolved: bool
    alerts: tuple[ReceivedAlert, ...]
    group_labels: Mapping[str, str]
    external_url: str = ""
    truncated: int = 0
    source: str = ""


def parse(body: bytes, source: str = "") -> Notification:
    """Read a webhook body; raises MalformedError."""
    try:
        wire = _Body.model_validate_json(body)
    except ValidationError as error:
        raise MalformedError(_first(error)) from error
    return Notification(
        key=f"{wire.receiver}|{wire.group_key}",
        receiver=wire.receiver,
        all_resolved=wire.status == "resolved",
        alerts=tuple(_alert(alert) for alert in wire.alerts),
        group_labels=_cut(wire.group_labels),
        external_url=wire.external_url[:2048],
        truncated=wire.truncated,
        source=f"{source} {wire.external_url}"[:2048],
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


def _alert(wire: _WireAlert) -> ReceivedAlert:
    labels = _cut(wire.labels)
    firing = wire.status == "firing"
    return ReceivedAlert(
        fingerprint=wire.fingerprint[:128] or _fingerprint(labels),
        labels=labels,
        annotations=_cut(wire.annotations),
        starts_at=_seconds(wire.starts_at),
        # Alertmanager sends the year 1 for "not ended"; a resolved alert without an end ended at its start.
        ends_at=None if firing else max(_seconds(wire.ends_at or wire.starts_at), _seconds(wire.starts_at)),
        generator_url=wire.generator_url[:LONGEST_VALUE],
    )


def _seconds(moment: datetime) -> float:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


def _cut(pairs: Mapping[str, str]) -> dict[str, str]:
    return {
        name[:256]: value if len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + " [cut]"
        for name, value in pairs.items()
    }


def _fingerprint(labels: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(labels.items())).encode("utf-8", "replace")).hexdigest()[:16]


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"]) or "body"
    return f"{place}: {mistake.reason(problem)}"
