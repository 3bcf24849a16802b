"""Weekly summary: incidents by cause and model, pages outside hours or not acknowledged, error budgets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.summaries.listing import acknowledged, title
from triton_alerts.bridge.text import clean
from triton_alerts.hours import Hours
from triton_exporter.common.duration import DAY, in_words
from triton_exporter.common.moments import local_text
from triton_slo import names
from triton_slo.amounts import burn_rate
from triton_slo.problem_words import count
from triton_slo.prometheus.client import Prometheus
from triton_slo.report.markup import escape_markdown

MAX_LINES = 10
WEEK_SECONDS = 7.0 * DAY
NO_PROMETHEUS = "Unknown: no --prometheus URL was given."
_SMALL_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Part:
    """A heading and the lines below it, as plain text."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a week."""

    title: str
    parts: tuple[Part, ...]

    def markdown(self) -> str:
        """Return the summary as Markdown."""
        lines = [f"# {_safe(self.title)}"]
        for part in self.parts:
            lines += ["", f"## {_safe(part.heading)}", "", *(f"- {_safe(line)}" for line in part.lines)]
        return "\n".join(lines) + "\n"


def summarize(
    recorded: Iterable[RecordedIncident], end: datetime, hours: Hours, budgets: Sequence[str]
) -> Summary:
    """Sum up the incidents that opened in the week before a time."""
    until = end.timestamp()
    start = until - WEEK_SECONDS
    week = [record for record in recorded if start <= record.incident.opened_at < until]
    pages = [record for record in week if record.paged_at is not None]
    outside = [page for page in pages if not hours.contain(page.paged_at or 0.0)]
    unacknowledged = [page for page in pages if page.acknowledged is None]
    begin, zone = datetime.fromtimestamp(start, end.tzinfo), str(hours.zone)
    parts = [
        Part("Summary", tuple(_in_short(week, pages, outside, unacknowledged, hours))),
        Part("By cause", _ranking(week, _cause)),
        Part("By model", _ranking(week, _model)),
        Part("Pages outside working hours", _cut([_page_line(page, end) for page in outside])),
        Part("Pages that nobody acknowledged, by alert", _noisiest(pages)),
        Part("Error budgets", _cut(budgets)),
    ]
    span = f"{begin:%a} {local_text(start, zone)} to {end:%a} {local_text(until, zone)}, {zone}"
    return Summary(f"Incidents of the week, {span}", tuple(part for part in parts if part.lines))


def budgets(prometheus: Prometheus, end: float) -> list[str]:
    """Return how much of each error budget is spent, and how much was a week before; the most spent first.

    Raises PrometheusError.
    """
    query = f"{names.PERIOD_BUDGET_REMAINING}{{{names.RECORDED_HERE}}}"
    now, before = (
        {
            tuple(sorted(sample.labels.items())): 1 - sample.value
            for sample in prometheus.instant(query, at)
            if math.isfinite(sample.value)
        }
        for at in (end, end - WEEK_SECONDS)
    )
    if not now:
        return ["Unknown: Prometheus has no recorded error budgets; are the rules loaded?"]
    most = sorted(now.items(), key=lambda entry: -entry[1])
    lines = [
        f"{_objective_key(dict(labels))}: {_share_text(spent)} spent"
        + (f" ({_share_text(before[labels])} a week before)" if labels in before else "")
        for labels, spent in most
        if spent >= _SMALL_SHARE
    ]
    rest = len(most) - len(lines)
    return lines + ([f"{count(rest, 'other budget')} less than 1 % spent"] if rest and lines else []) or [
        "Less than 1 % of each is spent."
    ]


def _in_short(
    week: Sequence[RecordedIncident],
    pages: Sequence[RecordedIncident],
    outside: Sequence[RecordedIncident],
    unacknowledged: Sequence[RecordedIncident],
    hours: Hours,
) -> Iterable[str]:
    if not week:
        yield "No incident."
        return
    still = sum(record.incident.open for record in week)
    yield (
        f"{count(len(week), 'incident')}: {count(len(pages), 'page')}, {count(len(week) - len(pages), 'ticket')}"
        + (f"; {still} still open" if still else "")
    )
    if pages:
        yield f"{len(outside)} of {count(len(pages), 'page')} outside working hours ({hours})"
        yield f"{len(unacknowledged)} of {count(len(pages), 'page')} not acknowledged"
    taken = [page.seconds_to_acknowledge for page in pages if page.seconds_to_acknowledge is not None]
    if taken:
        yield f"Median time to acknowledge a page: {in_words(median(taken))}"
    lasted = [record.seconds_to_recover for record in week if record.seconds_to_recover is not None]
    if lasted:
        yield f"Median time to recover: {in_words(median(lasted))}"


def _ranking(week: Sequence[RecordedIncident], key: Callable[[RecordedIncident], str]) -> tuple[str, ...]:
    """Return how many incidents, pages and how much time each key has, the most pages first."""
    groups: dict[str, list[RecordedIncident]] = {}
    for record in week:
        groups.setdefault(key(record), []).append(record)
    rows = []
    for name, some in groups.items():
        pages = sum(record.paged_at is not None for record in some)
        seconds = sum(record.seconds_to_recover or 0.0 for record in some)
        still = sum(record.incident.open for record in some)
        line = f"{name}: {count(len(some), 'incident')}, {count(pages, 'page')}"
        line += f", {in_words(seconds)} in total" if still < len(some) else ""
        line += f", {still} still open" if still else ""
        rows.append((-pages, -len(some), -seconds, line))
    return _cut([row[-1] for row in sorted(rows)])


def _cause(record: RecordedIncident) -> str:
    lead = record.incident.lead
    return causes.largest(record.incident, lead) or f"unknown cause ({lead.name})"


def _model(record: RecordedIncident) -> str:
    lead: Member = record.incident.lead
    return lead.labels.get("model") or "no single model"


def _page_line(record: RecordedIncident, end: datetime) -> str:
    at = datetime.fromtimestamp(record.paged_at or 0.0, end.tzinfo)
    return f"{at:%a %H:%M}, {acknowledged(record)}: {title(record)} ({record.incident.name})"


def _noisiest(pages: Sequence[RecordedIncident]) -> tuple[str, ...]:
    every = Counter(page.incident.lead.name for page in pages)
    ignored = Counter(page.incident.lead.name for page in pages if page.acknowledged is None)
    return _cut(
        [f"{name}: {number} of {count(every[name], 'page')}" for name, number in ignored.most_common()]
    )


def _objective_key(labels: dict[str, str]) -> str:
    slo = labels.pop(names.SLO, "?")
    of = " ".join(labels[name] for name in names.GROUPING if labels.get(name))
    return f"{slo}, {of}" if of else slo


def _share_text(share: float) -> str:
    return f"{100 * share:.0f} %" if share <= 1 else burn_rate(share)


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more} more") if more > 0 else tuple(lines)


def _safe(text: str) -> str:
    """Return text from outside on one line, with its Markdown escaped."""
    return escape_markdown(" ".join(clean(text).split()))
