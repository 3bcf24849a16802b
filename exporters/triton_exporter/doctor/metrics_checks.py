"""Check what Triton's metrics show of latencies."""

from __future__ import annotations

import math
from collections.abc import Iterator

from triton_exporter.catalogue import Metric, triton
from triton_exporter.doctor.finding import Finding, TritonFacts, first_names
from triton_exporter.doctor.server_checks import TRUST
from triton_exporter.exposition.exposition_values import Exposition
from triton_exporter.snapshot import what_to_check

_DEFAULT_BOUNDS = frozenset({"100", "500", "2000", "5000"})
_BUCKETS = (
    "model_metrics { metric_control: [ {\n"
    f'  metric_identifier: {{ family: "{triton.FIRST_RESPONSE_MS}" }}\n'
    "  histogram_options: { buckets: [ 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000 ] }\n"
    "} ] }"
)


def check_metrics(facts: TritonFacts) -> Iterator[Finding]:
    """Report metrics that do not answer, are empty or have broken lines."""
    if facts.metrics_failure:
        remedy = (
            "check --triton-metrics; the server needs --allow-metrics=true (the default) and --metrics-port"
        )
        if facts.metrics_failure.startswith("tls:"):
            remedy = TRUST
        elif facts.metrics_failure.startswith(("HTTP 4", "HTTP 5")) and facts.metrics_failure != "HTTP 404":
            remedy = what_to_check("http_error")
        where = f"{facts.metrics_url}: {facts.metrics_failure}"
        yield Finding("problem", "Triton's metrics do not answer", where, remedy)
    elif facts.first is not None and not facts.first.families:
        yield Finding(
            "problem",
            "The metrics page is empty",
            f"{facts.metrics_url} answers with nothing: Triton's metrics port answers 200 to every path.",
            "--triton-metrics must end in /metrics",
        )
    if facts.first is not None and facts.first.faults:
        kinds = ", ".join(f"{count} {kind}" for kind, count in facts.first.faults.items())
        yield Finding("problem", "Triton's metrics hold broken lines", f"lines by kind: {kinds}")


def check_counters(facts: TritonFacts) -> Iterator[Finding]:
    """Report latency counters that are off."""
    if facts.first is None or facts.snapshot.statistics is None:
        return
    served = sum(statistics.success for statistics in facts.snapshot.statistics)
    # The later reading: it must include every request that the statistics counted before.
    shown = _total(facts.second or facts.first, triton.REQUEST_SUCCESS)
    if served > 0 and facts.has(triton.REQUEST_SUCCESS) and shown == 0:
        yield Finding(
            "problem",
            "Latency counters are off",
            f"statistics know {served} requests, the metrics show 0: no objective can be measured.",
            "--metrics-config counter_latencies=true",
            "none that was ever measured; it is the default",
        )


def check_missing_histograms(facts: TritonFacts) -> Iterator[Finding]:
    """Report histograms that are off, or that this Triton does not have."""
    if facts.has(triton.FIRST_RESPONSE_MS):
        return
    if facts.release >= (2, 65):
        yield Finding(
            "advice",
            "Latency histograms are off",
            "without them the exporter estimates distributions from sums of several requests, and objectives "
            "of the kind first_response have no data.",
            "--metrics-config histogram_latencies=true, and buckets in each config.pbtxt "
            "(see the next lines)\n" + _BUCKETS,
            "7 series a model or more",
        )
    elif any(config.decoupled for config in facts.snapshot.configs.values()) and facts.release >= (2, 52):
        yield Finding(
            "advice",
            "Time to first response of decoupled models is not shown",
            "this version can measure it; until then objectives of the kind first_response have no data.",
            "--metrics-config histogram_latencies=true",
            "7 series a decoupled model",
        )
    elif facts.release > (0, 0):
        yield Finding(
            "advice",
            "Time to first response cannot be measured",
            f"Triton {facts.snapshot.triton_version} does not export it of these models: objectives of the "
            "kind first_response have no data.",
            "Triton 26.01 (2.65) or later, or 24.11 (2.52) or later for decoupled models, with "
            "--metrics-config histogram_latencies=true",
            "an upgrade",
        )


def check_default_buckets(facts: TritonFacts) -> Iterator[Finding]:
    """Report models whose histograms have the bounds that fit few objectives."""
    if facts.first is None or not facts.has(triton.FIRST_RESPONSE_MS):
        return
    family = facts.first.families[triton.FIRST_RESPONSE_MS.name]
    bounds: dict[str, set[str]] = {}
    for series in family.series:
        if series.labels.get("le", "+Inf") != "+Inf":
            bounds.setdefault(series.labels.get("model", ""), set()).add(
                series.labels["le"].removesuffix(".0")
            )
    useless = sorted(model for model, les in bounds.items() if les == _DEFAULT_BOUNDS)
    if useless:
        yield Finding(
            "advice",
            "Histogram buckets are Triton's defaults",
            f"buckets from 100 ms to 5 s do not fit most objectives; models: {first_names(useless)}.",
            "in config.pbtxt (takes effect with an unload and load):\n" + _BUCKETS,
            "one series a bucket and model",
            tuple(useless),
        )


def check_summaries(facts: TritonFacts) -> Iterator[Finding]:
    """Advise against summaries."""
    if facts.has(triton.REQUEST_SUMMARY_US):
        yield Finding(
            "advice",
            "Summaries are on",
            "their quantiles cannot be added up over servers, and up to a third of the throughput has been "
            "reported lost to them.",
            "--metrics-config summary_latencies=false, unless the exporter has no histogram to read instead",
            "the exporter then estimates distributions from sums of several requests",
        )


def _total(exposition: Exposition, metric: Metric) -> float:
    family = exposition.families.get(metric.name)
    return math.fsum(family.values) if family is not None else 0.0
