"""Run pages on estimated latencies: simulated requests through the exporter's estimator, and made-up shares.

Each scenario runs twice on the generated rules: with the true distribution (an exact source), and as estimated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from support.promtool import alerting_rule_file, evaluated
from support.simulated_traffic import Floats, Requests, independent, mixture, poisson, polled, queued
from support.tools import promtools
from triton_exporter.catalogue import state
from triton_exporter.distribution.estimate.decomposition import Decomposition
from triton_exporter.distribution.shape import Interval
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.indicators import BURN_ALERTS
from triton_slo.objective.model import Objective

THRESHOLD = 0.05
OBJECTIVE = Objective.model_validate(
    {
        "name": "latency",
        "target": "99%",
        "indicator": {"kind": "latency", "threshold": "50ms"},
        "overrides": [{"models": {"regex": "healthy.*"}, "target": "95%"}],
    }
)
READING = 0.05
"""Seconds between two readings of Triton's counters."""
KINDS = ("true", "estimated")


@dataclass(frozen=True)
class Shown:
    """What the exporter's series show at each scrape: requests, those within the threshold, and how sure that is.

    `error` is NaN where no error is stated; then the source is not the decomposition.
    """

    count: Floats
    within: Floats
    error: Floats

    def series(self, model: str) -> dict[str, str]:
        """Return the series of promtool."""
        own = f'model="{model}", version="1"'
        signal, le = f'{own}, signal="request"', f'le="{THRESHOLD}"'
        estimated = ~np.isnan(self.error)
        sources = (
            {"decomposed": estimated, "sampled_mean": ~estimated}
            if estimated.any()
            else {"trace": ~estimated}
        )
        written = {
            f"{state.REQUEST_DURATION.count}{{{own}}}": _text(self.count),
            f"{state.REQUEST_DURATION.bucket}{{{own}, {le}}}": _text(self.within),
            **{
                f'{state.DISTRIBUTION_SOURCE}{{{signal}, source="{source}"}}': _text(used.astype(float))
                for source, used in sources.items()
            },
        }
        if estimated.any():
            written[f"{state.DISTRIBUTION_ERROR}{{{signal}, {le}}}"] = _text(self.error)
        return written


def _text(values: Floats) -> str:
    return " ".join("_" if np.isnan(value) else f"{value:.10g}" for value in values)


@dataclass(frozen=True)
class Scenario:
    """What happens in so many minutes, and what the truth calls for: page, ticket or nothing."""

    name: str
    model: str
    expected: str
    began: float
    minutes: float
    shown: Callable[[float, float], dict[str, Shown]]
    """By kind, for a length and a scrape interval in seconds."""


def simulated(
    make: Callable[[np.random.Generator, float], Requests],
) -> Callable[[float, float], dict[str, Shown]]:
    """Return requests, and what the estimator makes of Triton's counters of them."""

    def shown(seconds: float, scrape: float) -> dict[str, Shown]:
        requests = make(np.random.default_rng(11), seconds).until(seconds)
        times = np.arange(0, seconds + scrape / 2, scrape)
        ended = np.searchsorted(requests.ended, times)
        good = np.searchsorted(requests.ended[requests.took <= THRESHOLD], times)
        unknown = np.full(len(times), np.nan)
        true = Shown(ended.astype(float), good.astype(float), unknown)
        return {"true": true, "estimated": _decomposed(requests, times)}

    return shown


def _decomposed(requests: Requests, times: Floats) -> Shown:
    """Settle every second and estimate every five, as the exporter does at leisure."""
    polls = polled(requests, READING)
    estimator = Decomposition()
    count, within = 0.0, 0.0
    rows: list[tuple[float, float, float]] = []
    pending, settle, fit = 0, 2.0, 2.0
    for number, end in enumerate(polls.ends):
        while len(rows) < len(times) and times[len(rows)] < end:
            error = estimator.errors[0] if estimator.is_estimated and estimator.errors else np.nan
            rows.append((count, within, error))
        estimator.add(
            Interval(
                end,
                polls.requests[number],
                polls.sums[number],
                polls.executions[number],
                READING,
                waited=polls.waits[number],
            )
        )
        pending += 1
        if end >= fit:
            estimator.fit()
            estimator.update_errors((THRESHOLD,))
            fit = end + 5.0
        if end >= settle:
            counts = polls.requests[number + 1 - pending : number + 1]
            if estimator.is_estimated:
                shares = estimator.shares(pending, (THRESHOLD,))[:, 0]
            else:
                sums = polls.sums[number + 1 - pending : number + 1]
                shares = (sums / counts <= THRESHOLD).astype(float)
            within += float(counts @ shares)
            count += float(counts.sum())
            pending, settle = 0, end + 1.0
    rows += [rows[-1]] * (len(times) - len(rows))
    return Shown(*np.array(rows).T)


def made(
    shares: Sequence[tuple[float, float]], error: float, off: float = 0.0
) -> Callable[[float, float], dict[str, Shown]]:
    """Shares of slow requests for so many minutes each; the estimate of a share above 1 % is too high by `off`."""

    def shown(seconds: float, scrape: float) -> dict[str, Shown]:
        steps = round(seconds / scrape) + 1
        slow = np.concatenate([np.full(round(minutes * 60 / scrape), share) for minutes, share in shares])[
            :steps
        ]
        slow = np.append(slow, np.full(steps - len(slow), slow[-1]))
        count: Floats = 1000 * scrape / 60 * np.arange(steps)

        def within(seen: Floats) -> Floats:
            good: Floats = count - np.cumsum(1000 * scrape / 60 * seen) + 1000 * scrape / 60 * seen[0]
            return good

        estimated = np.where(slow > 0.01, slow + off, slow)
        return {
            "true": Shown(count, within(slow), np.full(steps, np.nan)),
            "estimated": Shown(count, within(estimated), np.full(steps, error)),
        }

    return shown


def _tails(*parts: tuple[float, float], rate: float = 50) -> Callable[[np.random.Generator, float], Requests]:
    """5 ms, and 300 ms for shares that change: (minute from which on, share)."""

    def make(rng: np.random.Generator, seconds: float) -> Requests:
        arrivals = poisson(rng, rate, seconds)
        took = np.empty(len(arrivals))
        for start, share in parts:
            later = arrivals >= 60 * start
            took[later] = mixture(rng, share)(int(later.sum()))
        return independent(arrivals, took)

    return make


def _queue(rng: np.random.Generator, seconds: float) -> Requests:
    """One server that needs 10 ms: 50 requests a second, and 110 from the eighth to the twelfth minute."""
    more = 480 + poisson(rng, 60, 240)
    arrivals = np.sort(np.concatenate([poisson(rng, 50, seconds), more]))
    return queued(arrivals, np.full(len(arrivals), 0.01), 1)


SIMULATED = (
    Scenario(
        "from 0.5 % to 20 % slow, back after 8 min",
        "step",
        "page",
        8,
        24,
        simulated(_tails((0, 0.005), (8, 0.2), (16, 0.005))),
    ),
    Scenario(
        "1 % slow, all the time; target 95 %", "healthy", "nothing", 0, 24, simulated(_tails((0, 0.01)))
    ),
    Scenario("a queue builds up for 4 min and ends", "queue", "page", 8, 24, simulated(_queue)),
    Scenario(
        "from 0.5 % to 5 % slow: a page needs 6 %",
        "below",
        "ticket",
        8,
        24,
        simulated(_tails((0, 0.005), (8, 0.05))),
    ),
)
"""In a time scale of 1:10, so that 24 minutes are four hours; 50 requests a second, a reading every 50 ms."""
MADE = (
    Scenario(
        "5.8 % slow for 10 h, estimated as 6.5 %, +-1 point",
        "within",
        "ticket",
        60,
        660,
        made([(60, 0.001), (600, 0.058)], 0.01, 0.007),
    ),
    Scenario(
        "9 % slow for 10 h, +-1 point", "beyond", "page", 60, 660, made([(60, 0.001), (600, 0.09)], 0.01)
    ),
    Scenario(
        "all slow for 30 min, +-1 point",
        "all",
        "page",
        60,
        660,
        made([(60, 0.001), (30, 1.0), (570, 0.001)], 0.01),
    ),
)
"""In real time, 1,000 requests a minute; rules are evaluated every two minutes."""


@dataclass(frozen=True)
class Reaction:
    """Minutes after the start to the first page and the first ticket; None where there is none."""

    page: float | None
    ticket: float | None

    @property
    def kind(self) -> str:
        return "page" if self.page is not None else "ticket" if self.ticket is not None else "nothing"


@cache
def reactions(scenarios: tuple[Scenario, ...], scale: float) -> dict[tuple[str, str], Reaction]:
    """Play scenarios of one length; by model and kind. Minutes are nominal: as long as without a time scale."""
    scrape = 5.0 if scale < 1 else 60.0
    evaluation = 5.0 if scale < 1 else 120.0
    seconds = 60 * scenarios[0].minutes
    options = Options(time_scale=scale, scrape_interval_seconds=scrape)
    [rules] = [
        artifact.text for artifact in artifacts([OBJECTIVE], options) if artifact.name == "slo-latency.yml"
    ]
    series = {}
    for scenario in scenarios:
        for kind, shown in scenario.shown(seconds, scrape).items():
            series.update(shown.series(f"{scenario.model}_{kind}"))
    firing = f'ALERTS{{alertstate="firing", alertname="{BURN_ALERTS["latency"]}", severity="%s"}}'
    first = f"min by (model) (min_over_time(timestamp({firing})[{seconds:.0f}s:{evaluation:.0f}s])) / 60"
    asked = [(first % severity, seconds) for severity in ("critical", "warning")]
    with tempfile.TemporaryDirectory() as folder:
        answers = evaluated(
            promtools()[-1],
            Path(folder),
            alerting_rule_file(rules),
            series,
            asked,
            interval=scrape,
            evaluation=evaluation,
        )
    pages, tickets = ({labels["model"]: value for labels, value in answer} for answer in answers)

    def after(starts: dict[str, float], model: str, began: float) -> float | None:
        return None if model not in starts else (starts[model] - began) / scale

    return {
        (scenario.model, kind): Reaction(
            *(after(starts, f"{scenario.model}_{kind}", scenario.began) for starts in (pages, tickets))
        )
        for scenario in scenarios
        for kind in KINDS
    }


SECTION = """
## Estimated latencies

`tests/slo/burn/test_scenarios_of_estimates.py` runs these scenarios with promtool, for one objective (99 % of
requests within 50 ms). In the upper rows, simulated requests go through the exporter's estimator, which states
its errors, in a time scale of 1:10 (a minute of the table is six seconds of requests). The lower rows are
invented shares and errors, in real time. Each scenario runs twice: with the shares of an exact source, and with
the estimated shares. The minutes are from the start to the first page and the first ticket. Windows contain only
the time since the start, so tickets fire early.

"""


def section() -> str:
    """Return the part of docs/slo-proof.md."""
    lines = ["| scenario | expected | exact source | estimated |", "|---|---|---|---|"]
    lines += [
        line for scenarios, scale in ((SIMULATED, 0.1), (MADE, 1.0)) for line in _rows(scenarios, scale)
    ]
    return SECTION + "\n".join(lines) + "\n"


def _rows(scenarios: tuple[Scenario, ...], scale: float) -> Iterator[str]:
    reacted = reactions(scenarios, scale)
    for scenario in scenarios:
        cells = [_cell(reacted[scenario.model, kind]) for kind in KINDS]
        yield f"| {scenario.name} | {scenario.expected} | {cells[0]} | {cells[1]} |"


def _cell(reaction: Reaction) -> str:
    parts = [
        f"{name} +{minutes:.0f}"
        for name, minutes in (("page", reaction.page), ("ticket", reaction.ticket))
        if minutes is not None
    ]
    return ", ".join(parts) or "quiet"
