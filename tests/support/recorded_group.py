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
    "burn": names.CURRENT_BURN_RATE,
    "burning": names.BURNING,
    "spent": names.PERIOD_BURN_RATE,
    "left": names.PERIOD_BUDGET_REMAINING,
    "seen": names.LAST_SEEN,
    "retired": names.RETIRED,
    "since": names.SLI_EVENTS_SINCE,
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
    events: Mapping[str, tuple[Value, Value]] | None = None,
    sums: tuple[Value, Value] | None = None,
    source: str = "",
    unknown: str = "",
    **values: Value | None,
) -> Iterator[Series]:
    """Each series that is given, with a sample at each time; `values` are by the keys of `_NAMES`.

    `errors` are error ratios by window; `events` (by window, a second) and `sums` are of errors and of all events.
    What is left of the budget follows from what is spent, unless it is given; `unknown` is a reason.
    """
    moments = tuple(times)

    def series(name: str, value: Value, **more: str) -> Series:
        points = [(at, value(at) if callable(value) else value) for at in moments]
        return name, {**labels, **more}, points

    spent = values.get("spent")
    if spent is not None:
        values.setdefault("left", (lambda at: 1 - spent(at)) if callable(spent) else 1 - spent)
    for key, value in values.items():
        if value is not None:
            yield series(_NAMES[key], value)
    for window, ratio in (errors or {}).items():
        yield series(names.sli_error(window), ratio)
    pairs = {names.sli_events(window): pair for window, pair in (events or {}).items()}
    for name, pair in {**pairs, **({names.SLI_EVENTS_SUM: sums} if sums else {})}.items():
        for event, value in zip((names.ERROR, names.TOTAL), pair, strict=True):
            yield series(name, value, **{names.EVENT: event})
    if source:
        yield series(names.SLI_SOURCE, 1, **{names.SOURCE: source})
    if unknown:
        yield series(names.UNKNOWN, 1, **{names.REASON: unknown})
