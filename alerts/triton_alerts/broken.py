"""What is broken now: the Triton servers that do not answer, and the models that are not ready on one that does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from triton_exporter.catalogue import state
from triton_exporter.common.printable import listed
from triton_slo import names
from triton_slo.prometheus import Prometheus, Sample

_FACT = "fact"
"""Label that tells the parts of a query apart."""
_SERVER = "cluster, instance"
_EXPECTED = f"max by ({_SERVER}, model) ({state.MODEL_EXPECTED}) == 1"
_DOWN = f"max by ({_SERVER}) ({state.SERVER_LIVE}) == 0"
_LOST = f"({_EXPECTED}) and on ({_SERVER}) ({_DOWN})"
_NOT_READY = f"""\
{state.MODEL_STATE}{{state!~"unloaded|unloading"}} == 1
and on ({_SERVER}, model, version) {state.MODEL_NOT_READY_SINCE}
and on ({_SERVER}) {state.SERVER_LIVE} == 1
unless on ({_SERVER}, model, version) {state.MODEL_FIRST_LOAD}"""
_NAMED = 3


def _serving(models: str) -> dict[str, str]:
    """Return parts of a query: on how many servers these models are ready, and of how many that should have them."""
    these = f"and on (cluster, model) ({models})"
    ready = f"max by ({_SERVER}, model) ({state.MODEL_READY}) {these}"
    return {
        "serving": f"sum by (cluster, model) ({ready})",
        "of": f"count by (cluster, model) (({_EXPECTED}) {these})",
    }


_DOWN_SERVERS = {
    "down": _DOWN,
    "lost": _LOST,
    **_serving(_LOST),
    # The start of the condition of an alert, which fires later.
    "since": f'min by ({_SERVER}) ({names.ALERTS}_FOR_STATE{{alertname=~"TritonServer(Down|NotLive|NotStarting)"}})',
}
_NOT_READY_MODELS = {
    "not ready": _NOT_READY,
    "since": f"min by ({_SERVER}, model) ({state.MODEL_NOT_READY_SINCE})",
    **_serving(_NOT_READY),
}
_STATE_WORDS = {
    "unavailable": "failed to load",
    "missing": "is not listed by Triton",
    "loading": "is loading",
    "ready": "does not work, although Triton reports it ready,",
}
"""State of a model -> what is wrong."""

Numbers = tuple[int, int]
"""How many servers have a model ready, of how many that should."""


@dataclass(slots=True)
class DownServer:
    """A server that does not answer, and its models."""

    instance: str
    since: float | None = None
    models: dict[str, Numbers] = field(default_factory=dict)

    @property
    def since_words(self) -> str:
        return _since(self.since)

    @property
    def words(self) -> str:
        """Say that it does not answer, since when, and whether its models are still served."""
        lost = [model for model, (serving, _) in self.models.items() if not serving]
        numbers = set(self.models.values())
        if lost:
            served = f": nothing serves {listed(lost, _NAMED)} now"
        elif len(numbers) == 1:
            served = f": its models are still served by {_of_servers(*numbers.pop())}"
        else:
            served = ": its models are still served by other servers" if numbers else ""
        return f"{self.instance} does not answer{self.since_words}{served}"


@dataclass(slots=True)
class NotReadyModel:
    """A model that servers which answer do not have ready, in one state."""

    model: str
    state: str
    instances: list[str]
    since: float | None
    numbers: Numbers

    @property
    def words(self) -> str:
        """Say what is wrong, where and since when, and whether other servers serve it."""
        serving, every = self.numbers
        served = f"still served by {_of_servers(serving, every)}" if serving else "nothing serves it now"
        what = _STATE_WORDS.get(self.state, f"is {self.state.replace('_', ' ')}")
        return f"{self.model} {what} on {listed(self.instances, _NAMED)}{_since(self.since)}: {served}"


def served_lines(models: Mapping[str, Numbers]) -> list[str]:
    """Say which models nothing serves, and how many servers still serve which others, a line for each number."""
    alike: dict[Numbers, list[str]] = {}
    for model, (serving, every) in sorted(models.items()):
        alike.setdefault((serving, every if serving else 0), []).append(model)
    return [
        f"{listed(named, 2 * _NAMED)}: still served by {_of_servers(*numbers)}"
        if numbers[0]
        else f"nothing serves {listed(named, 2 * _NAMED)} now"
        for numbers, named in sorted(alike.items())
    ]


def _of_servers(serving: int, every: int) -> str:
    return f"{serving} of {every} servers"


def _since(at: float | None) -> str:
    return f" since {datetime.fromtimestamp(at, UTC):%H:%M} UTC" if at else ""


def down_servers(prometheus: Prometheus, at: float | None = None) -> list[DownServer]:
    """Return the servers that do not answer, those first whose models nothing serves."""
    found = _ask(prometheus, _DOWN_SERVERS, at)
    since = {_place(sample): sample.value for sample in found["since"]}
    down = {
        _place(sample): DownServer(_place(sample)[1], since.get(_place(sample))) for sample in found["down"]
    }
    for sample in sorted(found["lost"], key=lambda sample: sample.labels["model"]):
        down[_place(sample)].models[sample.labels["model"]] = _numbers(found, sample)
    return sorted(
        down.values(), key=lambda server: (min(server.models.values(), default=(1, 1)), server.instance)
    )


def not_ready_models(prometheus: Prometheus, at: float | None = None) -> list[NotReadyModel]:
    """Return the models that are not ready where they should be, those first that nothing serves."""
    found = _ask(prometheus, _NOT_READY_MODELS, at)
    since = {(*_place(sample), sample.labels["model"]): sample.value for sample in found["since"]}
    models: dict[tuple[str, str, str], NotReadyModel] = {}
    for sample in sorted(found["not ready"], key=_place):
        (cluster, instance), model = _place(sample), sample.labels["model"]
        began = since.get((cluster, instance, model))
        known = models.setdefault(
            (cluster, model, sample.labels["state"]),
            NotReadyModel(model, sample.labels["state"], [], began, _numbers(found, sample)),
        )
        known.instances = sorted({*known.instances, instance})
        known.since = min((each for each in (known.since, began) if each is not None), default=None)
    return sorted(models.values(), key=lambda each: (each.numbers, each.model))


def _ask(prometheus: Prometheus, parts: Mapping[str, str], at: float | None) -> dict[str, list[Sample]]:
    """Return the answer to each part, in one request."""
    query = "\nor ".join(
        f'label_replace({expr}, "{_FACT}", "{fact}", "", "")' for fact, expr in parts.items()
    )
    found: dict[str, list[Sample]] = {fact: [] for fact in parts}
    for sample in prometheus.instant(query, at):
        found[sample.labels[_FACT]].append(sample)
    return found


def _place(sample: Sample) -> tuple[str, str]:
    return sample.labels.get("cluster", ""), sample.labels.get("instance", "")


def _numbers(found: Mapping[str, list[Sample]], about: Sample) -> Numbers:
    """Return on how many servers the model of a sample is ready, and how many should have it ready."""

    def of(fact: str) -> int:
        same = (
            round(sample.value)
            for sample in found[fact]
            if (_place(sample)[0], sample.labels["model"]) == (_place(about)[0], about.labels["model"])
        )
        return next(same, 0)

    return of("serving"), of("of")
