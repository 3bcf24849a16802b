"""An incident: the alerts about one subject from the moment one of them fires until none does.

The subject is the same for today's and tomorrow's incident, so an incident is a subject and an episode. First the
matchers of a silence, which match the alerts of one incident, and no others on the same server or of the same model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Literal

from pydantic import BaseModel

from triton_alerts.bridge.incidents.notification import EXPORTER_DOWN, Member
from triton_exporter.family import escape
from triton_slo.indicators import Readiness
from triton_slo.names import COMPONENT, GROUPING, SEVERITIES, SEVERITY, SLO, TIER
from triton_slo.promql import regex_of

Labels = Mapping[str, str]

END_SECONDS = 10.0
"""Time after an end in which Prometheus is asked whether the model serves again, where it did not answer."""
OTHER_SECONDS = 300.0
"""Time after a fault was over from which one of another alert is another fault."""
MAX_SILENCES = 8
"""Silences of one incident; more are needed only if rules of other projects have many sets of labels."""


class Matcher(BaseModel, frozen=True):
    """One label and the values that it may have; the empty value is that of a label that is not there."""

    name: str
    values: frozenset[str]

    @property
    def is_regex(self) -> bool:
        return len(self.values) > 1

    @property
    def value(self) -> str:
        """The value, or an alternation of several: Alertmanager anchors it at both ends."""
        return regex_of(sorted(self.values)) if self.is_regex else next(iter(self.values))

    def wire(self) -> dict[str, str | bool]:
        """Return the matcher as Alertmanager's API has it."""
        return {"name": self.name, "value": self.value, "isRegex": self.is_regex, "isEqual": True}

    def matches(self, labels: Labels) -> bool:
        return labels.get(self.name, "") in self.values

    def __str__(self) -> str:
        return f'{self.name}{"=~" if self.is_regex else "="}"{escape(self.value)}"'


def sets_of_alerts(group_by: Sequence[str], alerts: Sequence[Labels]) -> list[tuple[Matcher, ...]]:
    """Return sets of matchers, one for each silence, that together match these alerts and no others."""
    sets: list[tuple[Matcher, ...]] = []
    left = list(alerts)
    while left and len(sets) < MAX_SILENCES:
        sets.append(of_alerts(group_by, left))
        left = [labels for labels in left if not all(matcher.matches(labels) for matcher in sets[-1])]
    return sets


def worded(sets: Sequence[Sequence[Matcher]]) -> str:
    """Return what several silences match, in words."""
    return "; ".join(", ".join(map(str, matchers)) for matchers in sets)


def of_alerts(group_by: Sequence[str], alerts: Sequence[Labels]) -> tuple[Matcher, ...]:
    """Return matchers of the groups, names, severities, subjects and servers of alerts; they match the first alert.

    Each matcher applies on its own: `alertname=~"A|B", version=~"1|2"` would also match B of version 1. An alert is
    left out if the matchers would then match a combination that is not among the alerts.
    """
    subjects = [name for labels in alerts for name in subject_names(labels)]
    names = tuple(dict.fromkeys((*group_by, "cluster", "alertname", SEVERITY, SLO, *subjects, "instance")))
    return tuple(
        Matcher(name=name, values=values)
        for name, values in zip(names, _together(names, alerts), strict=True)
        if values != {""}
    )


def _together(names: Sequence[str], alerts: Sequence[Labels]) -> list[frozenset[str]]:
    """Return values of each label such that every combination of them is one of the alerts."""
    combinations = dict.fromkeys(tuple(labels.get(name, "") for name in names) for labels in alerts)
    chosen: list[set[str]] = [set() for _ in names]
    for combination in combinations:
        added = [at for at, value in enumerate(combination) if value not in chosen[at]]
        for at in added:
            chosen[at].add(combination[at])
        # More combinations than alerts cannot all be alerts; only those with a new value are still to be checked.
        if math.prod(map(len, chosen)) > len(combinations) or not all(
            together in combinations
            for at in added
            for together in product(*chosen[:at], {combination[at]}, *chosen[at + 1 :])
        ):
            for at in added:
                chosen[at].remove(combination[at])
    return [frozenset(values or {""}) for values in chosen]


def subject_names(labels: Labels) -> tuple[str, ...]:
    """Return the labels that name an alert's subject: model and version, else a GPU and its place, or a server."""
    names = (
        ("model", "version") if labels.get("model") else ("gpu", "gpu_uuid", "Hostname", "instance", "job")
    )
    return tuple(name for name in names if labels.get(name))


def key_of(labels: Labels) -> str:
    """Return what tells alerts of one incident apart, by which `SourceFacts.faults` has them; the tiers of an objective
    are one."""
    return " ".join(labels.get(name, "") for name in ("alertname", SLO, *GROUPING, "instance"))


def is_same(member: Member, other: Member) -> bool:
    return key_of(member.labels) == key_of(other.labels)


def is_tier_beside(member: Member, other: Member) -> bool:
    """Return whether these are two tiers of one objective."""
    return TIER in member.labels and other is not member and is_same(member, other)


OBJECTIVE, BURN_RATE, BUDGET_LEFT = "Objective", "Burn rate", "Budget left"
SPLIT, SERVERS, LAST_CHANGE, GPU = "Causes", "Servers", "Last change", "GPU"
"""Names of the facts that the sources of evidence give; docs/on-call.md explains each."""
WIDE_FACTS = (LAST_CHANGE, GPU)
"""Facts of several long lines: below the others in a message, over its whole width."""
FACTS_WHILE_OPEN = (SERVERS, GPU)
"""Facts about now, which are not part of an incident that has ended."""
FACTS_OF_OBJECTIVE = (OBJECTIVE, BURN_RATE, BUDGET_LEFT, SPLIT)
"""Facts about one objective: another one that leads has its own."""
FACTS_OF_HISTORY = (OBJECTIVE, BUDGET_LEFT, LAST_CHANGE)
"""Facts that `incidents show` prints: worth reading after the end."""

NOT_SERVED = (
    *("TritonAllServersDown", "TritonMostServersDown", "TritonServerDown", "TritonServerNotLive"),
    *("TritonServerNotStarting", "TritonModelDownEverywhere"),
)
"""Alerts of a server that is down, or of a model that no server serves; so is a page of `Readiness.burn_alert`."""
LOAD_FAILED = "TritonModelLoadFailed"
EXPLAINED_BY_LOAD_FAILURE = (
    *("TritonModelDownEverywhere", "TritonModelNotReadyProlonged", "TritonModelReplicasLow"),
    *("TritonExpectedModelMissing", "TritonModelFlapping", Readiness.burn_alert),
)
"""Where LOAD_FAILED fires too, it is the cause of these alerts, and leads the incident."""
UNLOADED_IN_USE = "TritonModelUnloadedInUse"
ABOUT_READINESS = (LOAD_FAILED, UNLOADED_IN_USE, *EXPLAINED_BY_LOAD_FAILURE)

Outcome = Literal["opened", "changed", "repeated", "stale", "held"]
AlertEventKind = Literal["fired", "resolved", "passed", "closed", "raised", "over"]
EventKind = Literal[AlertEventKind, "acknowledged", "silenced", "unsilenced", "escalated", "released", "note"]


class Mark(BaseModel, frozen=True):
    """Name of a person who did something, and the time of it (Unix seconds)."""

    by: str
    at: float


class SilencePart(BaseModel, frozen=True):
    """One more silence in Alertmanager, for alerts whose labels the first one does not match."""

    id: str
    matchers: tuple[Matcher, ...]


class Silence(BaseModel, frozen=True):
    """A silence made from the incident; `until_resolved` is renewed until the incident ends.

    In Alertmanager it is one silence, and one more for each of `parts`. `alertmanager` is the URL of the one that has it.
    """

    id: str
    by: str
    until: float
    matchers: tuple[Matcher, ...]
    until_resolved: bool = False
    alertmanager: str = ""
    parts: tuple[SilencePart, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.id, *(part.id for part in self.parts))

    def covers(self, member: Member) -> bool:
        sets = (self.matchers, *(part.matchers for part in self.parts))
        return any(all(matcher.matches(member.labels) for matcher in matchers) for matchers in sets)


class Fault(BaseModel, frozen=True):
    """Whether the fault of an alert is there; the alert fires on for a while after it, because it looks back.

    `over` says in words that it is over; empty: it fails, `again` where it was over. `since` is when that began (Unix
    seconds); None: with the alert.
    """

    over: str = ""
    since: float | None = None
    again: bool = False


class SourceFacts(BaseModel, frozen=True):
    """Facts that a source has about an incident.

    `cause` is what Prometheus knows as the cause of its lead (`Lookup`), `reasons` are Triton's own words by model and version, `facts` pairs of a label and a value. `largest_cause` is
    the first of the split in words (empty: none known), `first_step` what to do about it, `servers_not_ready` how
    many servers do not serve the model (None: not known).
    """

    reasons: dict[str, str] = {}
    facts: tuple[tuple[str, str], ...] = ()
    cause: str = ""
    largest_cause: str = ""
    first_step: str = ""
    title: str | None = None
    """What is wrong with the objective, in plain numbers; empty: nothing is wrong at this moment; None: not known."""
    faults: dict[str, Fault] = {}
    """What is known of the fault of each alert that fires, by `key_of` its labels; see merging.py."""
    dead_server: str | None = None
    """Which server does not answer, where that alone is why the model of the lead is not ready, or whose exporter, where
    no other one reports the model; empty: none; None: not known."""
    servers_not_ready: int | None = None
    not_served: str | None = None
    """Why the end of an alert is no recovery: the model or server does not serve. Empty: it does; None: not known."""
    began: float | None = None
    """Time at which the condition of the first alert became true: an alert fires only after its `for`."""

    def and_newer(self, newer: SourceFacts) -> SourceFacts:
        """Return all that is known; of what both know, the newer."""
        known = self.servers_not_ready if newer.servers_not_ready is None else newer.servers_not_ready
        return SourceFacts(
            reasons=self.reasons | newer.reasons,
            facts=tuple((dict(self.facts) | dict(newer.facts)).items()),
            cause=newer.cause or self.cause,
            largest_cause=newer.largest_cause or self.largest_cause,
            first_step=newer.first_step or self.first_step,
            title=self.title if newer.title is None else newer.title,
            faults=self.faults | newer.faults,
            dead_server=self.dead_server if newer.dead_server is None else newer.dead_server,
            servers_not_ready=known,
            not_served=self.not_served if newer.not_served is None else newer.not_served,
            began=min((at for at in (self.began, newer.began) if at is not None), default=None),
        )


class Evidence(SourceFacts, frozen=True):
    """Facts about the incident from all sources, as known at a time (Unix seconds)."""

    at: float
    prometheus_silent_since: float | None = None
    """Time of the first query that Prometheus did not answer; None: it answered the last one, or is not asked."""
    about: str = ""
    """The alerts that led the incident when the sources were queried."""

    @classmethod
    def of(
        cls, known: SourceFacts, at: float, prometheus_silent_since: float | None = None, about: str = ""
    ) -> Evidence:
        """Return facts as known at a time."""
        own = {"at": at, "prometheus_silent_since": prometheus_silent_since, "about": about}
        return cls(**(dict(known) | own))


class Incident(BaseModel, frozen=True):
    """Everything known about one incident; members are keyed by fingerprint.

    `receiver`, `group_labels` and `external_url` are those of the notification that opened it.
    """

    name: str
    key: str
    receiver: str
    group_labels: dict[str, str] = {}
    external_url: str = ""
    opened_at: float
    closed_at: float | None = None
    members: dict[str, Member] = {}
    recurrence: int = 0
    acknowledged: Mark | None = None
    silence: Silence | None = None
    escalated_at: float | None = None
    released_at: float | None = None
    """Time at which the acknowledgement ended: it was removed, or the incident became more urgent."""
    peak: str = ""
    """The most urgent severity that has fired."""
    recalled_at: float | None = None
    """The last time that somebody was called because a page began again."""
    evidence: Evidence | None = None
    earliest: float | None = None
    """Start of the incident's first alert, where that alert has fired again since."""
    starts_of_unseen: dict[str, float] = {}
    """Starts of the unseen alerts: their end was reported, but not that they fired. That report may be late."""

    @property
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the incident, by name."""
        return dict(self.source_facts.facts)

    @property
    def source_facts(self) -> SourceFacts:
        """The facts of the sources, however old; none before a source was queried.

        Of those about the alert that leads, none from when another one did: they would explain it by the wrong cause.
        """
        if self.evidence is None:
            return SourceFacts()
        if self.evidence_is_about_lead:
            return self.evidence
        others = tuple((name, fact) for name, fact in self.evidence.facts if name not in FACTS_OF_OBJECTIVE)
        known = self.evidence.model_copy(update={"facts": others, "largest_cause": "", "first_step": ""})
        if self.evidence.about.partition(", ")[0] == self.led_by.partition(", ")[0]:
            return known
        return known.model_copy(update={"cause": "", "title": None, "dead_server": None})

    @property
    def evidence_is_about_lead(self) -> bool:
        return self.evidence is None or self.evidence.about in ("", self.led_by)

    @property
    def led_by(self) -> str:
        """The alert that leads and the objective that burns, whatever its tier: what evidence is about."""
        leading = (self.lead, self.burning) if self.members else ()
        return ", ".join(
            " ".join(member.labels.get(name, "") for name in ("alertname", SLO, "version"))
            for member in leading
            if member is not None
        )

    @property
    def firing(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members.values() if member.firing)

    def fault(self, member: Member) -> Fault:
        """Return what was last known of the fault of an alert: it fails until it was seen to be over."""
        known = self.evidence.faults if self.evidence is not None else {}
        return known.get(key_of(member.labels), Fault())

    @property
    def failing(self) -> tuple[Member, ...]:
        """The alerts that fire and whose faults are not over."""
        return tuple(member for member in self.firing if not self.fault(member).over)

    @property
    def is_over(self) -> bool:
        """Whether nothing fails any more; alerts may fire on for a while."""
        return not self.failing

    @property
    def is_watched(self) -> bool:
        """Whether all is over, and alerts fire on because they look back."""
        return self.open and self.is_over

    @property
    def severity(self) -> str:
        """The most urgent severity among what fails, else among what fires, or among all when nothing does."""
        return min((m.severity for m in self._current), key=SEVERITIES.index)

    @property
    def _current(self) -> Sequence[Member]:
        return self.failing or self.firing or tuple(self.members.values())

    @property
    def pages_over_at(self) -> float | None:
        """When the last page was over or ended; None while one fails, or where there was none."""
        if any(member.severity == SEVERITIES[0] for member in self.failing):
            return None
        pages = (member for member in self.members.values() if member.severity == SEVERITIES[0])
        return max(map(self._over_at, pages), default=None)

    def _over_at(self, member: Member) -> float:
        fault, end = self.fault(member), math.inf if member.ends_at is None else member.ends_at
        return min(end, fault.since or end) if fault.over else end

    @property
    def end_of_outage(self) -> float | None:
        """When what leads served again, where it is a server or model that did not; None where that is not known."""
        fault = self.fault(self.lead)
        of_outage = self.lead.name in (*ABOUT_READINESS, *NOT_SERVED, *EXPORTER_DOWN)
        return fault.since if fault.over and of_outage else None

    @property
    def again_since(self) -> float | None:
        """Since when it fails without a break, where all was over before; None where it never was."""
        failing = self.failing
        began = min((self.fault(each).since or each.starts_at for each in failing), default=0.0)
        ends = (self._over_at(each) for each in self.members.values() if each not in failing)
        return began if began > self.fired_at and all(end <= began for end in ends) else None

    @property
    def began(self) -> float:
        """When the fault of what leads began, as Prometheus shows it, else its alert."""
        lead, fault = self.lead, self.fault(self.lead)
        if fault.since and not fault.over:
            return fault.since
        fired_at = min(each.starts_at for each in self.members.values() if is_same(each, lead))
        return max(fired_at if fired_at > self.fired_at else self.since, self.again_since or 0.0)

    @property
    def silenced(self) -> bool:
        """True if a silence made by this bridge covers everything that fires."""
        return self.silence is not None and all(map(self.silence.covers, self.firing))

    @property
    def matchers(self) -> list[tuple[Matcher, ...]]:
        """Matchers of each silence of this incident, those of its lead first."""
        lead = self.lead
        members = [lead, *(member for member in self.firing or self.members.values() if member is not lead)]
        return sets_of_alerts(sorted(self.group_labels), [member.labels for member in members])

    @property
    def silence_comment(self) -> str:
        """The comment of its silences in Alertmanager, by which they are found again."""
        return f"incident {self.name}, from Slack"

    @property
    def evidence_is_due(self) -> bool:
        """True if no evidence is newer than when the incident opened or ended, or one of its alerts ended.

        Evidence about another lead is due, too, and that about an alert that began since. While Prometheus did not answer about an end, it is asked again for a while.
        """
        if self.evidence is None or not self.evidence_is_about_lead:
            return True
        if any(key_of(member.labels) not in self.evidence.faults for member in self.firing):
            return True
        last_end = max((member.ends_at or 0.0 for member in self.members.values()), default=0.0)
        decided_at = max(self.opened_at, self.closed_at or 0.0, last_end)
        if self.evidence.prometheus_silent_since is not None and last_end:
            decided_at = max(decided_at, last_end + END_SECONDS, (self.closed_at or 0.0) + END_SECONDS)
        return self.evidence.at < decided_at

    @property
    def lead(self) -> Member:
        """The alert about the worst that fails, which is also the one that names the fault best."""
        first = self.worst_first[0]
        # A load that was repaired long before is not the cause.
        last = self._over_at(first) - OTHER_SECONDS if self.open else 0.0
        loads = (each for each in self._current if each.name == LOAD_FAILED and self._over_at(each) >= last)
        return next(loads, first) if first.name in EXPLAINED_BY_LOAD_FAILURE else first

    @property
    def burning(self) -> Member | None:
        """The alert whose objective the facts are about: the lead where it is about one; none that is over beside it."""
        known = (each for each in self.worst_first if not (self.open and self.fault(each).over))
        return next((member for member in (self.lead, *known) if SLO in member.labels), None)

    @property
    def worst_first(self) -> list[Member]:
        """What fires, or every alert when nothing does, as `_rank` orders it.

        What is over comes last: the pages first, and of them those about the last fault.
        """
        ends = (self._over_at(each) for each in self.firing if self.fault(each).over)
        long_ago = max(ends, default=0.0) - OTHER_SECONDS

        def rank(member: Member) -> tuple[int, bool, bool, bool, int, float]:
            if not (member.firing and self.fault(member).over):
                return (0, False, *_rank(member))
            return (1 + SEVERITIES.index(member.severity), self._over_at(member) < long_ago, *_rank(member))

        return sorted(self.firing or self.members.values(), key=rank)

    @property
    def since(self) -> float:
        """When the condition of the first alert became true, else when it fired."""
        return min(self.source_facts.began or self.fired_at, self.fired_at)

    @property
    def fired_at(self) -> float:
        """Start of the first of the incident's alerts."""
        starts = [member.starts_at for member in self.members.values()]
        return min(starts if self.earliest is None else [self.earliest, *starts])

    @property
    def ended_at(self) -> float:
        """End of the last fault: where it was seen to be over, else that of its alert."""
        ends = map(self._over_at, self.members.values())
        return max([self.since, *(end for end in ends if end < math.inf)])


class Event(BaseModel, frozen=True):
    """One change to report: `count` members, some of them named, with the names and summaries of their alerts.

    `severity` is that of alerts that fired, were raised or ended; `words` complete the line of the other kinds. `keys` are
    those of its alerts, by `key_of`. `again`: a page was raised where there had been one.
    """

    at: float
    kind: EventKind
    count: int = 0
    subjects: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    by: str = ""
    severity: str = ""
    words: str = ""
    keys: tuple[str, ...] = ()
    again: bool = False


def title_of(incident: Incident) -> str:
    """Return what is wrong in plain numbers where a source knows them, else as the alert says it."""
    lead = incident.lead
    if incident.open and incident.source_facts.dead_server:
        return incident.source_facts.dead_server
    # What other servers serve is of the moment: of what has ended, only what was so counts.
    knows = SLO in lead.labels or incident.open or incident.end_of_outage is not None
    title = incident.source_facts.title if knows else ""
    if (
        title is None
        and lead.name == LOAD_FAILED
        and any(each.name == "TritonModelDownEverywhere" for each in incident.firing)
    ):
        return f"{summary_of(lead)}; nothing serves it"
    return title or summary_of(lead)


def summary_of(member: Member) -> str:
    return member.annotations.get("summary") or f"{member.name}: {subject_text(member.labels)}"


def beside(member: Member) -> str:
    """Name an alert beside the title: the summary of a burn alert has numbers of other windows, and of when it fired."""
    return f"{thing_of(member)}: objective {member.labels.get(SLO)}" if TIER in member.labels else ""


def thing_of(member: Member) -> str:
    """Name the model, GPU or server: the versions and servers of a model are not several things."""
    return member.labels.get("model") or subject_text(member.labels)


def subject_text(labels: Mapping[str, str]) -> str:
    """Name what an alert is about: model and version, GPU, or instance."""
    names = subject_names(labels)
    if not names:
        return labels.get("alertname", "alert")
    return f"{labels['model']} v{labels['version']}" if "version" in names else labels[names[0]]


def _rank(member: Member) -> tuple[bool, bool, int, float]:
    """Return the sort key of what is wrong.

    First that nothing serves: no request succeeds. Then a cause before the objective that it breaks, the most urgent
    alert, and the one that began first.
    """
    of_objective = member.labels.get(COMPONENT) == "slo" or SLO in member.labels
    return (
        not is_not_served(member),
        of_objective,
        SEVERITIES.index(member.severity),
        member.starts_at,
    )


def is_not_served(member: Member) -> bool:
    """Return whether an alert says that a server is down, or that no server serves a model."""
    page = member.severity == SEVERITIES[0]
    return member.name in NOT_SERVED or (page and member.name == Readiness.burn_alert)
