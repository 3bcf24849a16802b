"""Plan a correction that takes past time out of the budgets: the same for the command line and the web page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from triton_exporter.common.moments import rfc3339
from triton_slo import names
from triton_slo.correction.excluding_time import excluding
from triton_slo.correction.group_correction import CorrectionError, GroupCorrection
from triton_slo.correction.recorded_growth import ScaledLengths
from triton_slo.correction.replayed_history import replayed
from triton_slo.fields import Choice
from triton_slo.objective.exclusion import Span
from triton_slo.prometheus.client import Prometheus
from triton_slo.prometheus.remarks import WARNS
from triton_slo.promql import Matchers, open_range
from triton_slo.rules.plan import Plan
from tritonwatch.audited_corrections.trail import Entry
from tritonwatch.audited_corrections.writers import Writer
from tritonwatch.command_error import CommandError, UsageError

NO_HISTORY = "there is no history to add: nothing was written"
NO_EVENTS = "there were no events in this time range, so no error budget changes, nothing was written"


@dataclass(frozen=True, slots=True)
class CorrectedTime:
    """Past time that does not count, from and to Unix times; of all objectives and models where none is named."""

    start: float
    end: float
    objectives: tuple[str, ...] = ()
    model: str = ""
    version: str = ""

    @property
    def span(self) -> Span:
        return self.start, self.end

    def refuse_future(self, now: float) -> None:
        """Raise UsageError unless the time is past and its end is after its start."""
        start, end, present = map(rfc3339, (self.start, self.end, now))
        if self.end > now:
            raise UsageError(
                f"--to {end} is in the future, and only past time can be corrected; give {present} (now) or earlier"
            )
        if self.end <= self.start:
            raise UsageError(f"--to {end} is not after --from {start}; give the end of the time as --to")


def planned(
    prometheus: Prometheus, time: CorrectedTime, now: float, time_scale: float = 1.0
) -> tuple[GroupCorrection, ...]:
    """Return what would change, of each group with events in the time.

    Raises PrometheusError, UsageError, and CommandError where the time cannot be corrected.
    """
    time.refuse_future(now)
    chosen = Matchers()
    if time.objectives:
        chosen = chosen.choosing(names.SLO, Choice(names=time.objectives))
    for label, value in (("model", time.model), ("version", time.version)):
        if value:
            chosen = chosen.equal(label, value)
    with _complete_answers(prometheus):
        return excluding(prometheus, chosen, time.span, now, ScaledLengths(time_scale))


def history(
    prometheus: Prometheus, plans: Iterable[Plan], now: float, writable_to: float
) -> tuple[GroupCorrection, ...]:
    """Return the history that objectives have from before their rules were loaded, as far as it can be written.

    Raises PrometheusError, and CommandError where a history cannot be added.
    """
    with _complete_answers(prometheus):
        return tuple(
            correction for plan in plans for correction in replayed(prometheus, plan, now, writable_to)
        )


@contextmanager
def _complete_answers(prometheus: Prometheus) -> Iterator[None]:
    """Raise CommandError for a correction that is not possible, and for answers of a part of Prometheus."""
    with prometheus.collecting() as remarks:
        try:
            yield
        except CorrectionError as error:
            raise CommandError(*remarks.lines, error) from error
    if remarks.warnings:
        raise CommandError(
            f"{WARNS}{remarks.warnings[0]}; some groups would not be corrected: try again when all of it answers"
        )


def history_span(corrections: Sequence[GroupCorrection], now: float) -> Span:
    """Return the time of a history; without one: now."""
    if not corrections:
        return now, now
    starts = (correction.tiles[0].end for correction in corrections)
    return min(starts), max(correction.tiles[-1].end for correction in corrections)


def loaded_samples(prometheus: Prometheus, entries: Sequence[Entry], now: float) -> dict[str, int]:
    """Return how many samples Prometheus has of each entry, by its id; an entry with none is left out.

    Raises PrometheusError.
    """
    # A sample at the very start is in an open range, too.
    span = open_range(now - min((entry.start for entry in entries), default=now) + 1)
    series = f'{{__name__=~"{names.SLI_EVENTS_CORRECTION}|{names.CORRECTION_FROM}"}}'
    counted = prometheus.instant(f"sum by ({names.CORRECTION}) (count_over_time({series}[{span}]))", now)
    return {sample.labels.get(names.CORRECTION, ""): round(sample.value) for sample in counted}


def refuse_recent(time: CorrectedTime, writer: Writer, now: float) -> None:
    """Raise UsageError where a part of the time is not past, or too recent to be written."""
    time.refuse_future(now)
    wait = time.end - writer.writable_until(now)
    if wait > 0:
        raise UsageError(
            f"--to {rfc3339(time.end)}: Prometheus still has this time in memory, where no block may be added; "
            f"try again in {wait / 60:.0f} minutes"
        )
