"""`tritonwatch init`: propose objectives for the models of running Tritons."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from triton_exporter.app.features import triton_client
from triton_exporter.app.settings import TritonAccess
from triton_exporter.catalogue import Metric, state, triton
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.distribution.counters import version_of
from triton_exporter.exposition.parse import parse
from triton_exporter.exposition.scrape import fetch_metrics
from triton_exporter.snapshot import IndexEntry, ModelConfig, ModelVersion, Snapshot, what_to_check
from triton_exporter.triton.poll import ApiPoller
from triton_slo.indicators.errors import CANCELED
from triton_slo.objective.propose import MeasurementSource, Timing, observed_models, propose
from triton_slo.prometheus import Prometheus
from tritonwatch import access, output
from tritonwatch.project import EXPORTER_PORT, FILE, Files
from tritonwatch.usage import Tritons

_HISTORY = "7d"
"""Range of the latencies that are read from Prometheus."""
_MAX_POLLS = 100
_MICROSECONDS = 1e6
_Sums = defaultdict[str, defaultdict[str, float]]
"""What all Tritons counted since their start, by metric and model."""

PROJECT = """\
# What every verb of tritonwatch in this folder reads (docs/start.md); an option on the command line wins.
prometheus: {prometheus}
# alertmanager: http://127.0.0.1:9093
# grafana: {{url: http://127.0.0.1:3000, token_file: grafana.token}}
bridge: {{url: http://127.0.0.1:9096, data: bridge}} # also: slack_token_file, channel, ...
# receivers: {{page_to: [pagerduty:///run/secrets/pagerduty]}}
tritons: # where an exporter is scraped = its Triton; start each: tritonwatch exporter --triton URL --listen HOST:PORT
{tritons}
objectives: {objectives}
out: generated
"""


def run(args: argparse.Namespace) -> int:
    """Write the proposal, and a project file where there is none."""
    each_access = Tritons.read_each(args, TritonAccess)
    fix = "choose another file, or replace it with --force"
    objectives = Files.read({}, os.environ, args.project_file).objectives
    folder = objectives or args.project_file.path.parent / "objectives"
    out = Path(args.out) if args.out else folder / "proposed.yaml"
    exists = ProblemsError(Problem(f"--out {out}", "already exists", fix))
    if args.out != "-" and out.exists() and not args.force:
        raise exists
    text = _proposal(each_access, args)
    if args.out == "-":
        print(text, end="")
        return 0
    try:
        output.write_file(out, text, replace=args.force)
    except FileExistsError:  # another process created it meanwhile
        raise exists from None
    except OSError as error:
        raise ProblemsError(output.fault(out, error)) from error
    written, check = str(out), f"tritonwatch check {out}"
    # A folder of objectives has no other files, so that the one for the project is never among them.
    if not out.is_absolute() and out.parent != Path() and not args.project_file.path.exists():
        address = args.prometheus or "http://127.0.0.1:9090"
        targets = (
            f"- 127.0.0.1:{EXPORTER_PORT + n}={each.address}"
            + (f",{each.triton_metrics}" if each.triton and each.triton_metrics else "")
            for n, each in enumerate(each_access)
        )
        project = PROJECT.format(prometheus=address, tritons="\n".join(targets), objectives=out.parent)
        output.write_file(FILE, project)
        written, check = f"{out} and {FILE}", "tritonwatch check" + ("" if args.prometheus else " --offline")
    print(f"wrote {written}; review, then run: {check}")
    return 0


def _proposal(tritons: Sequence[TritonAccess], args: argparse.Namespace) -> str:
    index: list[IndexEntry] = []
    configs: dict[str, ModelConfig] = {}
    sums: _Sums = defaultdict(lambda: defaultdict(float))
    version = ""
    for settings in tritons:
        if settings.triton:
            snapshot = _snapshot(settings)
            version = snapshot.triton_version
            index += snapshot.index or ()
            configs |= {key.model: config for key, config in snapshot.configs.items()}
        seen = _count(settings, sums)
        if not settings.triton:
            index += (IndexEntry(*key) for key in seen)
    if not index:
        place = " and ".join(f"Triton at {settings.address}" for settings in tritons)
        raise ProblemsError(Problem(place, "lists no models", "load a model, then run init again"))
    requests, queues = _means(sums, triton.REQUEST_DURATION_US), _means(sums, triton.QUEUE_DURATION_US)
    origin = "means since Triton's start, which hide the tail (with --prometheus, percentiles are used)"
    if args.prometheus:
        try:
            with access.connect(args) as prometheus:
                _add_percentiles(requests, prometheus, state.REQUEST_DURATION)
                _add_percentiles(queues, prometheus, state.QUEUE_DURATION)
            origin = f"the histograms of the last {_HISTORY} in Prometheus, else {origin}"
        except ProblemsError as error:
            if "prometheus" in args.flags:
                raise
            # The project file may name a Prometheus that is not started yet: `init` writes one that it has not seen.
            print(
                f"tritonwatch init: {error.problems[0]}; the {origin.split(',')[0]} are used", file=sys.stderr
            )
    models = observed_models(index, configs, requests, queues, sums[str(triton.REQUEST_FAILURE)])
    has_api = any(settings.triton for settings in tritons)
    return propose(models, MeasurementSource(version, origin, has_api))


def _snapshot(settings: TritonAccess) -> Snapshot:
    """Return what a Triton lists, with the configurations of all its models."""
    address = settings.triton
    client = triton_client(settings, address)
    failures: list[str] = []
    poller = ApiPoller(client, time.time, lambda endpoint, reason: failures.append(f"{endpoint}: {reason}"))
    try:
        snapshot = poller.poll()
        # One poll asks for a bounded number of configurations, so that Triton gets no burst of requests.
        for _ in range(_MAX_POLLS):
            known = len(snapshot.configs)
            snapshot = poller.poll()
            if len(snapshot.configs) == known:
                break
    finally:
        client.close()
    if snapshot.api_failure == state.NOT_TRITON:
        reason = f"is not a Triton ({snapshot.api_failure_text})"
        raise ProblemsError(Problem(address, reason, "give --triton the URL of Triton's API"))
    if snapshot.api_failure:
        reason = snapshot.api_failure
        raise ProblemsError(
            Problem(f"Triton at {address}", f"does not answer ({reason})", what_to_check(reason))
        )
    if snapshot.index is None:
        reason = f"does not list its models ({failures[-1] if failures else 'no reason'})"
        raise ProblemsError(Problem(f"Triton at {address}", reason))
    return snapshot


def _count(settings: TritonAccess, sums: _Sums) -> Sequence[ModelVersion]:
    """Add what one Triton counted, and return its models. Raises ProblemsError if its counters cannot be read."""
    client = triton_client(settings, settings.metrics_url)
    try:
        reading = fetch_metrics(client, "", time.time)
    finally:
        client.close()
    if not reading.up:
        place, reason = f"Triton's metrics at {settings.metrics_url}", f"cannot be read ({reading.detail})"
        fix = "give their address as --triton-metrics; Triton needs --allow-metrics=true, its default"
        raise ProblemsError(Problem(place, reason, fix))
    families = parse(reading.body).families
    for family in families.values():
        for series, value in family.samples():
            if series.labels.get("reason") != CANCELED:  # not a failure of the server
                sums[series.name][series.labels.get("model", "")] += value
    counted = families.get(str(triton.REQUEST_SUCCESS))
    return sorted(set(filter(None, map(version_of, counted.series)))) if counted else ()


def _means(sums: _Sums, microseconds: Metric) -> dict[str, Timing]:
    """Return the mean time of a request by model."""
    return {
        model: Timing(requests, sums[str(microseconds)][model] / requests / _MICROSECONDS)
        for model, requests in sums[str(triton.REQUEST_SUCCESS)].items()
        if requests > 0
    }


def _add_percentiles(timings: dict[str, Timing], prometheus: Prometheus, histogram: Metric) -> None:
    rates = f"sum by (model, le) (rate({histogram.bucket}[{_HISTORY}]))"
    for name, quantile in (("p90", 0.9), ("p99", 0.99)):
        for sample in prometheus.instant(f"histogram_quantile({quantile}, {rates})"):
            model = sample.labels.get("model", "")
            if 0 < sample.value < float("inf"):
                timings[model] = replace(timings.get(model, Timing()), **{name: sample.value})
