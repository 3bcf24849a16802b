"""What is broken now: the Triton servers that do not answer or of which nothing is known, and the models that are not
ready on one that does answer, or whose requests pile up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from triton_exporter.catalogue import state, triton
from triton_exporter.common.moments import hour_text
from triton_exporter.common.printable import listed
from triton_slo import names
from triton_slo.amounts import cause_words
from triton_slo.prometheus import Prometheus, Sample
from triton_slo.signals import EXPORTER_UP

_FACT = "fact"
"""Label that tells the parts of a query apart."""
_SERVER = "cluster, instance"
_EXPECTED = f"max by ({_SERVER}, model) ({state.MODEL_EXPECTED}) == 1"
_READY = f"max by ({_SERVER}, model) ({state.MODEL_READY})"
_DOWN = f"max by ({_SERVER}) ({state.SERVER_LIVE}) == 0"
_LOST = f"({_EXPECTED}) and on ({_SERVER}) ({_DOWN})"
_NOT_READY = f"""\
{state.MODEL_STATE}{{state!~"unloaded|unloading"}} == 1
and on ({_SERVER}, model, version) {state.MODEL_NOT_READY_SINCE}
and on ({_SERVER}) {state.SERVER_LIVE} == 1
unless on ({_SERVER}, model, version) {state.MODEL_FIRST_LOAD}"""
_UNLOADED = f'{state.MODEL_STATE}{{state="unloaded"}}'
UNLOADED_IN_USE = f"""\
max without (version, state) ({_UNLOADED}) == 1
and on ({_SERVER}, model) sum by ({_SERVER}, model) (increase({triton.REQUEST_SUCCESS}[1h])) > 0
unless on ({_SERVER}, model) max by ({_SERVER}, model) ({state.MODEL_READY}) == 1"""
"""PromQL for the models that were unloaded within an hour of their last requests."""
QUEUE_BACKLOG = "TritonQueueBacklog"
"""The alert about requests that pile up."""
BACKLOG_REQUESTS = 10
"""So many may wait: one or two batches."""
_SILENT = f"max by ({_SERVER}) ({EXPORTER_UP}) == 0"
_NAMED = 3


def _serving(models: str, should: str = _EXPECTED) -> dict[str, str]:
    """Return parts of a query: on how many servers these models are ready, of how many that should have them, and how
    many more had them ready when their exporters last answered."""
    these = f"and on (cluster, model) ({models})"
    was_ready = f"max by ({_SERVER}, model) (last_over_time({state.MODEL_READY}[1h])) == 1"
    return {
        "serving": f"sum by (cluster, model) ({_READY} {these})",
        "of": f"count by (cluster, model) (({should}) {these})",
        "silent": f"count by (cluster, model) (({was_ready}) and on ({_SERVER}) ({_SILENT}) {these})",
    }


def _since_query(alerts: str, of: str = _SERVER) -> str:
    """Return the start of the condition of these alerts, which fire later."""
    return f'min by ({of}) ({names.ALERTS}_FOR_STATE{{alertname=~"{alerts}"}})'


SILENT_SINCE = f"""\
max by ({_SERVER}) (max_over_time(timestamp({EXPORTER_UP} == 1)[6h:1m]))
or {_since_query("TritonExporterDown")}"""
"""PromQL for when each exporter last answered Prometheus, to the minute; of one that has not for hours, the start of its
alert, which a restart of Prometheus sets to that of Prometheus."""
_DOWN_SERVERS = {
    "down": _DOWN,
    "lost": _LOST,
    **_serving(_LOST),
    "down since": _since_query("TritonServer(Down|NotLive|NotStarting)"),
}
_EVERYTHING = {
    **_DOWN_SERVERS,
    "unknown": _SILENT,
    "unknown since": SILENT_SINCE,
    "not ready": f'{_NOT_READY} or label_replace({UNLOADED_IN_USE}, "state", "unloaded", "", "")',
    "not ready since": f"min by ({_SERVER}, model) ({state.MODEL_NOT_READY_SINCE})"
    f" or {_since_query('TritonModelUnloadedInUse', f'{_SERVER}, model')}",
    "reason": f"sum by ({_SERVER}, model, reason) ({state.MODEL_LOAD_FAILURES}) > 0",
    **_serving(
        f"({_LOST}) or ({_NOT_READY}) or {_UNLOADED} == 1",
        f"{_EXPECTED} or max by ({_SERVER}, model) ({UNLOADED_IN_USE})",
    ),
    "waiting": f"""\
sum by ({_SERVER}, model) ({triton.PENDING_REQUESTS}) > {BACKLOG_REQUESTS}
and on ({_SERVER}, model) {names.ALERTS}{{alertname="{QUEUE_BACKLOG}"}}""",
    "servers": f"count({state.SERVER_LIVE} == 1)",
    "models ready": f"count(count by (cluster, model) ({_READY} == 1))",
    "ready": f"min by (model) ({_READY} and on ({_SERVER}, model) ({_EXPECTED})) == 1",
}
_STATE_WORDS = {
    "unavailable": "failed to load",
    "missing": "is not listed by Triton",
    "loading": "is loading",
    "unloaded": "was unloaded while it was in use",
    "ready": "does not work, although Triton reports it ready,",
}
"""State of a model -> what is wrong."""


class Served(NamedTuple):
    """How many servers have a model ready, of how many that should; and of how many of these nothing is known."""

    serving: int = 0
    every: int = 0
    unknown: int = 0

    @property
    def words(self) -> str:
        """Say how many serve, for a clause that names the model."""
        rest = f", of {self.unknown} nothing is known" if self.unknown else ""
        return f"{self.serving} of {self.every} servers{rest}"


@dataclass(slots=True)
class DownServer:
    """A server that does not answer, and its models."""

    instance: str
    since: Sample | None = None
    models: dict[str, Served] = field(default_factory=dict)

    @property
    def silence(self) -> str:
        """Say that it does not answer, and since when."""
        return f"{self.instance} does not answer{since_text(self.since)}"

    @property
    def words(self) -> str:
        """Say that it does not answer, since when, and whether its models are still served."""
        return self.silence + self._served("serves {} now", "is served", "are still")

    @property
    def past(self) -> str:
        """Say the same once it answers again."""
        return f"{self.instance} did not answer" + self._served("served {}", "was served", "were")

    def _served(self, serves: str, is_served: str, are: str) -> str:
        lost = [model for model, served in self.models.items() if not (served.serving or served.unknown)]
        unsure = [model for model, served in self.models.items() if not served.serving and served.unknown]
        numbers = set(self.models.values())
        if lost:
            return f": nothing {serves.format(listed(lost, _NAMED))}"
        if unsure:
            return f": whether {listed(unsure, _NAMED)} {is_served} is unknown"
        others = numbers.pop().words if len(numbers) == 1 else "other servers"
        return f": its models {are} served by {others}" if self.models else ""


@dataclass(slots=True)
class NotReadyModel:
    """A model that servers which answer do not have ready, in one state."""

    model: str
    state: str
    instances: list[str]
    since: Sample | None
    served: Served
    reasons: set[str] = field(default_factory=set)
    """Classes of reasons for which its loads failed there."""

    @property
    def words(self) -> str:
        """Say what is wrong, where and since when, whether other servers serve it, and why a load failed."""
        served = _served_text(self.served, "it")
        what = _STATE_WORDS.get(self.state, f"is {self.state.replace('_', ' ')}")
        reasons = sorted(self.reasons - {"other"}) if self.state == "unavailable" else []
        why = f"; reason: {', '.join(map(cause_words, reasons))}" if reasons else ""
        return (
            f"{self.model} {what} on {listed(self.instances, _NAMED)}{since_text(self.since)}: {served}{why}"
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is broken now, in words, and further lines about it; `urgent`: nothing serves a model."""

    words: str
    urgent: bool
    model: str = ""
    lines: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it in a line."""
        return ": ".join(filter(None, (self.words, "; ".join(self.lines))))


@dataclass(frozen=True, slots=True)
class Broken:
    """What is broken now; `unknown` are the servers whose exporters do not answer, and since when.

    Also how many servers answer, how many models are ready somewhere, and which are ready wherever they should be.
    """

    down: tuple[DownServer, ...] = ()
    unknown: tuple[tuple[str, Sample | None], ...] = ()
    not_ready: tuple[NotReadyModel, ...] = ()
    waiting: tuple[Sample, ...] = ()
    """Models whose requests pile up on a server, and how many wait."""
    servers: int = 0
    models_ready: int = 0
    ready: frozenset[str] = frozenset()

    @property
    def models(self) -> set[str]:
        """The models that some server does not serve."""
        return {model for server in self.down for model in server.models} | {
            each.model for each in self.not_ready
        }

    def faults(self, model: str | None = None, servers: Collection[str] | None = None) -> list[Fault]:
        """Return each fault, a server before its models; or only those of one model, which is on these servers."""
        found = []
        for server in self.down:
            numbers = {name: of for name, of in server.models.items() if model in (None, name)}
            if numbers or model is None:
                urgent = not all(served.serving for served in numbers.values())
                found.append(Fault(server.silence, urgent, lines=tuple(served_lines(numbers))))
        for instance, since in self.unknown:
            if servers is None or instance in servers:
                words = f"Nothing is known about {instance}{since_text(since)}: its exporter does not answer"
                found.append(Fault(words, urgent=False))
        for each in self.not_ready:
            if model in (None, each.model):
                found.append(Fault(each.words, not each.served.serving, each.model))
        for sample in self.waiting:
            of = sample.labels["model"]
            if model in (None, of):
                words = f"Requests for {of} pile up on {sample.labels['instance']}: {sample.value:.0f} wait"
                found.append(Fault(words, urgent=False, model=of))
        return found


def served_lines(models: Mapping[str, Served]) -> list[str]:
    """Say which models nothing serves, and how many servers still serve which others, a line for each number."""
    alike: dict[Served, list[str]] = {}
    for model, served in sorted(models.items()):
        alike.setdefault(served if served.serving or served.unknown else Served(), []).append(model)
    lines = []
    for served, models_alike in sorted(alike.items()):
        named, still = listed(models_alike, 2 * _NAMED), served.serving > 0
        lines.append(f"{named}: {_served_text(served, named)}" if still else _served_text(served, named))
    return lines


def _served_text(served: Served, model: str) -> str:
    if served.serving:
        return f"still served by {served.words}"
    if served.unknown:
        return f"whether {model} is served is unknown: of {served.unknown} of {served.every} servers nothing is known"
    return f"nothing serves {model} now"


def since_text(began: Sample | None) -> str:
    """Return since when, which is the value of a sample, for the end of a clause; nothing where that is 0 or not known."""
    return f" since {hour_text(began.value, began.at)}" if began and began.value else ""


def down_servers(
    prometheus: Prometheus, at: float | None = None, cluster: str | None = None
) -> tuple[DownServer, ...]:
    """Return the servers (None: of all clusters) that do not answer, those first whose models nothing serves."""
    return _down_servers(_ask(prometheus, _DOWN_SERVERS, at, cluster))


def broken_now(prometheus: Prometheus, at: float | None = None, cluster: str | None = None) -> Broken:
    """Return all that is broken, or that of a cluster, in one request; what nothing serves is first."""
    found = _ask(prometheus, _EVERYTHING, at, cluster)
    since = {_place(sample): sample for sample in found["unknown since"]}
    unknown = sorted(_place(sample) for sample in found["unknown"])
    return Broken(
        _down_servers(found),
        tuple((place[1], since.get(place)) for place in unknown),
        _not_ready_models(found),
        tuple(sorted(found["waiting"], key=lambda sample: (sample.labels["model"], _place(sample)))),
        round(sum(sample.value for sample in found["servers"])),
        round(sum(sample.value for sample in found["models ready"])),
        frozenset(sample.labels["model"] for sample in found["ready"]),
    )


def _down_servers(found: Mapping[str, list[Sample]]) -> tuple[DownServer, ...]:
    since = {_place(sample): sample for sample in found["down since"]}
    down = {
        _place(sample): DownServer(_place(sample)[1], since.get(_place(sample))) for sample in found["down"]
    }
    for sample in sorted(found["lost"], key=lambda sample: sample.labels["model"]):
        down[_place(sample)].models[sample.labels["model"]] = _served(found, sample)
    return tuple(
        sorted(
            down.values(),
            key=lambda server: (min(server.models.values(), default=Served(1)), server.instance),
        )
    )


def _not_ready_models(found: Mapping[str, list[Sample]]) -> tuple[NotReadyModel, ...]:
    since = {(*_place(sample), sample.labels["model"]): sample for sample in found["not ready since"]}
    models: dict[tuple[str, str, str], NotReadyModel] = {}
    for sample in sorted(found["not ready"], key=_place):
        (cluster, instance), model = _place(sample), sample.labels["model"]
        began = since.get((cluster, instance, model))
        known = models.setdefault(
            (cluster, model, sample.labels["state"]),
            NotReadyModel(model, sample.labels["state"], [], began, _served(found, sample)),
        )
        known.instances = sorted({*known.instances, instance})
        known.since = min(filter(None, (known.since, began)), key=lambda sample: sample.value, default=None)
        known.reasons |= {
            failure.labels["reason"]
            for failure in found["reason"]
            if (_place(failure), failure.labels["model"]) == ((cluster, instance), model)
        }
    return tuple(sorted(models.values(), key=lambda each: (each.served, each.model)))


def _ask(
    prometheus: Prometheus, parts: Mapping[str, str], at: float | None, cluster: str | None
) -> dict[str, list[Sample]]:
    """Return the answer to each part, in one request: of one cluster, and what is of none; None: of all."""
    query = "\nor ".join(
        f'label_replace({expr}, "{_FACT}", "{fact}", "", "")' for fact, expr in parts.items()
    )
    found: dict[str, list[Sample]] = {fact: [] for fact in parts}
    for sample in prometheus.instant(query, at):
        if cluster in (None, sample.labels.get("cluster", cluster)):
            found[sample.labels[_FACT]].append(sample)
    return found


def _place(sample: Sample) -> tuple[str, str]:
    return sample.labels.get("cluster", ""), sample.labels.get("instance", "")


def _served(found: Mapping[str, list[Sample]], about: Sample) -> Served:
    """Return on how many servers the model of a sample is ready."""

    def of(fact: str) -> int:
        same = (
            round(sample.value)
            for sample in found[fact]
            if (_place(sample)[0], sample.labels["model"]) == (_place(about)[0], about.labels["model"])
        )
        return next(same, 0)

    return Served(of("serving"), of("of") + of("silent"), of("silent"))
