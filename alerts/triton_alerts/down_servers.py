"""The Triton servers that do not answer: since when, and which of their models other servers still serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from triton_exporter.catalogue import state
from triton_exporter.common.printable import listed
from triton_slo import names
from triton_slo.prometheus import Prometheus

_FACT = "fact"
"""Label that tells the parts of the query apart."""
_SERVER = "cluster, instance"
_EXPECTED = f"max by ({_SERVER}, model) ({state.MODEL_EXPECTED}) == 1"
_DOWN = f"max by ({_SERVER}) ({state.SERVER_LIVE}) == 0"
_LOST = f"({_EXPECTED}) and on ({_SERVER}) ({_DOWN})"
_PARTS = {
    "down": _DOWN,
    "lost": _LOST,
    "serving": f"sum by (cluster, model) (max by ({_SERVER}, model) ({state.MODEL_READY}) and on (cluster, model) ({_LOST}))",
    "of": f"count by (cluster, model) (({_EXPECTED}) and on (cluster, model) ({_LOST}))",
    # The start of the condition of an alert, which fires later.
    "since": f'min by ({_SERVER}) ({names.ALERTS}_FOR_STATE{{alertname=~"TritonServer(Down|NotLive|NotStarting)"}})',
}
_QUERY = "\nor ".join(f'label_replace({expr}, "{_FACT}", "{fact}", "", "")' for fact, expr in _PARTS.items())
_NAMED = 3


@dataclass(slots=True)
class DownServer:
    """A server that does not answer; `models`: model -> how many servers have it ready, of how many that should."""

    instance: str
    since: float | None = None
    models: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def since_words(self) -> str:
        return f" since {datetime.fromtimestamp(self.since, UTC):%H:%M} UTC" if self.since else ""

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


def served_lines(models: Mapping[str, tuple[int, int]]) -> list[str]:
    """Say how many servers still serve which models, a line for each number, the least first."""
    lines = []
    for numbers in sorted(set(models.values())):
        alike = listed(sorted(model for model, each in models.items() if each == numbers), 2 * _NAMED)
        lines.append(
            f"{alike}: still served by {_of_servers(*numbers)}"
            if numbers[0]
            else f"nothing serves {alike} now"
        )
    return lines


def _of_servers(serving: int, every: int) -> str:
    return f"{serving} of {every} servers"


def down_servers(prometheus: Prometheus, at: float | None = None) -> list[DownServer]:
    """Return them, those first whose models nothing serves."""
    down: dict[tuple[str, str], DownServer] = {}
    numbers: dict[str, dict[tuple[str, str], float]] = {"serving": {}, "of": {}}
    found = sorted(
        prometheus.instant(_QUERY, at), key=lambda sample: list(_PARTS).index(sample.labels[_FACT])
    )
    for sample in found:
        cluster, instance = sample.labels.get("cluster", ""), sample.labels.get("instance", "")
        fact, model = sample.labels[_FACT], sample.labels.get("model", "")
        if fact == "down":
            down[cluster, instance] = DownServer(instance)
        elif fact in numbers:
            numbers[fact][cluster, model] = sample.value
        elif (server := down.get((cluster, instance))) is not None:
            if fact == "since":
                server.since = sample.value
            else:
                server.models[model] = (0, 0)
    for (cluster, _), server in down.items():
        server.models = {
            model: (
                round(numbers["serving"].get((cluster, model), 0)),
                round(numbers["of"].get((cluster, model), 1)),
            )
            for model in sorted(server.models)
        }
    return sorted(
        down.values(), key=lambda server: (min(server.models.values(), default=(1, 1)), server.instance)
    )
