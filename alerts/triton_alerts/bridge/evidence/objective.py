"""What the objective of an alert counted in the last half hour: how much failed, since when, and whether that is over."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate, pairwise

from triton_alerts.alert import of_cluster
from triton_alerts.bridge.incidents.incident import Fault, Incident, is_same
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.common.moments import hour_text
from triton_slo import names
from triton_slo.amounts import percent
from triton_slo.indicators import Indicator, indicator_class
from triton_slo.prometheus import Prometheus, Series
from triton_slo.promql import Matchers

NOW_SECONDS = 300.0
"""The window of the burn rate, and of the counts of a fault that is older than what is asked for."""
CALM_SECONDS = 120.0
"""How long the objective must hold to hold before a fault, and to be over where few events come."""
_SOON_SECONDS = 60.0
"""Time without a failure after which a fault is over where failures were to come: four scrapes."""
_QUIET_SECONDS = 30.0
"""Time in which events come and none fails, from which on that is told: two evaluations."""
_REACH_SECONDS, _STEP_SECONDS = 1800.0, 5.0
_NO_CHANCE = 5
"""Failures that are no chance: where so many were to come at the pace of before and none does, or do after the end."""
OVER, _NO = "now within the target", "; no"


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one group at `times` (Unix seconds), the last of which is now; `budget` is the share that may fail."""

    times: Sequence[float]
    failed: Sequence[float]
    total: Sequence[float]
    budget: float

    @property
    def now(self) -> float:
        return self.times[-1]

    def between(self, start: float, end: float = math.inf) -> tuple[int, int]:
        """Return how many events failed between two times, and all."""
        first, last = (max(0, bisect_right(self.times, at) - 1) for at in (start, end))
        return round(self.failed[last] - self.failed[first]), round(self.total[last] - self.total[first])

    def lately(self, seconds: float) -> tuple[int, int]:
        return self.between(self.now - seconds)

    def breaks(self, failed: int, total: int) -> bool:
        return failed > self.budget * total

    @property
    def is_calm(self) -> bool:
        """Whether the last five minutes hold the objective, or a shorter time does where failures were to come.

        It has held since it first did for that long: what comes and goes is over once it stays away for longer.
        """
        start = self.now - NOW_SECONDS
        failed, total = self.between(start)
        if not total or not self.breaks(failed, total):
            return total > 0

        def has_failed(at: float) -> bool:
            failed, total = self.between(start, at)
            return failed >= _NO_CHANCE and self.breaks(failed, total)

        for seconds in (_SOON_SECONDS, CALM_SECONDS):
            if self.lately(seconds)[1] * failed / total < _NO_CHANCE:
                continue
            first_held = next(
                at
                for at in self.times  # now at the latest: nothing has come since
                if at > start and has_failed(at) and not self.breaks(*self.between(at, at + seconds))
            )
            if first_held <= self.now - seconds and not self.breaks(*self.between(first_held)):
                return True
        return False

    def fails_again(self, over_since: float) -> bool:
        """Whether the last two minutes break it, and what came since it was over does: by all events, or more than chance."""
        failed, total = self.between(max(over_since, self.now - NOW_SECONDS))
        return self.breaks(*self.lately(CALM_SECONDS)) and (failed == total > 1 or failed >= _NO_CHANCE)

    def judge(self, was: Fault) -> Fault:
        """Return whether the objective fails; what is over is so until events fail again: also while nobody asks."""
        if self.is_calm or (was.over and not self.fails_again(was.since or -math.inf)):
            return Fault(over=OVER, since=None if was.over else self.last(self.failed))
        return Fault(since=self._began(was.since) if was.over and was.since else self.held_until())

    def held_until(self, at: float = math.inf) -> float | None:
        """Return from when on more failed than may, the last time up to `at`: after two minutes that held the objective.

        None: not in half an hour.
        """
        broken = False  # an alert may fire minutes after its fault
        for end in reversed(self.times):
            start = end - CALM_SECONDS
            failed, total = self.between(start, end)
            if end > at or not (total or start >= self.times[0]):
                continue
            if self.breaks(failed, total):
                broken = True
            elif broken:
                if end < self.now - _REACH_SECONDS:
                    return None
                return self._began(start, end)
        return None

    def _began(self, start: float, end: float = math.inf) -> float | None:
        """Return where between two times the failures beyond the budget are fewest (CUSUM): then the fault after it began."""
        within = range(bisect_right(self.times, start), bisect_right(self.times, end))
        beyond = min(within, key=lambda i: (self.failed[i] - self.budget * self.total[i], -i), default=None)
        return self.times[beyond] if beyond is not None else None

    def sampled(self, at: float) -> float:
        """Return the time of the sample that is counted from where that is done from a time."""
        first = bisect_left(self.total, self.total[max(0, bisect_right(self.times, at) - 1)])
        return min(at, max(self.times[first], at - _QUIET_SECONDS))

    def last(self, counter: Sequence[float]) -> float | None:
        """Return when the last event of `failed` or `total` was counted; None: before the first of the times."""
        since = bisect_right(counter, counter[-1] - 0.5)  # estimates count parts of events
        return self.times[since] if since else None


def counted(prometheus: Prometheus, where: Matchers, budget: float, now: float) -> Counts | None:
    """Return what an objective counts; of several groups, the one that is worst now. None: nothing is counted now."""
    end = now // _STEP_SECONDS * _STEP_SECONDS
    start = end - _REACH_SECONDS - CALM_SECONDS
    groups: dict[names.GroupLabels, dict[str, Series]] = {}
    for series in prometheus.range(f"{names.COUNTER}{where}", start, end, _STEP_SECONDS):
        groups.setdefault(names.group_of(series.labels), {})[series.labels.get(names.EVENT, "")] = series
    found = [
        Counts(total.times, _grown(failed), _grown(total), budget)
        for events in groups.values()
        if (failed := events.get(names.ERROR)) and (total := events.get(names.TOTAL))
        if failed.times == total.times and total.times[-1] == end
    ]
    return max(found, key=lambda each: (each.lately(CALM_SECONDS), each.lately(NOW_SECONDS)), default=None)


def _grown(counter: Series) -> Sequence[float]:
    """Return how much a counter had grown since its first value: one that begins anew has counted what it has."""
    grown = (after - before if after >= before else after for before, after in pairwise(counter.values))
    return tuple(accumulate(grown, initial=0.0))


@dataclass(frozen=True)
class Burning:
    """The alert of an incident whose objective burns, the incident's begin as it is known now, and the counts."""

    incident: Incident
    member: Member
    since: float
    counts: Counts

    @property
    def _indicator(self) -> type[Indicator]:
        return indicator_class(self.member.labels.get(names.INDICATOR, ""))

    @property
    def was(self) -> Fault:
        return self.incident.fault(self.member)

    @cached_property
    def fault(self) -> Fault:
        return self.counts.judge(self.was)

    @cached_property
    def began(self) -> float:
        """When the fault of the objective began or came back; once that is over, when the first of the incident began."""
        incident = self.incident
        present = self.was if self.was.since and not self.was.over else self.fault
        if incident.open and not self.fault.over and present.since:
            return present.since
        if incident.earliest is not None:
            return self.since
        fired_at = min(each.starts_at for each in incident.members.values() if is_same(each, self.member))
        return self.counts.held_until(fired_at) or self.since

    @cached_property
    def stopped(self) -> str | None:
        """What is said behind how much failed, once that has stopped; None: it has not."""
        if self.fault.over or not self.incident.open:
            return ""
        heard, last = self.counts.last(self.counts.total), self.counts.last(self.counts.failed)
        if heard and self.counts.now - heard >= CALM_SECONDS:
            return f"{_NO} requests since {datetime.fromtimestamp(heard, UTC):%H:%M:%S} UTC"
        # The title of an alert without a tier has no time since which it could be.
        since = f"{_NO}ne since" if names.TIER in self.member.labels else ""
        return since if heard and last and heard - last >= _QUIET_SECONDS else None

    def window(self) -> tuple[float, str]:
        """Return from when on events are shown, and that in words: since their fault began, if it lasts and is no older
        than what is asked for, else in the last five minutes."""
        counts, began = self.counts, self.began
        if not self.fault.over and began >= counts.times[0] and counts.breaks(*counts.between(began)):
            return began, f"since {hour_text(began, counts.now)}"
        start = max(counts.now - NOW_SECONDS, counts.times[0])
        return start, f"in {span(counts.now - start)}"

    def title(self, prometheus: Prometheus, about: str, limit: str) -> str | None:
        """Return how much fails; once that has stopped, how much failed, and what is so now; None: as was said before."""
        counts = self.counts
        thing = f"{self.member.labels.get('model') or self.member.labels.get(names.SLO)}: {about}"
        failed_lately, lately = counts.lately(60)
        rate = f"; {percent(failed_lately / lately)} in the last minute" if lately else ""
        if self.stopped is not None:
            return self._past(prometheus, thing, self._indicator.failed_words.format(limit)) + self.stopped
        if counts.last(counts.total) is None:
            return None
        start, window = self.window()
        failed, total = counts.between(start)
        likely = failed / total * lately
        is_new = start > counts.now - CALM_SECONDS or max(failed_lately, likely) < _NO_CHANCE
        shown = f"estimated from {total:,}" if about else f"{failed:,} of {total:,}"
        shown += f" {window}{'' if is_new or likely / 2 < failed_lately < 1.5 * likely else rate}"
        failing = self._indicator.failing_words.format(limit)
        return f"{thing}{percent(failed / total)} of {failing} ({shown}), target {percent(counts.budget)}"

    def _past(self, prometheus: Prometheus, thing: str, failed_words: str) -> str:
        """Return how many events failed while it lasted, else what was said of that before, or what the alert says."""
        summary = self.member.annotations.get("summary") or self.member.name
        until = self.counts.last(self.counts.failed)
        if until is None:  # longer ago than is asked for
            said = self.incident.source_facts.title or ""
            is_past = said and (self.was.over or _NO in said)
            return said.partition(_NO)[0] if is_past else summary
        start = self.began
        failed, total = self.counts.between(start, until)
        if start < self.counts.times[0]:
            counter = f"{names.COUNTER}{objective_of(self.member)}"
            grown = f"sum by ({names.EVENT}) ({counter} - {counter} offset {until - start:.0f}s >= 0)"
            of = {each.labels[names.EVENT]: round(each.value) for each in prometheus.instant(grown, until)}
            failed, total = of.get(names.ERROR, failed), of.get(names.TOTAL, total)
        if not failed or names.TIER not in self.member.labels:
            return summary
        first, last = (datetime.fromtimestamp(at, UTC) for at in (self.counts.sampled(start), until))
        time = "%T" if first.date() == last.date() else "%d %b %T"
        return f"{thing}{failed:,} of {total:,} {failed_words}, {first:{time}} to {last:{time}} UTC"


def objective_of(member: Member) -> Matchers:
    """Return matchers of the series recorded for the objective of an alert."""
    return matchers_of(member, names.SLO, names.INDICATOR, *names.GROUPING)


def matchers_of(member: Member, *labels: str) -> Matchers:
    """Return matchers for those of the labels that the member has, and of its cluster."""
    matchers = Matchers(of_cluster(member.labels))
    for label in labels:
        if value := member.labels.get(label):
            matchers = matchers.equal(label, value)
    return matchers


def span(seconds: float) -> str:
    """Return a time as in a sentence: 5 min, 45 s."""
    return f"{round(seconds / 60)} min" if seconds >= 60 else f"{seconds:.0f} s"
