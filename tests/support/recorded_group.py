"""Make the series that the rules record of one group of an objective, at times that the test chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from support.history import Series
from triton_slo import names

Value = float | Callable[[float], float]
"""A number, or what it is at a Unix time."""

_NAMES = {
    "target": names.OBJECTIVE_RATIO,
    "budget": names.ERROR_BUDGET_RATIO,
    "days": names.PERIOD_DAYS,
    "threshold": names.THRESHOLD_SECONDS,
    "left": names.PERIOD_BUDGET_REMAINING,
    "since": names.COUNTER_SINCE,
    "estimate_error": names.ESTIMATE_ERROR,
}


def group_labels(slo: str, model: str = "", version: str = "1", indicator: str = "") -> dict[str, str]:
    """Return the labels of a group, or without a model of the objective, named after its indicator by default."""
    own = {names.SLO: slo, names.INDICATOR: indicator or slo}
    return own | {key: value for key, value in (("model", model), ("version", version)) if model and value}


def recorded_group(
    labels: Mapping[str, str],
    times: Iterable[float],
    *,
    errors: Mapping[str, Value] | None = None,
    burn: float | None = None,
    spent: Value | None = None,
    events: tuple[Value, Value] | None = None,
    seen: bool = False,
    source: str = "",
    unknown: str = "",
    **values: Value | None,
) -> Iterator[Series]:
    """Each series that is given, with a sample at each time; `values` are by the keys of `_NAMES`.

    `errors` are error ratios by window, `burn` is the burn rate of the last five minutes; `events` are failed and
    all
    events a second, as a counter. What is left of the budget follows from what is `spent`. `seen`: the group is
    counted, if it has no events, and by default since long ago. `unknown` is the reason of an alert that fires.
    """
    moments = tuple(times)

    def series(name: str, value: Value, **more: str) -> Series:
        points = [(at, value(at) if callable(value) else value) for at in moments]
        return name, {**labels, **more}, points

    target = values.get("target")
    ratios = dict(errors or {})
    if isinstance(target, float):
        values.setdefault("budget", round(1 - target, 12))
        if burn is not None:
            ratios.setdefault("5m", burn * round(1 - target, 12))
    if spent is not None:
        values.setdefault("left", (lambda at: 1 - spent(at)) if callable(spent) else 1 - spent)
    for key, value in values.items():
        if value is not None:
            yield series(_NAMES[key], value)
    for window, ratio in ratios.items():
        yield series(names.sli_error(window), ratio)
    if seen and "since" not in values:
        yield series(names.COUNTER_SINCE, 0.0)  # counted for ever
    pair = events or ((0.0, 0.0) if seen else None)
    for event, rate in zip((names.ERROR, names.TOTAL), pair or (), strict=False):
        for name in (names.COUNTER, names.COPY):
            yield name, {**labels, names.EVENT: event}, list(_counted(moments, rate))
    if source:
        yield series(names.SLI_SOURCE, 1, **{names.SOURCE: source})
    if unknown:
        alert = {"alertname": names.UNMEASURED_ALERT, names.REASON: unknown, **labels}
        if unknown == "vanished":
            alert = {"alertname": names.UNKNOWN_ALERT, "model": labels["model"]}
        yield f"{names.ALERTS}_FOR_STATE", alert, [(at, moments[0]) for at in moments]
        yield names.ALERTS, {**alert, "alertstate": "firing"}, [(at, 1.0) for at in moments]


def _counted(moments: tuple[float, ...], rate: Value) -> Iterator[tuple[float, float]]:
    """Yield a counter with this rate."""
    counted, last = 0.0, moments[0]
    for at in moments:
        counted += (rate(at) if callable(rate) else rate) * (at - last)
        last = at
        yield at, counted
