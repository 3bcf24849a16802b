"""Ask a Prometheus for the status of every objective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_exporter.catalogue import EXPORTER_JOB, state
from triton_exporter.common.moments import utc_text
from triton_slo import names
from triton_slo.objective.period_window import CalendarWindow, calendar_window
from triton_slo.objective.periods import period_at
from triton_slo.prometheus.client import Prometheus, PrometheusError, Sample
from triton_slo.promql import Matchers, regex_of
from triton_slo.verdict.group_status import GroupStatus
from triton_slo.verdict.recorded_status import (
    AGE,
    PERIOD_END,
    PERIOD_START,
    SELECTOR,
    UNKNOWN_SECONDS,
    UNKNOWN_TIME,
    group_statuses,
)

_UNKNOWN_STEP_SECONDS = 300
_COPY_FROM_SECONDS = 12 * 3600
"""A shorter time is read from the counter itself: the copy lags by up to four minutes."""
_COUNTED = f'timestamp({names.COUNTER}{{{names.EVENT}="{names.TOTAL}"}})'
_AGE_QUERY = f"time() - ({_COUNTED} or max_over_time({_COUNTED}[1h:1m]))"
_UNKNOWN = Matchers((f'alertname=~"{regex_of((names.UNKNOWN_ALERT, names.UNMEASURED_ALERT))}"',))


def read_status(prometheus: Prometheus, at: float | None = None) -> tuple[GroupStatus, ...]:
    """Return the status of every recorded objective now (or at Unix time `at`), the most urgent first.

    Every objective whose rules are loaded has a row; without rows no rules are loaded. Raises PrometheusError,
    also when Prometheus does not scrape the exporter.
    """
    samples = prometheus.instant_with_all(SELECTOR, at)
    if not samples:
        _require_exporter(prometheus, at)
    more = (
        *_named(AGE, prometheus.instant(_AGE_QUERY, at)),
        *_unknown(prometheus, samples, at),
        *_of_calendars(prometheus, samples, at),
    )
    return group_statuses((*samples, *more))


def _named(name: str, samples: Sequence[Sample]) -> Iterator[Sample]:
    for sample in samples:
        yield Sample({**sample.labels, "__name__": name}, sample.value, sample.at)


def _unknown(prometheus: Prometheus, samples: Sequence[Sample], at: float | None) -> Iterator[Sample]:
    """Yield since when, and for how long in the longest period, alerts said that nothing is known."""
    since = f"time() - {names.ALERTS}_FOR_STATE{_UNKNOWN}"
    yield from _named(UNKNOWN_SECONDS, prometheus.instant(since, at))
    days = [sample.value for sample in samples if sample.labels.get("__name__") == names.PERIOD_DAYS]
    seconds = round(max(days, default=30.0) * 86400)
    firing = _UNKNOWN.equal("alertstate", "firing")
    counted = f"count_over_time({names.ALERTS}{firing}[{seconds}s:{_UNKNOWN_STEP_SECONDS}s])"
    yield from _named(UNKNOWN_TIME, prometheus.instant(f"{counted} * {_UNKNOWN_STEP_SECONDS}", at))


def _of_calendars(prometheus: Prometheus, samples: Sequence[Sample], at: float | None) -> Iterator[Sample]:
    """Yield the budget left of calendar windows, which no rule can know: PromQL knows no time zone."""
    for info in samples:
        window = calendar_window(info.labels.get("window", ""))
        if info.labels.get("__name__") == names.INFO and window is not None:
            period = period_at(window, info.at)
            labels = {name: info.labels[name] for name in (names.SLO, names.INDICATOR) if name in info.labels}
            yield Sample({**labels, "__name__": PERIOD_START}, period.start, info.at)
            yield Sample({**labels, "__name__": PERIOD_END}, period.end, info.at)
            query = calendar_budget(window, Matchers().equal(names.SLO, labels[names.SLO]), info.at)
            yield from _named(names.PERIOD_BUDGET_REMAINING, prometheus.instant(query, at))


def calendar_budget(window: CalendarWindow, own: Matchers, at: float) -> str:
    """Return PromQL for the share of the budget that is left of the calendar period that contains a Unix time."""
    passed = max(60, round(at - period_at(window, at).start))
    counter = names.COPY if passed >= _COPY_FROM_SECONDS else names.COUNTER
    error, total = (
        f"increase({counter}{own.equal(names.EVENT, event)}[{passed}s])"
        for event in (names.ERROR, names.TOTAL)
    )
    return f"1 - {error} / ignoring ({names.EVENT}) ({total} > 0) / {names.ERROR_BUDGET_RATIO}{own}"


def _require_exporter(prometheus: Prometheus, at: float | None) -> None:
    if prometheus.instant(f"count({state.UP})", at):
        return
    if at is None:
        raise PrometheusError(
            f"Prometheus has no series of the exporter: does it scrape job {EXPORTER_JOB}, "
            "and is the exporter up?"
        )
    raise PrometheusError(
        f"Prometheus has no series of the exporter at {utc_text(at)}: did it scrape job {EXPORTER_JOB} then, "
        "and does it keep samples for so long (--storage.tsdb.retention.time)?"
    )
