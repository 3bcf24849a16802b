"""Facts about an incident that its alerts do not contain; a page waits for them for a limited time.

First how the sources are queried: all at the same time, and the facts of one that does not respond in time are left out.
Then a function for each source: Triton's own error messages, from the exporters' `/state`; and from Prometheus the counted
cause, the objective and its budget, the servers on which the model is ready, the model's latest changes, and the GPUs.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

from triton_alerts.bridge.evidence.causes import UNLOADED
from triton_alerts.bridge.evidence.objective import (
    CALM_SECONDS,
    NOW_SECONDS,
    OVER,
    Burning,
    Counts,
    counted,
    matchers_of,
    objective_of,
    span,
)
from triton_alerts.bridge.incidents.incident import (
    ABOUT_READINESS,
    BUDGET_LEFT,
    BURN_RATE,
    END_SECONDS,
    EXPLAINED_BY_LOAD_FAILURE,
    FACTS_WHILE_OPEN,
    GPU,
    LAST_CHANGE,
    LOAD_FAILED,
    NOT_SERVED,
    OBJECTIVE,
    SERVERS,
    SPLIT,
    UNLOADED_IN_USE,
    Evidence,
    Fault,
    Incident,
    SourceFacts,
    is_not_served,
    is_same,
    key_of,
    summary_of,
)
from triton_alerts.bridge.incidents.merging import judge
from triton_alerts.bridge.incidents.notification import EXPORTER_DOWN, Member
from triton_alerts.bridge.incidents.store import ChangedIncident, Store
from triton_alerts.broken import (
    QUEUE_BACKLOG,
    SILENT_SINCE,
    broken_now,
    down_servers,
    served_lines,
    since_text,
)
from triton_alerts.catalogue import ALERTS
from triton_exporter.catalogue import EXPORTER_JOB, gpu, state, triton
from triton_exporter.catalogue.external import stack
from triton_exporter.common.duration import DAY, in_words, time_text
from triton_exporter.common.moments import hour_text, parse_moment
from triton_exporter.common.printable import listed
from triton_exporter.family import escape
from triton_slo import names
from triton_slo.advise.fit import ENOUGH, SLOWER, overloads
from triton_slo.advise.measured import read_models, total
from triton_slo.advise.report import overload_text, slower_text
from triton_slo.amounts import (
    LEAST_RECORDED,
    WHOLE_PERIOD,
    budget_left,
    cause_words,
    digits,
    not_known_yet,
)
from triton_slo.fields import error_budget
from triton_slo.indicators import Errors, Indicator, Latency, Queue, Readiness, indicator_class
from triton_slo.prometheus import Prometheus, Sample, Series
from triton_slo.promql import Matchers, regex_of
from triton_slo.server_access import Access, session_for
from triton_slo.signals import EXPORTER_UP
from triton_slo.sources import ESTIMATING_SOURCES
from triton_slo.status import since_query

EVIDENCE_TIMEOUT_SECONDS = 1.5
"""Timeout of all sources together; a first message waits for it, too."""
FRESH_SECONDS = 30.0
"""Age from which the evidence of an open incident is queried again."""
AT_ONCE = 20
"""Incidents enriched per second; in a storm the most urgent ones come first."""
WARNING_SECONDS = 60.0
"""Least time between two lines of the log about one source: in a storm it fails for many incidents a second."""

PROMETHEUS, WHICH_SERVERS = "prometheus", "servers"
"""The sources that query Prometheus about every incident: where one fails, the end of an alert is not confirmed."""

Source = Callable[[Incident], SourceFacts]

log = logging.getLogger(__name__)


@dataclass
class Enricher:
    """Chore that attaches evidence to open incidents.

    `failed` receives the name of a source that did not respond; `addresses` are those of the sources, for the log.
    """

    store: Store
    sources: Mapping[str, Source]
    failed: Callable[[str], None] = lambda _name: None
    wake: Callable[[], None] = lambda: None
    addresses: Mapping[str, str] = field(default_factory=dict)
    _warned_at: dict[str, float] = field(default_factory=dict)
    """Source -> the last time that the log named its fault."""
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "enrich"))

    def __call__(self, now: float) -> None:
        stale = [
            (number, incident)
            for number, incident in self.store.incidents.open(now - END_SECONDS)
            if incident.evidence_is_due
            or (incident.open and incident.evidence and now - incident.evidence.at >= FRESH_SECONDS)
        ]
        stale.sort(
            key=lambda pair: (pair[1].evidence is not None, pair[1].severity != "critical", pair[1].opened_at)
        )
        for number, incident in stale[:AT_ONCE]:
            asked = {key_of(each.labels) for each in incident.firing or incident.members.values()}
            found = [self.gather(incident, now)]
            judged, _ = _attach(asked, found[0], incident)
            if not judged.evidence_is_about_lead:  # no title is of a lead of which nothing is known
                found.append(self.gather(judged, now))
            with self.store.transaction():
                for evidence in found:
                    self.store.change(number, partial(_attach, asked, evidence))
            self.wake()

    def gather(self, incident: Incident, now: float) -> Evidence:
        """Return the facts of all sources that respond in time."""
        asked: dict[str, Future[SourceFacts]] = {
            name: self._pool.submit(source, incident) for name, source in self.sources.items()
        }
        wait(asked.values(), EVIDENCE_TIMEOUT_SECONDS)
        known, silent_since = SourceFacts(), None
        for name, future in asked.items():
            late = future.cancel() or not future.done()
            if fault := f"no answer within {EVIDENCE_TIMEOUT_SECONDS:g} s" if late else future.exception():
                self.failed(name)
                if name in (PROMETHEUS, WHICH_SERVERS):
                    silent_since = now
                if not 0 <= now - self._warned_at.get(name, -math.inf) < WARNING_SECONDS:
                    self._warned_at[name] = now
                    where = self.addresses.get(name, "no address")
                    log.warning(
                        "no evidence from %s (%s) for incident %s: %s", name, where, incident.name, fault
                    )
                continue
            known = known.and_newer(future.result())
        return Evidence.of(known, now, silent_since, incident.led_by)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _attach(asked: Iterable[str], evidence: Evidence, before: Incident) -> ChangedIncident:
    """Add newer facts; earlier ones of the same fault stay: Triton often drops the reason when the model is repaired."""
    if before.evidence is not None:
        silent_since, earlier = evidence.prometheus_silent_since, before.source_facts
        if silent_since is not None:
            silent_since = before.evidence.prometheus_silent_since or silent_since
        else:  # what was so a minute ago may be so no more
            lasting = tuple((name, fact) for name, fact in earlier.facts if name not in FACTS_WHILE_OPEN)
            earlier = earlier.model_copy(update={"facts": lasting, "first_step": ""})
            lead = key_of(before.lead.labels)
            was, is_now = before.evidence.faults.get(lead), evidence.faults.get(lead)
            fails = is_now is not None and not is_now.over
            if was is None or (was.over and fails):
                earlier = SourceFacts(began=earlier.began)
            elif fails and earlier.cause.startswith(UNLOADED):  # it may be loading by now
                earlier = earlier.model_copy(update={"cause": ""})
        if evidence.dead_server:  # what Triton said about the model before is no reason
            earlier = earlier.model_copy(update={"reasons": {}})
        known = earlier.and_newer(evidence).model_copy(update={"faults": evidence.faults})
        evidence = Evidence.of(known, evidence.at, silent_since, evidence.about)
    return judge(asked, evidence, before)


def burn_query(member: Member) -> str:
    """Return the series that shows an incident best: its burn rate, else whether its model is ready."""
    if member.labels.get(names.SLO):
        return burn_now(matchers_of(member, names.SLO, names.INDICATOR, *names.GROUPING))
    if member.labels.get("model"):
        return f"{state.MODEL_READY}{matchers_of(member, 'instance', *names.GROUPING)}"
    return f"{state.SERVER_READY}{matchers_of(member, 'instance')}" if member.labels.get("instance") else ""


def burn_now(where: Matchers) -> str:
    """Return the burn rate of the last minutes: the share of failed events over the share that may fail."""
    return f"{names.sli_error('5m')}{where} / {names.ERROR_BUDGET_RATIO}{where}"


def _first(prometheus: Prometheus, query: str) -> Sample | None:
    return next(iter(prometheus.instant(query)), None)


def _value(prometheus: Prometheus, query: str, at: float | None = None) -> float | None:
    return next((sample.value for sample in prometheus.instant(query, at)), None)


_LOOKUPS = {alert.name: alert.cause_from for alert in ALERTS if alert.cause_from is not None}
_LATELY = {alert.name: alert for alert in ALERTS if alert.lately}


def _lately(member: Member) -> str:
    """Return PromQL for how much of an alert there was lately; empty where that, or the threshold in force, is not known."""
    query = _LATELY[member.name].lately if member.name in _LATELY else ""
    if "$threshold" not in query:
        return query
    try:
        return query.replace("$threshold", str(float(member.annotations.get("threshold", ""))))
    except ValueError:
        return ""


def counted_cause(prometheus: Prometheus) -> Source:
    """Return the source of what the catalogue asks about an alert: the counted cause of the lead, and what happened lately."""

    def ask(incident: Incident) -> SourceFacts:
        lead = incident.lead
        cause, faults = "", {}
        if lookup := _LOOKUPS.get(lead.name):
            cause = lookup.cause(sample.labels for sample in prometheus.instant(lookup.about(lead.labels)))
        asked: dict[str, list[Member]] = {}
        for member in incident.firing:
            if query := _lately(member):
                asked.setdefault(query, []).append(member)
        for query, members in asked.items():
            own, cluster = _LATELY[members[0].name].labels, members[0].labels.get("cluster")
            of_cluster = (s for s in prometheus.instant(query) if s.labels.get("cluster", cluster) == cluster)
            found = {tuple(map(sample.labels.get, own)): sample for sample in of_cluster}
            for member in members:
                if sample := found.get(tuple(map(member.labels.get, own))):
                    # When it ended is known once: the next time would say two minutes ago again.
                    since = None if incident.fault(member).over else sample.at - CALM_SECONDS
                    over = Fault(over="not in the last 2 min", since=since)
                    faults[key_of(member.labels)] = Fault() if sample.value else over
        return SourceFacts(cause=cause, faults=faults)

    return ask


MAX_REASON_LENGTH = 8_000
MAX_STATE_BYTES = 8 * 1024 * 1024
_BEFORE_SECONDS = 900.0
"""How long before the first alert a failed load may be to explain it: such an alert looks back."""
LATE_SECONDS = 120.0
"""How much later than its effect a cause may be dated: alerts, polls and scrapes begin late."""
_GONE = ("missing", "not_loaded")


def error_messages(exporters: Sequence[Access]) -> Source:
    """Return the source of Triton's own words for each model of the incident, by server where there are several.

    Exporters that answer in time are enough: what one knows is not lost because another is down.
    """
    pool = ThreadPoolExecutor(max(1, len(exporters)), "state")

    def ask(incident: Incident) -> SourceFacts:
        wanted = {m.labels["model"] for m in incident.members.values() if m.labels.get("model")}
        asked = {access.url: pool.submit(_state_page, access) for access in exporters if wanted}
        done, late = wait(asked.values(), 0.8 * EVIDENCE_TIMEOUT_SECONDS)
        for future in late:
            future.cancel()
        answers = {
            url: future.result()
            for url, future in asked.items()
            if future in done and future.exception() is None
        }
        if asked and not answers:
            raise next((future.exception() for future in done), None) or TimeoutError("no answer in time")
        of_load, began = incident.lead.name == LOAD_FAILED, incident.began
        reasons = {
            f"{name} on {_server_of(page, url)}" if len(exporters) > 1 else name: reason
            for url, page in answers.items()
            for name, reason in reasons_in(page, wanted, began, of_load=of_load).items()
        }
        return SourceFacts(reasons=reasons)

    return ask


def _server_of(state: Any, exporter: str) -> str:
    """Return the address of the Triton that a state document is about, without scheme; else the exporter's."""
    triton = state.get("triton") if isinstance(state, dict) else None
    url = triton.get("url") if isinstance(triton, dict) else None
    return str(url or exporter).partition("://")[2].rstrip("/") or exporter


def reasons_in(state: Any, models: set[str], since: float, *, of_load: bool = False) -> dict[str, str]:
    """Return the reasons in an exporter's state document, by model and version; ignore unknown content.

    Of a model that is loaded, it is the last error of a request or probe, where that is not from before the incident,
    which began `since`; and before it, where the incident is `of_load`, that of a reload, whose old copy serves on.
    """
    reasons: dict[str, str] = {}
    for entry in state.get("models", []) if isinstance(state, dict) else []:
        if not isinstance(entry, dict) or entry.get("model") not in models:
            continue
        load, request, probe = (
            failure if isinstance(failure := entry.get(f"last_{name}"), dict) else {}
            for name in ("load_failure", "request_error", "probe_error")
        )
        if 0 < _moment(load.get("at")) < _moment(entry.get("not_ready_since")) - LATE_SECONDS:
            load = {}  # it was repaired: the model was ready since
        # While Triton retries, the model is LOADING without a reason; the reason of the last failure is the cause.
        # It still is where the model was unloaded or deleted since.
        texts = [entry.get("reason"), load.get("text")]
        if entry.get("ready") or entry.get("state") == "unloaded":  # "unloaded" is all that Triton says of it
            explains = of_load and _moment(load.get("at")) >= since - _BEFORE_SECONDS
            texts = [load.get("text")] if explains else []
        if entry.get("state") == "unknown":  # the server does not answer: the reason is no error of the model
            texts = [load.get("text")]
        elif entry.get("state") in _GONE:
            texts.reverse()
        began = since - LATE_SECONDS
        texts += [error.get("text") for error in (request, probe) if _moment(error.get("at")) >= began]
        reason = str(next(filter(None, texts), ""))
        version = str(entry.get("version") or load.get("version") or "")
        if reason:
            reasons[f"{entry['model']} v{version}" if version else str(entry["model"])] = reason[
                :MAX_REASON_LENGTH
            ]
    return reasons


def _moment(text: object) -> float:
    """Return a time of the state document; one that cannot be read is long ago."""
    try:
        return parse_moment(str(text))
    except ValueError:
        return 0.0


def _state_page(access: Access) -> Any:
    url = f"{access.url.rstrip('/')}/state"
    with (
        session_for(access) as session,
        session.get(url, timeout=access.timeout_seconds, stream=True) as response,
    ):
        response.raise_for_status()
        body = response.raw.read(MAX_STATE_BYTES + 1, decode_content=True)
    if len(body) > MAX_STATE_BYTES:
        raise ValueError(f"{url} answered more than {MAX_STATE_BYTES} bytes")
    return json.loads(body)


def objective_budget(prometheus: Prometheus) -> Source:
    """Return the source of when it began, and of target, burn rate, budget left and causes of the objective that burns."""

    def ask(incident: Incident) -> SourceFacts:
        member = incident.burning
        age, counts = _counts(prometheus, member) if member is not None else (0.0, None)
        began = _began(prometheus, incident, counts)
        since = min(began or incident.since, incident.since)
        faults = {}
        for key, each in {key_of(m.labels): m for m in incident.firing if names.SLO in m.labels}.items():
            of_each = counts if member and is_same(each, member) else _counts(prometheus, each)[1]
            if fault := _judged(prometheus, each, incident.fault(each), of_each):
                faults[key] = fault
        if member is None:
            return SourceFacts(began=began, faults=faults)
        burning, known = None, SourceFacts()
        if counts is not None and not indicator_class(member.labels.get(names.INDICATOR, "")).counts_time:
            burning = Burning(incident, member, since, counts)
        is_told = incident.open and incident.source_facts.title
        # All stays as it was said when that it is over was first seen.
        if burning is None or not (is_told and burning.was.over and burning.fault.over):
            known = _budget_facts(prometheus, member, age, burning)
        known = known.model_copy(update={"began": began, "faults": faults})
        if incident.open:  # else the title says what was wrong, not what is ready now
            fault = faults.get(key_of(member.labels), incident.fault(member))
            begin = incident.again_since or since
            known = known.and_newer(_not_ready(prometheus, member, begin, is_over=bool(fault.over)))
        unknown = {} if member is incident.lead else dict.fromkeys(("title", "dead_server"))
        return known.model_copy(update=unknown)

    return ask


def _counts(prometheus: Prometheus, member: Member) -> tuple[float, Counts | None]:
    """Return for how many seconds the objective of an alert is recorded, and what it counts."""
    where = objective_of(member)
    budget = _value(prometheus, f"max({names.ERROR_BUDGET_RATIO}{where})")
    recorded = _first(prometheus, f"min({since_query(where)})")
    age = recorded.at - recorded.value if recorded is not None else 0.0
    if recorded is None or budget is None or age < LEAST_RECORDED * NOW_SECONDS:
        return age, None
    return age, counted(prometheus, where, budget, recorded.at)


def _judged(prometheus: Prometheus, member: Member, was: Fault, counts: Counts | None) -> Fault | None:
    """Return whether the objective of an alert fails; None: that is not known."""
    if not indicator_class(member.labels.get(names.INDICATOR, "")).counts_time:
        return counts.judge(was) if counts is not None else None
    burn = _value(prometheus, f"max({burn_now(objective_of(member))})")
    return Fault(over=OVER) if burn is not None and burn <= 1 else None


def _began(prometheus: Prometheus, incident: Incident, counts: Counts | None) -> float | None:
    """Return when the condition of the first of the incident's alerts became true, or its objective last held before;
    or when an exporter saw that the model is not ready."""
    members, lead = incident.firing or incident.members.values(), incident.lead
    ours, alerts = {key_of(member.labels) for member in members}, {member.name for member in members}
    where = matchers_of(lead, "model" if lead.labels.get("model") else "instance")
    where = where.also(f'alertname=~"{escape(regex_of(sorted(alerts)))}"')
    found = prometheus.instant(f"{names.ALERTS}_FOR_STATE{where}")
    times = [sample.value for sample in found if key_of(sample.labels) in ours]
    if counts is not None and (held := counts.held_until(incident.fired_at)):
        times.append(held)
    if lead.name in ABOUT_READINESS:
        not_ready = f"{state.MODEL_NOT_READY_SINCE}{matchers_of(lead, 'instance', 'model')}"
        since = _value(prometheus, f"min({not_ready} >= {incident.fired_at - _BEFORE_SECONDS:.0f})")
        times += [since] if since else []
    return min(times, default=None)


def _budget_facts(prometheus: Prometheus, member: Member, age: float, burning: Burning | None) -> SourceFacts:
    """Return the facts of an objective that is recorded for `age` seconds, with a title where events are counted."""
    where, indicator = objective_of(member), indicator_class(member.labels.get(names.INDICATOR, ""))
    value = partial(_value, prometheus)
    facts, threshold, title = [], None, None
    target = value(f"max({names.OBJECTIVE_RATIO}{where})")
    days = value(f"max({names.PERIOD_DAYS}{matchers_of(member, names.SLO, names.INDICATOR)})")
    if target is not None and days is not None:
        threshold = value(f"max({names.THRESHOLD_SECONDS}{where})")
        facts.append((OBJECTIVE, _promised(indicator, target, days, threshold)))
    burn = value(f"max({burn_now(where)})") if age >= LEAST_RECORDED * NOW_SECONDS else None
    window = f"in {span(min(age, NOW_SECONDS))}"
    if burning is not None:
        start, window = burning.window()
        failed, total = burning.counts.between(start)
        if total:  # of one moment: what was recorded may be of another
            burn = failed / total / burning.counts.budget
        estimating = where.also(f'{names.SOURCE}=~"{"|".join(ESTIMATING_SOURCES)}"')
        about = "about " if value(f"max({names.SLI_SOURCE}{estimating})") else ""
        limit = _time(threshold) if threshold is not None else member.labels.get(names.SLO, "")
        title = burning.title(prometheus, about, limit)
    if burn is not None:
        facts.append((BURN_RATE, f"{digits(burn)}x the allowed rate {window}"))
    left = value(f"min({names.PERIOD_BUDGET_REMAINING}{where})")
    if left is not None and days is not None:
        words = not_known_yet(age, days)
        if not words:
            gone = left * days * DAY / burn if burn and burn > 1 and left > 0 else None
            words = budget_left(left) + (f"; lasts {in_words(gone)} at this burn rate" if gone else "")
            words += f" (only {in_words(age)} of data)" if age < WHOLE_PERIOD * days * DAY else ""
        facts.append((BUDGET_LEFT, words))
    split = _split(prometheus, member)
    named = [(cause_words(cause), share) for cause, share in split if share >= 0.01]
    if named:
        facts.append((SPLIT, ", ".join(f"{cause} {100 * share:.0f}%" for cause, share in named)))
    return SourceFacts(
        facts=tuple(facts),
        largest_cause=named[0][0] if named else "",
        first_step=indicator.step_for(*(cause for cause, _ in split)) if named else "",
        title=title,
    )


def _split(prometheus: Prometheus, member: Member) -> list[tuple[str, float]]:
    """Return the largest causes of what an objective lost, with their shares."""
    where = matchers_of(member, names.INDICATOR, *names.GROUPING)
    shares = prometheus.instant(f"topk(3, {names.CAUSE_SHARE}{where})")
    return [(sample.labels.get(names.CAUSE, "?"), sample.value) for sample in shares]


def _time(seconds: float) -> str:
    """Return a threshold as in a sentence: 100 ms."""
    return re.sub(r"(?<=\d)(?=\D)", " ", time_text(seconds), count=1)


def _not_ready(prometheus: Prometheus, member: Member, since: float, *, is_over: bool) -> SourceFacts:
    """Return on how many servers the model is not ready, and since when.

    For an objective that is not about this, only whether a server does not answer. That is no fault of one that is over:
    the server has an alert of its own.
    """
    where = matchers_of(member, "model")
    if not member.labels.get("model"):
        return SourceFacts()
    ready = _by_server(prometheus, f"{state.MODEL_READY}{where}")
    if not ready:
        return _removed(prometheus, member)
    bad_servers = sorted(name for name, good in ready.items() if not good)
    dead = _dead_server(prometheus, member, set(bad_servers))
    if member.labels.get(names.INDICATOR) != Readiness.name():
        if bad_servers and any(ready.values()):
            beside = _beside_a_dead_server(prometheus, member, since)
            return beside.model_copy(update={"dead_server": ""})
        return SourceFacts(dead_server="" if is_over else dead)
    model = member.labels["model"]
    if not bad_servers:
        return SourceFacts(title=f"{model} was not ready")
    if dead:
        return SourceFacts()  # `servers` says so
    # The last of them: since then it are so many.
    began = since_text(_first(prometheus, f"max({state.MODEL_NOT_READY_SINCE}{where})"))
    many = f"{len(bad_servers)} of {len(ready)} servers" if len(ready) > 1 else "its only server"
    on = f"{listed(bad_servers, 1)} ({many})"
    return SourceFacts(title=f"{model} is not ready on {on}{began}")


def _beside_a_dead_server(prometheus: Prometheus, member: Member, since: float) -> SourceFacts:
    """Return the step about a server of the model that does not answer, unless the model fails on a live one.

    Clients of the dead one fail, and the others get its traffic: neither is the model's doing. What began `since`, before
    it died, has another cause.
    """
    model = member.labels["model"]
    down = [
        server
        for server in down_servers(prometheus, cluster=member.labels.get("cluster"))
        if model in server.models and server.since is not None and server.since.value <= since + LATE_SECONDS
    ]
    where = matchers_of(member, "model").also('reason!="CANCELED"')
    failing = f"increase({triton.REQUEST_FAILURE}{where}[5m]) > 0"
    of_errors = member.labels.get(names.INDICATOR) == Errors.name()
    on_live = f"{failing} and on (cluster, instance) {state.SERVER_LIVE} == 1"
    if not down or (of_errors and prometheus.instant(on_live)):
        return SourceFacts()
    dead = down[0]
    return SourceFacts(
        first_step=f"Start {dead.instance} again: it does not answer{since_text(dead.since)}, and is the likely cause."
    )


def _removed(prometheus: Prometheus, member: Member) -> SourceFacts:
    """Return what to say where the servers that had the model are live, and none lists it or expects it."""
    had = _by_server(prometheus, f"last_over_time({state.MODEL_READY}{matchers_of(member, 'model')}[2h])")
    live = _by_server(prometheus, f"{state.SERVER_LIVE}{matchers_of(member)}")
    if not (had and all(map(live.get, had))):
        return SourceFacts()
    about_this = member.labels.get(names.INDICATOR) == Readiness.name()
    title = f"{member.labels['model']} was not ready; no server lists or expects it any more"
    step = "If the model was removed on purpose, do nothing: the alert ends by itself. If not, load it again."
    return SourceFacts(title=title if about_this else None, first_step=step)


def _promised(indicator: type[Indicator], target: float, days: float, threshold: float | None) -> str:
    """Return the objective of this model in words, and its error budget as a time if seconds are counted."""
    promised = f"{100 * target:.10g} % {indicator.share_words}"
    if threshold is not None:
        promised += f" {_time(threshold)}"
    promised += f" over {days:.3g}d"
    may_fail = f": error budget {in_words(error_budget(target) * days * DAY)}"
    return promised + (may_fail if indicator.counts_time else "")


_SERVERS_NAMED = 3


def servers(prometheus: Prometheus) -> Source:
    """Return the source of the servers on which the incident's model is ready or not, or which of all are live."""

    def ask(incident: Incident) -> SourceFacts:
        member = incident.lead
        of_model = member.labels.get("model") and member.name not in EXPORTER_DOWN
        known = _serving(prometheus, incident, member) if of_model else _live(prometheus, member)
        faults, of_lead = dict(known.faults), known.faults.get(key_of(member.labels), Fault())
        alike = next((alike for alike in (EXPORTER_DOWN, NOT_SERVED) if member.name in alike), ())
        others = {key_of(each.labels): each for each in incident.firing if each is not member}
        for key, other in others.items():
            if other.name in alike and other.labels.get("instance") == member.labels.get("instance"):
                faults.setdefault(key, of_lead)
            elif of_model and other.name in _OVER_ONCE_READY and not other.labels.get("instance"):
                faults |= _serving(prometheus, incident, other).faults  # few: one of each name
            elif other.name in EXPLAINED_BY_LOAD_FAILURE and known.servers_not_ready == 0:
                faults.setdefault(key, of_lead if of_lead.over else Fault(over="ready again"))
        return known.model_copy(update={"faults": faults})

    return ask


def _serving(prometheus: Prometheus, incident: Incident, member: Member) -> SourceFacts:
    """Return where a model is ready, for an alert about it, and whether that is over, or a dead server the reason."""
    model, own = member.labels["model"], member.labels.get("instance")
    any_version = f"{state.MODEL_READY}{matchers_of(member, 'model')}"
    listing, unknown = _by_server(prometheus, any_version), _unknown_servers(prometheus, any_version)
    ready = _by_server(prometheus, f"{state.MODEL_READY}{matchers_of(member, 'model', 'version')}")
    lost = {server for server in ([own] if own else [*ready, *unknown]) if not ready.get(server)}
    served, silence = any(listing.values()), _nothing_known(unknown) if unknown else ""
    was, dead, fault, title = incident.fault(member), None, None, None
    if member.name in ABOUT_READINESS:
        dead = f"{model}: {silence}" if unknown and not ready else _dead_server(prometheus, member, lost)
    if member.name in _OVER_ONCE_READY:
        is_ready, unseen = bool(ready) and not lost, bool(dead or (lost and lost <= unknown.keys()))
        fault = _fault_of_model(prometheus, member, was, is_ready=is_ready, served=served, unseen=unseen)
    is_over = bool((fault or was).over)
    shown = ready_text(ready, unknown)
    if member.name == LOAD_FAILED and own and not (lost or is_over):
        reloads = f"{state.MODEL_RELOAD_FAILURES}{matchers_of(member, 'instance', 'model')}"
        kept = all(listing.values()) and prometheus.instant(f"increase({reloads}[15m]) > 0")
        title = f"{summary_of(member)}; what was loaded before served on" if kept else None
    not_served: str | None = "" if served else f"no server has {model} ready"
    if not listing:
        # Where only Triton's metrics are read, there never is one.
        vanished = prometheus.instant(f"last_over_time({any_version}[1h])")
        not_served = silence or (f"no server reports {model} any more" if vanished else None)
    elif member.name in (LOAD_FAILED, UNLOADED_IN_USE):
        nothing = not (served or unknown or is_over)
        title = f"{summary_of(member)}; nothing serves it" if nothing else title or ""
    elif member.name == "TritonModelDownEverywhere":
        title = f"No server that is known serves {model}: {silence}" if silence and not served else ""
        if is_over:
            title = f"No server served model {model}"
    return SourceFacts(
        facts=((SERVERS, shown),) if shown else (),
        faults={key_of(member.labels): fault} if fault is not None else {},
        title=title,
        dead_server="" if is_over else dead,
        servers_not_ready=sum(not good for good in ready.values()) + len(unknown) if ready else None,
        not_served=not_served,
    )


def _by_server(prometheus: Prometheus, series: str) -> dict[str, bool]:
    """Return for each server whether a series is above 0 there."""
    found = prometheus.instant(f"max by (instance) ({series})")
    return {sample.labels.get("instance", "?"): sample.value > 0 for sample in found}


def _dead_server(prometheus: Prometheus, member: Member, lost: set[str]) -> str:
    """Return in words which server does not answer, where a model is not ready on such servers alone; else nothing."""
    every = down_servers(prometheus, cluster=member.labels.get("cluster")) if lost else ()
    down = [server for server in every if server.instance in lost]
    return down[0].words if down and lost == {server.instance for server in down} else ""


def _fault_of_model(
    prometheus: Prometheus, member: Member, was: Fault, *, is_ready: bool, served: bool, unseen: bool
) -> Fault | None:
    """Return whether the model is ready again, as far as the alert asks for that; None: as was known before.

    That is so where it is `unseen`: its exporter is silent, or its server does not answer, which has an alert of its own.
    """
    of_burn, where = member.name == Readiness.burn_alert, matchers_of(member, "instance", *names.GROUPING)
    # What is recorded stays true when the exporter dies; and a load that was repaired when the server does.
    is_recorded = is_ready or (unseen and not of_burn)
    ended = _ready_again(prometheus, member, now=is_ready) if is_recorded else None
    if ended is not None or (of_burn and is_ready):
        return _over(prometheus, "ready again", f"{state.MODEL_READY}{where} == 1", ended)
    if member.name == "TritonModelDownEverywhere" and served:
        ready = f"max({state.MODEL_READY}{matchers_of(member, 'model')})"
        ended = _first(prometheus, _last_time(f"timestamp({ready} == 0)"))
        return _over(prometheus, "served again", f"{ready} == 1", ended)
    if unseen:
        return None
    lost, its = f"{state.MODEL_NOT_READY_SINCE}{where}", "and on (cluster, instance)"
    dead_until = f"max_over_time(timestamp({state.SERVER_LIVE} == 0)[30m:5s]) {its} {state.SERVER_LIVE} == 1"
    # What was over is not back because its server died, which had an alert of its own.
    since = f"{lost} or {dead_until} {its} {lost}" if was.over else lost
    found = prometheus.instant(f"max by (cluster, instance) ({since})")
    if was.over and max((each.at - each.value for each in found), default=math.inf) < _LOADS_SECONDS:
        return None
    return Fault(since=max((sample.value for sample in found), default=None))


_LOADS_SECONDS = 30.0
"""How long a model that was ready may load once its server is live again: the `for` of TritonModelDownEverywhere."""


def _over(prometheus: Prometheus, what: str, good: str, ended: Sample | None) -> Fault:
    """Return that a fault is over since the first scrapes that were `good` after it was last seen (`ended`).

    Its words are of that moment: the server may be dead since.
    """
    if ended is None:
        return Fault(over=what)
    seen = f"max(min_over_time((timestamp({good}) > {ended.value})[30m:5s]))"
    found = _first(prometheus, seen)
    since = ended.at if found is None else found.value  # the steps may not be there yet
    return Fault(over=f"{what} at {hour_text(since, ended.at)}", since=since)


_OVER_ONCE_READY = {
    Readiness.burn_alert,
    UNLOADED_IN_USE,
    # They look back, or fire on for some minutes, after a model has loaded. One that flaps is ready now and then.
    *(name for name, lookup in _LOOKUPS.items() if state.MODEL_LOAD_FAILURES.name in lookup.expr),
} - {"TritonModelFlapping"}
"""Alerts about models that are not ready."""


def _ready_again(prometheus: Prometheus, member: Member, *, now: bool) -> Sample | None:
    """Return when the last version became ready that was not when the alert fired; None where there was none.

    `now`: it is ready; else it must have been since.
    """
    where = matchers_of(member, "instance", *names.GROUPING)
    not_ready, fired = f"timestamp({state.MODEL_NOT_READY_SINCE}{where})", 0.0
    if member.name == UNLOADED_IN_USE:  # on purpose: it should not be ready
        not_ready = f"timestamp(max by (cluster, instance) ({state.MODEL_READY}{where}) == 0)"
    # A budget's alert may fire after the end of what spent it. Of a load, a dead server is no part.
    if member.name != Readiness.burn_alert:
        not_ready += f" and on (cluster, instance) {state.SERVER_LIVE} == 1"
        # It fires up to a minute after what it is about: a scrape, its `for` and an evaluation.
        fired = member.starts_at - 60
    then_ready = "" if now else f"< {_last_time(f'timestamp({state.MODEL_READY}{where} == 1)')}"
    return _first(prometheus, f"{_last_time(not_ready)} >= {fired} {then_ready} unless on () ({not_ready})")


def _last_time(times: str) -> str:
    """Return PromQL for the latest of the times within half an hour."""
    return f"max(max_over_time(({times})[30m:5s]))"


def _unknown_servers(prometheus: Prometheus, series: str) -> dict[str, Sample]:
    """Return the servers that had a series within the last hour, and whose exporters do not answer Prometheus now, and
    since when; 0 where that is not known."""
    found = prometheus.instant(
        f"({SILENT_SINCE} or on (cluster, instance) {EXPORTER_UP}) and on (cluster, instance) {EXPORTER_UP} == 0 "
        f"and on (cluster, instance) last_over_time({series}[1h])"
    )
    return {sample.labels.get("instance", "?"): sample for sample in found}


def _nothing_known(servers: Mapping[str, Sample]) -> str:
    which = listed([f"{name}{since_text(servers[name])}" for name in sorted(servers)], _SERVERS_NAMED)
    return f"nothing is known about {which}: the exporter does not answer Prometheus"


def _live(prometheus: Prometheus, member: Member) -> SourceFacts:
    """Return which of the servers are down and what they served, for an alert about a server or a job."""
    of_all = f"{state.SERVER_LIVE}{matchers_of(member, 'job')}"
    live = _by_server(prometheus, of_all)
    instance, is_down = member.labels.get("instance"), is_not_served(member)
    if instance and instance not in live:
        return _unreported(prometheus, member, live)
    all_down = down_servers(prometheus, cluster=member.labels.get("cluster"))
    down = [server for server in all_down if live.get(server.instance) is False]
    concerned = [server for server in down if instance in (None, server.instance)]
    not_live = None if instance is None else f"{instance} does not answer" if concerned else ""
    if instance and (member.name in EXPORTER_DOWN or (is_down and not concerned)):
        again = _answers_again(prometheus, member, live)
        return again.model_copy(update={"not_served": not_live})
    facts: tuple[tuple[str, str], ...] = ()
    if concerned:
        names_of_down = listed(sorted(server.instance for server in down), _SERVERS_NAMED)
        models = {model: numbers for server in concerned for model, numbers in server.models.items()}
        every = len(live) + len(others := _unknown_servers(prometheus, of_all))
        words = [f"{len(down)} of {every} down: {names_of_down}", *served_lines(models)]
        words += [_nothing_known(others)] if others else []
        facts = ((SERVERS, "\n".join(words)),)
    title, fault = None, Fault()
    if is_down and instance:
        title = concerned[0].words
        fault = Fault(since=concerned[0].since.value if concerned[0].since else None)
    elif is_down and any(live.values()):
        title = "No Triton server answered"
        fault = Fault(over=f"{sum(live.values())} of {len(live)} answer again")
    elif is_down and concerned:
        summary = member.annotations.get("summary") or member.name
        title = f"{summary}: {listed([server.silence for server in down], 1)}"
    faults = {key_of(member.labels): fault} if is_down else {}
    return SourceFacts(facts=facts, title=title, faults=faults, not_served=not_live)


def _unreported(prometheus: Prometheus, member: Member, live: Mapping[str, bool]) -> SourceFacts:
    """Return what is known of a server that no exporter reports on: of what is `live`, it is no part."""
    instance, is_down = member.labels["instance"], is_not_served(member)
    own = f"{state.SERVER_LIVE}{matchers_of(member, 'instance')}"
    last = prometheus.instant(f"last_over_time({own}[1h])")
    vanished = any(not sample.value for sample in last)
    if last and member.labels.get("model"):
        vanished = not prometheus.instant(f"{state.MODEL_READY}{matchers_of(member, 'model')}")
    unknown = _unknown_servers(prometheus, own)
    nothing_known = _nothing_known(unknown) if unknown else ""
    facts = ((SERVERS, nothing_known),) if unknown and is_down else ()
    if facts and last and not vanished:  # it answered before its exporter died
        again = _answers_again(prometheus, member, live)
        return again.model_copy(update={"facts": facts, "not_served": ""})
    faults = {key_of(member.labels): Fault()} if is_down or member.name in EXPORTER_DOWN else {}
    not_served = nothing_known or (f"nothing reports on {instance} any more" if vanished else "")
    return SourceFacts(facts=facts, title="" if facts else None, faults=faults, not_served=not_served)


def _answers_again(prometheus: Prometheus, member: Member, live: Mapping[str, bool]) -> SourceFacts:
    """Return since when the server or exporter of an alert answers again, and which models the server lacks still."""
    instance = member.labels["instance"]
    of_exporter = member.name in EXPORTER_DOWN
    was = matchers_of(member, "instance")
    answers = f"{stack.UP}{was.equal('job', EXPORTER_JOB)}" if of_exporter else f"{state.SERVER_LIVE}{was}"
    ended = _first(prometheus, _last_time(f"timestamp({answers} == 0)"))
    faults = {key_of(member.labels): _over(prometheus, "answered again", f"{answers} == 1", ended)}
    if of_exporter:
        return SourceFacts(
            faults=faults, title=f"The exporter of Triton {instance} did not answer Prometheus"
        )
    cluster = member.labels.get("cluster")
    was_down = down_servers(prometheus, ended.value, cluster) if ended else ()
    title = next(
        (server.past for server in was_down if server.instance == instance), f"{instance} did not answer"
    )
    not_ready = broken_now(prometheus, cluster=cluster).not_ready
    lacking = [each.words for each in not_ready if instance in each.instances]
    lines = "\n".join([f"{sum(live.values())} of {len(live)} answer", *lacking[:_SERVERS_NAMED]])
    return SourceFacts(faults=faults, facts=((SERVERS, lines),), title=title)


def ready_text(ready: Mapping[str, bool], unknown: Mapping[str, Sample]) -> str:
    """List the servers that are not ready, or all servers where all are; and those of which nothing is known."""
    every, bad = len(ready) + len(unknown), sorted(name for name, good in ready.items() if not good)
    if ready and (every == 1 or not (bad or unknown)):
        where = f"all {every}" if every > 1 else "its only server"
        return f"{'not ' if bad else ''}ready on {where}: {listed(sorted(ready), _SERVERS_NAMED)}"
    lines = [f"ready on {len(ready) - len(bad)} of {every}"] if ready else []
    lines += [f"not on {listed(bad, _SERVERS_NAMED)}"] if bad else []
    return "\n".join([*lines, *([_nothing_known(unknown)] if unknown else [])])


_OVERLOAD_SECONDS, _OVERLOAD_STEP = 1800.0, 30.0
"""How far back, and in which steps, an overload is searched."""


def overload(prometheus: Prometheus, clock: Callable[[], float]) -> Source:
    """Return the source of the overload that lets requests wait or rejects them, as `tritonwatch advise` says it."""
    asking = threading.Lock()

    def ask(incident: Incident) -> SourceFacts:
        labels = incident.lead.labels
        kind, is_backlog = labels.get(names.INDICATOR), incident.lead.name == QUEUE_BACKLOG
        if not labels.get("model") or not (
            is_backlog or kind in (Queue.name(), Latency.name(), Errors.name())
        ):
            return SourceFacts()
        if kind == Errors.name() and "failure:REJECTED" not in dict(_split(prometheus, incident.lead)[:1]):
            return SourceFacts()
        # These are many queries: with a slow Prometheus they must not take the threads of the other sources.
        if not asking.acquire(blocking=False):
            return SourceFacts()
        end = float(int(clock()))
        if incident.is_over:  # the same steps each time
            end -= end % _OVERLOAD_STEP
        try:
            start, within = end - _OVERLOAD_SECONDS, matchers_of(incident.lead)
            every = read_models(prometheus, start, end, _OVERLOAD_STEP, labels["model"], within=within)
        finally:
            asking.release()
        models = [each for each in every if each.version == labels.get("version", each.version)]
        found = [over for m in models if m.configuration for over in overloads(m.steps, m.configuration)]
        # Neither what ended before the fault did cause it, nor what began after it.
        begin, over_at = incident.again_since or incident.since, math.inf
        if incident.is_over:
            over_at = incident.fault(incident.lead).since or incident.ended_at
        found = [over for over in found if begin <= over.until and over.since <= over_at]
        if last := max(found, key=lambda over: over.until, default=None):
            step = _SLOWER_STEP.format(hour_text(last.since, last.until))
            return SourceFacts(cause=overload_text(last), first_step=step if last.is_slowness else "")
        # Where clients wait for answers, a queue does not grow for long.
        counts = _counts(prometheus, incident.lead)[1] if kind and not incident.is_over else None
        if counts is None:
            return SourceFacts()
        burning = Burning(incident, incident.lead, incident.since, counts)
        began = max(burning.began, incident.again_since or 0.0)
        until = end if burning.stopped is None else counts.last(counts.failed) or 0.0
        steps = [step for measured in models for step in measured.steps]
        during = [step for step in steps if began <= step.at - step.seconds and step.at <= until]
        # What is counted is a scrape and an evaluation late.
        before = total(step for step in steps if step.at + step.seconds <= began)
        if not during or before.executions < ENOUGH:
            return SourceFacts()
        took_before, at = before.busy_seconds / before.executions, hour_text(began, end)
        worked = [step for step in during if step.executions]
        # Requests wait on while the queue is worked off, in executions that are quick again.
        slowest = max((each.busy_seconds / each.executions for each in worked), default=0.0)
        is_slow = (took_before + slowest) / 2
        slow = [each for each in worked if each.busy_seconds > is_slow * each.executions]
        sums, whole, took = total(slow or during), total(worked or during), 0.0
        is_longer = total(steps).waiting > 0 and whole.seconds >= SLOWER * took_before
        if worked:
            # A few tell it where there was no time for others.
            is_known = sums.executions >= ENOUGH or (len(slow) > 1 and sums.busy_seconds > sums.seconds / 2)
            is_longer = is_known and whole.busy_seconds >= SLOWER * took_before * whole.executions
            took = sums.busy_seconds / sums.executions
        if not is_longer:
            return SourceFacts()
        ended = "" if burning.stopped is None else f"to {hour_text(sums.at, end)}"
        words = slower_text(took, took_before, at, ended)
        return SourceFacts(cause=words, first_step=_SLOWER_STEP.format(at))

    return ask


_SLOWER_STEP = (
    "Find what made it slower at {}: its inputs or files, its disk or GPU, what else runs beside it. More instances only "
    "help until that is mended."
)


_CHANGE_RANGES = ((6 * 3600.0, 15.0), (7.0 * DAY, 900.0))
"""How far back to search, and the step (seconds); the second pair is used if the first finds no change."""
_CHANGES_SHOWN = 3
_SEEN_LATE_SECONDS = 35.0
"""How much later than the exporter's a time is that was read off its scrapes: two steps and a poll."""

_PASSING_STATES = frozenset({"loading", "unloading"})
_CHANGE_WORDS = {
    "ready": "loaded",
    "loading": "is loading",
    "unloading": "is unloading",
    "unloaded": "unloaded",
    "not_loaded": "unloaded",
    "unavailable": "failed to load",
    "missing": "is missing from Triton's index",
}
"""State -> what happened to a version that came into it; `unknown` shows nothing about the model."""

Timeline = dict[float, str]


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A change of a version (empty: any) on a server, at a Unix time."""

    at: float
    version: str
    what: str
    instance: str


def latest_changes(prometheus: Prometheus, clock: Callable[[], float]) -> Source:
    """Return the source of the newest changes of the incident's model, before or after the alert."""

    def ask(incident: Incident) -> SourceFacts:
        member = incident.lead
        if not member.labels.get("model"):
            return SourceFacts()
        now, where = float(int(clock())), matchers_of(member, "instance", "model")
        for reach, step in _CHANGE_RANGES:
            # In whole steps before now: the newest change may be seconds old.
            steps = (now - min(incident.fired_at, now) + reach) // step + 1
            start = max(now % step, now - steps * step)
            also = f"{state.MODEL_RELOAD_FAILURES}{where} or {state.MODEL_NOT_READY_SINCE}{where}"
            series = prometheus.range(f"{state.MODEL_STATE}{where} == 1 or {also}", start, now, step)
            if recent := changes(series):
                last, facts = recent[0], ((LAST_CHANGE, _changes_text(recent, now)),)
                explains = last.what == _CHANGE_WORDS["unloaded"] and last.at >= incident.began - LATE_SECONDS
                explains = explains and member.name in EXPLAINED_BY_LOAD_FAILURE
                there = (
                    _CHANGE_WORDS.get(each.labels.get("state", ""), "unloaded")
                    for each in series
                    if each.times[-1] >= now and each.labels.get("instance", "") == last.instance
                )
                # Else another version is there: a rollout unloads the one before.
                explains = explains and {"unloaded"}.issuperset(there)
                cause = f"{UNLOADED}{hour_text(last.at, now)}" if explains else ""
                return SourceFacts(facts=facts, cause=cause)
        return SourceFacts()

    return ask


def changes(series: Iterable[Series]) -> list[ModelChange]:
    """Return every change that the series show, the newest first."""
    states: dict[str, dict[str, Timeline]] = {}
    not_ready_since: set[float] = set()
    ordered: list[ModelChange] = []
    for record in series:
        labels = record.labels
        instance = labels.get("instance", "")
        if labels.get("__name__") == state.MODEL_NOT_READY_SINCE.name:
            not_ready_since.update(record.values)
        elif "state" not in labels:
            what = f"a reload failed ({labels.get('reason', '')})"
            counted_at = pairwise(zip(record.times, record.values, strict=True))
            ordered += [
                ModelChange(at, "", what, instance)
                for (_, before), (at, after) in counted_at
                if after > before
            ]
        elif labels["state"] in _CHANGE_WORDS:
            timeline = states.setdefault(instance, {}).setdefault(labels.get("version", ""), {})
            timeline.update((at, labels["state"]) for at in record.times)
    for instance, versions in states.items():
        seen = sorted({at for timeline in versions.values() for at in timeline})
        for version, timeline in versions.items():
            ordered += _of_version(instance, version, timeline, seen)

    def as_exporter_saw(change: ModelChange) -> ModelChange:
        if change.what == _CHANGE_WORDS["ready"]:
            return change
        before = (at for at in not_ready_since if 0 <= change.at - at < _SEEN_LATE_SECONDS)
        return replace(change, at=max(before, default=change.at))

    dated = map(as_exporter_saw, ordered)
    return sorted(dated, key=lambda change: (-change.at, change.version, change.instance))


def _changes_text(recent: list[ModelChange], now: float) -> str:
    """Return the newest changes, a line each; what happened to several servers alike is one line."""
    lines: dict[tuple[str, str], list[ModelChange]] = {}
    for change in recent:
        lines.setdefault((change.version, change.what), []).append(change)
    return "\n".join(_change_text(alike, now) for alike in list(lines.values())[:_CHANGES_SHOWN])


def _change_text(alike: list[ModelChange], now: float) -> str:
    last = alike[0]
    name = f"version {last.version} {last.what}" if last.version else last.what
    servers = len({change.instance for change in alike})
    where = f" on {servers} servers" if servers > 1 else ""
    return f"{name}{where} at {hour_text(last.at, now)}"


def _of_version(instance: str, version: str, timeline: Timeline, seen: list[float]) -> list[ModelChange]:
    changed = []
    times = sorted(timeline)
    if seen[0] < times[0]:
        changed.append(ModelChange(times[0], version, f"first seen, {timeline[times[0]]}", instance))
    for before, at in pairwise(times):
        settled = timeline[at] not in _PASSING_STATES or at == times[-1]
        if timeline[at] != timeline[before] and settled:
            changed.append(ModelChange(at, version, _CHANGE_WORDS[timeline[at]], instance))
    # Other versions are still listed: if none were, the exporter itself may have failed.
    if later := [at for at in seen if at > times[-1]]:
        changed.append(ModelChange(later[0], version, "no longer listed by Triton", instance))
    return changed


SHOWN = 3
XID_WINDOW = "1h"

_FACT = "fact"
_BOARD = "on (instance, gpu_uuid)"
_PART = "on (instance, gpu_uuid, gpu_instance_id)"
_NORMAL = "idle|app_clocks|display_clock|sync_boost"
_GIB = 1024**3


@dataclass
class _Gpu:
    values: dict[str, float] = field(default_factory=dict)
    name: str = ""
    part: str = ""
    confidence: str = ""
    throttled: set[str] = field(default_factory=set)
    xids: set[str] = field(default_factory=set)


def gpu_state(prometheus: Prometheus) -> Source:
    """Return the source of how busy, full and hot each GPU is, whether it is throttled, and its last XID errors."""

    def ask(incident: Incident) -> SourceFacts:
        members = incident.firing or tuple(incident.members.values())
        member = next((each for each in members if _concerns(each)), None)
        if member is None:
            return SourceFacts()
        gpus = _collect(prometheus.instant(_gpu_query(member)))
        known = {key: card for key, card in gpus.items() if _figures(card)}
        return SourceFacts(facts=((GPU, _worded(known)),) if known else ())

    return ask


def _concerns(member: Member) -> bool:
    """Return whether the alert names a model or a GPU."""
    return any(member.labels.get(name) for name in ("model", "gpu_uuid")) or (
        member.labels.get(names.COMPONENT) == "gpu"
    )


def _gpu_query(member: Member) -> str:
    """Return every fact about the GPUs, in one request; each part carries its name in a label."""
    where = matchers_of(member, "instance", "gpu_uuid", "gpu_instance_id")
    runs = f"{gpu.MODEL_GPU_INFO}{matchers_of(member, 'instance', 'model', 'version', 'gpu_uuid')}"
    of_model = bool(member.labels.get("model"))

    def only(expression: str, joined: str) -> str:
        return f"({expression}) and {joined} {runs}" if of_model else expression

    reasons = where.also(f'reason!~"{_NORMAL}"')
    causes = where.also('cause=~"thermal|power"')
    xids = f"{gpu.XID_ERRORS}{where}"
    parts = {
        "name": only(f"{gpu.INFO}{where}", _BOARD),
        "busy": only(f"{gpu.UTILIZATION}{where}", _PART),
        "used": only(f"{gpu.MEMORY_USED}{where}", _PART),
        "total": only(f"{gpu.MEMORY_TOTAL}{where}", _PART),
        "celsius": only(f"{gpu.TEMPERATURE}{where}", _BOARD),
        "reason": only(f"{gpu.THROTTLE_REASON}{reasons}", _BOARD),
        # Counted time, for the sources that do not report the current reason.
        "cause": only(f"rate({gpu.THROTTLED_SECONDS}{causes}[5m])", _BOARD),
        # A code that the table does not know appears with its first error: increase() misses that one.
        "xid": only(f"({xids} unless {xids} offset {XID_WINDOW}) or increase({xids}[{XID_WINDOW}])", _BOARD),
    }
    if of_model:
        parts["runs"] = runs
    return " or ".join(
        f'label_replace({expression}, "{_FACT}", "{name}", "", "")' for name, expression in parts.items()
    )


def _worded(gpus: dict[tuple[str, str, str], _Gpu]) -> str:
    """Return a line for each GPU, those in trouble first."""
    ranked = sorted(gpus.items(), key=lambda entry: (not entry[1].xids, not entry[1].throttled, entry[0]))
    lines = [_gpu_text(uuid, card) for (_, uuid, _), card in ranked[:SHOWN]]
    if len(ranked) > SHOWN:
        lines.append(f"and {len(ranked) - SHOWN} more GPUs")
    return "\n".join(lines)


def _collect(samples: Sequence[Sample]) -> dict[tuple[str, str, str], _Gpu]:
    """Return GPUs by instance, GPU and part of it. Facts about the whole board are shown for each of its parts."""
    keys = {_gpu_key(sample.labels) for sample in samples if sample.labels[_FACT] in ("busy", "used", "runs")}
    keys |= {
        _gpu_key(sample.labels)
        for sample in samples
        if not any(_gpu_key(sample.labels)[:2] == key[:2] for key in keys)
    }
    gpus = {key: _Gpu(part=key[2]) for key in sorted(keys)}
    for sample in samples:
        key = _gpu_key(sample.labels)
        for card in [gpus[key]] if key in gpus else [g for k, g in gpus.items() if k[:2] == key[:2]]:
            _note(card, sample.labels, sample.value)
    return gpus


def _gpu_key(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("instance", ""), labels.get("gpu_uuid", ""), labels.get("gpu_instance_id", "")


def _note(card: _Gpu, labels: Mapping[str, str], value: float) -> None:
    fact = labels[_FACT]
    if fact == "name":
        card.name = labels.get("name", "").removeprefix("NVIDIA ")
    elif fact == "runs":
        card.confidence = labels.get("confidence", "")
    else:
        card.values[fact] = max(value, card.values.get(fact, value))
    if fact == "reason" and value > 0:
        card.throttled.add(labels.get("reason", ""))
    if fact == "cause" and value > 0.05:
        card.throttled.add(labels.get("cause", ""))
    if fact == "xid" and value > 0:
        card.xids.add(f"{labels.get('xid', '?')} ({labels.get('class', 'unknown')})")


def _gpu_text(uuid: str, card: _Gpu) -> str:
    name = " ".join(word for word in (card.name, uuid[:12]) if word)
    if card.part:
        name += f" part {card.part}"
    if card.confidence == "guess":
        name += " (mapping uncertain)"
    return f"{name}: {', '.join(_figures(card))}"


def _figures(card: _Gpu) -> list[str]:
    figures, known = [], card.values
    if "busy" in known:
        figures.append(f"utilization {100 * known['busy']:.0f} %")
    if "used" in known:
        total = f" of {known['total'] / _GIB:.1f}" if "total" in known else ""
        figures.append(f"{known['used'] / _GIB:.1f}{total} GiB used")
    if "celsius" in known:
        figures.append(f"{known['celsius']:.0f} °C")
    if card.throttled:
        figures.append(f"clocks throttled (reason: {', '.join(sorted(card.throttled))})")
    elif "reason" in known or "cause" in known:
        figures.append("not throttled")
    if card.xids:
        figures.append(f"XID {', '.join(sorted(card.xids))} in the last hour")
    elif "xid" in known:
        figures.append("no XID error in the last hour")
    return figures
