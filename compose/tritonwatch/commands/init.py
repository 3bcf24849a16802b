"""`tritonwatch init`: propose objectives for the models of a running Triton."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from triton_exporter.app.features import triton_client
from triton_exporter.app.settings import TritonAccess
from triton_exporter.catalogue import Metric, state, triton
from triton_exporter.common.options import Url, adder
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.exposition.parse import Exposition, parse
from triton_exporter.http.client import FetchError
from triton_exporter.snapshot import ModelConfig, Snapshot, what_to_check
from triton_exporter.triton.poll import ApiPoller
from triton_slo.indicators.errors import CANCELED
from triton_slo.objective.propose import MeasurementSource, Timing, observed_models, propose
from triton_slo.prometheus import Prometheus
from tritonwatch import access, output
from tritonwatch.parser import declare
from tritonwatch.project import FILE, PrometheusAccess

EXAMPLE = "tritonwatch init --triton http://127.0.0.1:8000 --prometheus http://127.0.0.1:9090"
OPTIONS = PrometheusAccess
EXIT_CODES = {0: "written", 1: "Triton or Prometheus did not respond; nothing was written"}

_HISTORY = "7d"
"""Range of the latencies that are read from Prometheus."""
_MAX_POLLS = 100
_MICROSECONDS = 1e6


class _Settings(TritonAccess):
    section = "exporter"

    triton: Url
    """URL of Triton's HTTP API, such as http://127.0.0.1:8000"""


PROJECT = """\
# What every verb of tritonwatch in this folder reads (docs/start.md); an option on the command line wins.
prometheus: {prometheus}
# alertmanager: http://127.0.0.1:9093
# grafana: {{url: http://127.0.0.1:3000, token_file: grafana.token}}
bridge: {{url: http://127.0.0.1:9096, data: bridge}} # also: slack_token_file, channel, ...
# receivers: {{page_to: [pagerduty:///run/secrets/pagerduty]}}
tritons: # where an exporter is scraped = its Triton
- 127.0.0.1:9401={triton}
objectives: {objectives}
out: generated
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add = adder(parser.add_argument)
    declare(parser, _Settings, _Settings.options().keys() - {"timeout"})
    add(
        "--out FILE",
        "file to write, or - for standard output (default: objectives/proposed.yaml); an existing file is never "
        "overwritten",
        default="objectives/proposed.yaml",
    )
    declare(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Write the proposal, and a project file where there is none."""
    settings = _Settings.read(vars(args), os.environ)
    reason = "already exists and is not overwritten"
    exists = ProblemsError(Problem(f"--out {args.out}", reason, "choose another file"))
    out = Path(args.out)
    if args.out != "-" and out.exists():
        raise exists
    text = _proposal(settings, args)
    if args.out == "-":
        print(text, end="")
        return 0
    try:
        output.write_file(out, text)
    except FileExistsError:  # another process created it meanwhile
        raise exists from None
    except OSError as error:
        raise ProblemsError(output.fault(out, error)) from error
    written, check = str(out), f"tritonwatch check {out}"
    # A folder of objectives has no other files, so that the one for the project is never among them.
    if not out.is_absolute() and out.parent != Path() and not (args.project_file.given or FILE.exists()):
        address = args.prometheus or "http://127.0.0.1:9090"
        project = PROJECT.format(prometheus=address, triton=settings.triton, objectives=out.parent)
        output.write_file(FILE, project)
        written, check = f"{out} and {FILE}", "tritonwatch check"
    print(f"wrote {written}; review, then run: {check}")
    return 0


def _proposal(settings: TritonAccess, args: argparse.Namespace) -> str:
    poll = _poll(settings)
    if not poll.snapshot.index:
        place, fix = f"Triton at {settings.triton}", "load a model, then run init again"
        raise ProblemsError(Problem(place, "lists no models", fix))
    measured = _measured(settings)
    origin = measured.origin
    if args.prometheus:
        with access.connect(args) as prometheus:
            _add_percentiles(measured.requests, prometheus, state.REQUEST_DURATION)
            _add_percentiles(measured.queues, prometheus, state.QUEUE_DURATION)
        origin = f"the histograms of the last {_HISTORY} in Prometheus, else {origin}"
    for note in measured.notes:
        print(printable(f"tritonwatch init: {note}"), file=sys.stderr)
    models = observed_models(
        poll.snapshot.index, poll.configs, measured.requests, measured.queues, measured.failed
    )
    return propose(models, MeasurementSource(poll.snapshot.triton_version, origin, measured.notes))


class _Poll(NamedTuple):
    """What Triton lists, and the configurations of its models by model name."""

    snapshot: Snapshot
    configs: Mapping[str, ModelConfig]


def _poll(settings: TritonAccess) -> _Poll:
    url = settings.triton
    client = triton_client(settings, url)
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
        raise ProblemsError(Problem(url, reason, "give --triton the URL of Triton's HTTP API"))
    if snapshot.api_failure:
        reason = snapshot.api_failure
        raise ProblemsError(Problem(f"Triton at {url}", f"does not answer ({reason})", what_to_check(reason)))
    if snapshot.index is None:
        reason = f"does not list its models ({failures[-1] if failures else 'no reason'})"
        raise ProblemsError(Problem(f"Triton at {url}", reason))
    return _Poll(snapshot, {key.model: config for key, config in snapshot.configs.items()})


@dataclass(frozen=True, slots=True)
class _Measured:
    """Measured times and failed requests by model; `origin` is their source, `notes` are failed readings."""

    requests: dict[str, Timing] = field(default_factory=dict)
    queues: dict[str, Timing] = field(default_factory=dict)
    failed: Mapping[str, float] = field(default_factory=dict)
    origin: str = "no measurements"
    notes: tuple[str, ...] = ()


def _measured(settings: TritonAccess) -> _Measured:
    """Return means and sums by model since Triton's start."""
    url = settings.metrics_url
    client = triton_client(settings, url)
    try:
        answer = client.get("")
    except FetchError as error:
        return _Measured(
            notes=(f"cannot read Triton's metrics at {url}: {error}; give their address as --triton-metrics",)
        )
    finally:
        client.close()
    body = parse(answer.body)
    if str(triton.REQUEST_SUCCESS) not in body.families:
        return _Measured(
            notes=(f"{url} does not return Triton's metrics; check that --triton-metrics ends in /metrics",)
        )
    counts = _sum_by_model(body, triton.REQUEST_SUCCESS)
    return _Measured(
        _means(counts, _sum_by_model(body, triton.REQUEST_DURATION_US)),
        _means(counts, _sum_by_model(body, triton.QUEUE_DURATION_US)),
        _sum_by_model(body, triton.REQUEST_FAILURE),
        "means since Triton's start, which hide the tail (with --prometheus, percentiles are used)",
    )


def _sum_by_model(body: Exposition, metric: Metric) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    family = body.families.get(str(metric))
    for series, value in family.samples() if family else ():
        if series.labels.get("reason") == CANCELED:
            continue  # not a failure of the server
        sums[series.labels.get("model", "")] += value
    return sums


def _means(counts: Mapping[str, float], sums: Mapping[str, float]) -> dict[str, Timing]:
    return {
        model: Timing(count, sums.get(model, 0.0) / count / _MICROSECONDS)
        for model, count in counts.items()
        if count > 0
    }


def _add_percentiles(timings: dict[str, Timing], prometheus: Prometheus, histogram: Metric) -> None:
    rates = f"sum by (model, le) (rate({histogram.bucket}[{_HISTORY}]))"
    for sample in prometheus.instant(f"histogram_quantile(0.99, {rates})"):
        model = sample.labels.get("model", "")
        if 0 < sample.value < float("inf"):
            timings[model] = replace(timings.get(model, Timing()), p99=sample.value)
