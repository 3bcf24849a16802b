"""Sources of an indicator: the caveat of each, and what settles it.

A source without a caveat saw every event, or an unbiased sample of them. `slo:sli_source:info` records which source
serves which group; status, gate, boards and alerts read the caveats here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from triton_exporter.catalogue.state import DISTRIBUTION_SOURCES

COUNTERS = "counters"
BACKEND_COUNTERS = "backend_counters"
"""Counters in which the model's backend decides whether an error response is a failure."""
UNTRACED_QUEUE = "untraced_queue"
"""A queue with a limit that no traces are received of: what it rejects when it is full is counted nowhere."""
HIDING = frozenset({BACKEND_COUNTERS, UNTRACED_QUEUE})
"""Sources that miss failed requests altogether: no stated error bounds how many."""
PROBER = "prober"
CLIENTS = "clients"
SEES_FAILURES = frozenset({PROBER, CLIENTS})
"""Sources that see a failed request whatever the backend reports about it."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """A reason why a number may be too good: its word in `status`, the events missed, and the remedy.

    `short` is for what is printed at every run; `check` and the web page have all of it.
    """

    word: str
    short: str
    meaning: str
    settled_by: str


_EVIDENCE_OF_FAILURES = (
    "an objective that counts such failures: `indicator: probe` with the exporter's --probe, or "
    "`indicator: errors` with a gateway as `source` (docs/objectives.md#errors-from-a-gateway)"
)
_TRACES = (
    "let Triton trace some requests (exporter --otlp-listen; `tritonwatch doctor` gives the --trace-config flags "
    "and a rate), or for latency use Triton's own histogram "
    "(26.01 or later, --metrics-config histogram_latencies=true)"
)
CAVEATS: Mapping[str, Caveat] = {
    "sampled_mean": Caveat(
        "estimated",
        "a few slow requests may be missed",
        "all requests between two samples count with their mean duration, so a few slow requests are missed",
        _TRACES,
    ),
    "decomposed": Caveat(
        "estimated",
        "computed from sums over several requests",
        "the durations are estimated from sums over several requests, so the share within the threshold "
        "may be wrong by some percentage points; triton_model_distribution_error_ratio is this error",
        _TRACES,
    ),
    "summary": Caveat(
        "estimated",
        "interpolated from quantiles",
        "the share within the threshold is interpolated from quantiles, so it may be wrong by some "
        "percentage points",
        _TRACES,
    ),
    BACKEND_COUNTERS: Caveat(
        "failures may be hidden",
        "Triton counts error responses as successes; a probe or a gateway sees them",
        "if the backend answers a request with an error response (as Python models can), Triton counts "
        "the request as a success; a response cache answers repetitions of such a request, and they count "
        "as successes too",
        f"add {_EVIDENCE_OF_FAILURES}",
    ),
    UNTRACED_QUEUE: Caveat(
        "rejections may be hidden",
        "Triton does not count what a full queue rejects; traces or a probe show it",
        "Triton does not count requests that it rejects because the queue is full; only traces show them",
        "let Triton trace some requests (exporter --otlp-listen; `tritonwatch doctor` gives the --trace-config "
        f"flags and a rate), or add {_EVIDENCE_OF_FAILURES}",
    ),
}


def caveats_of(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the sources that cannot see everything: keys of `CAVEATS`."""
    return tuple(source for source in sources if source in CAVEATS)


def caveat_words(caveats: Iterable[str], error: str = "") -> str:
    """Return the words of caveats, each once and with the error where one is stated: `estimated, +-1.2 points`."""
    words = (CAVEATS[source].word + ("" if source in HIDING else error) for source in caveats)
    return ", ".join(dict.fromkeys(words))


EXACT_SOURCES = tuple(source for source in DISTRIBUTION_SOURCES if source not in CAVEATS)
"""Sources of the exporter's histograms that see the time of each request, or of a fair sample of them."""
ESTIMATING_SOURCES = tuple(source for source in DISTRIBUTION_SOURCES if source in CAVEATS)
"""Sources from which the exporter estimates its histograms."""
