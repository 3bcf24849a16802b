"""Test a real nginx before a real Triton: what ingress-nginx would expose, against the clients' counts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import requests
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from slo.answering import ROUND, SLOW, post, write_models
from slo.nginx import NGINX, nginx
from support import history
from support.loopback import free_ports
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue.external import gateway
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not NGINX.exists(), reason="no nginx from Debian's package; try: make tools-next"),
]
ROUNDS = 6
ERRORS = Objective(name="errors", target=0.99, indicator={"kind": "errors", "source": "ingress-nginx"})
LATENCY = Objective(
    name="latency",
    target=0.99,
    indicator={"kind": "latency", "source": "ingress-nginx", "threshold": "250ms", "model_from": "ingress"},
)


class IngressMetrics(Collector):
    """The series of ingress-nginx, whose controller receives the same about each request; from nginx' own log."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def collect(self) -> Iterator[Metric]:
        """Count the log again: status by rule, and the time of each request."""
        lines = [json.loads(line) for line in _lines(self._log)]
        labels = ("path", "ingress", "status")
        requested = CounterMetricFamily("nginx", "Requests.", labels=labels)
        timed = HistogramMetricFamily(str(gateway.NGINX_DURATION), "Times.", labels=labels)
        for own, count in Counter(tuple(line[label] for label in labels) for line in lines).items():
            requested.add_sample(str(gateway.NGINX_REQUESTS), dict(zip(labels, own, strict=True)), count)
            times = [float(line["time"]) for line in lines if own == tuple(line[label] for label in labels)]
            edges = (0.05, 0.25, 1.0, float("inf"))
            buckets = [(f"{edge:g}", sum(seconds <= edge for seconds in times)) for edge in edges]
            timed.add_metric(own, [(le.replace("inf", "+Inf"), n) for le, n in buckets], sum(times))
        yield requested
        yield timed


def test_rules_on_ingress_series_give_what_the_clients_counted(tmp_path: Path) -> None:
    """Errors that Triton hides, 502 and 504 fail; 400 and 499 do not; the model is in the path or the Ingress."""
    write_models(tmp_path / "models", "mixed", "stuck")
    (metrics,) = free_ports(1)
    made = artifacts([ERRORS, LATENCY], Options(scrape_interval_seconds=1))
    rules = {artifact.name: artifact.text for artifact in made if artifact.part == "rules"}
    registry = CollectorRegistry()
    clients: Counter[str] = Counter()
    with live_triton(tmp_path / "models", tmp_path) as triton, nginx(triton.http_url, tmp_path) as (url, log):
        registry.register(IngressMetrics(log))
        server, thread = start_http_server(metrics, addr="127.0.0.1", registry=registry)
        try:
            with history.serve("", tmp_path / "p", rules=rules, scrape=f"127.0.0.1:{metrics}") as prometheus:
                for turn in range(ROUNDS):
                    for value in ROUND:
                        clients[f"mixed {post(url, 'mixed', value)}"] += 1
                    clients[f"gone {post(url, 'gone', 0.0)}"] += 1
                    clients[f"stuck {post(url, 'stuck', 12.0 if turn % 2 else 0.0)}"] += 1
                    with pytest.raises(requests.Timeout):
                        post(url, "mixed", SLOW, timeout=0.1)
                    time.sleep(2.5 if turn < 2 else 0)
                _wait_scraped(prometheus)
                lines = [json.loads(line) for line in _lines(log)]
                failed = {name: _ratio(prometheus, "errors", name) for name in ("mixed", "gone", "stuck")}
                slow = _ratio(prometheus, "latency", "mixed")
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    logged = Counter(f"{line['ingress']} {line['status']}" for line in lines)
    waited = sum(
        float(line["time"]) > 0.25 for line in lines if ("mixed", "200") == (line["ingress"], line["status"])
    )
    assert clients == Counter({key: count for key, count in logged.items() if not key.endswith(" 499")})
    assert ROUNDS == logged["mixed 499"]
    assert {"502", "504"} <= {key.split()[1] for key in clients}
    for model, tolerance in {"mixed": 0.02, "gone": 0.001, "stuck": 0.15}.items():
        assert failed[model] == pytest.approx(_share_of_5xx(clients, model), abs=tolerance)
    assert ROUNDS * 2 == clients["mixed 500"]
    # On a busy machine others than the slow request take 250 ms, too.
    assert slow == pytest.approx(waited / clients["mixed 200"], abs=0.02)
    assert ROUNDS <= waited


def _share_of_5xx(clients: Counter[str], model: str) -> float:
    counted = {key: count for key, count in clients.items() if key.startswith(f"{model} ")}
    failed = sum(count for key, count in counted.items() if key.split()[1].startswith("5"))
    return failed / sum(counted.values())


def _wait_scraped(prometheus: str) -> None:
    """Wait for two scrapes after now, and for rules that are evaluated afterwards."""
    with Prometheus(Access(prometheus)) as client:
        for series in ("up", "slo:sli_error:ratio_rate5m"):
            after = time.time() + 1.5
            eventually(partial(client.instant, f"min(timestamp({series})) > {after}"), f"no {series}")


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def _ratio(prometheus: str, slo: str, model: str) -> float:
    query = f'slo:sli_error:ratio_rate5m{{slo="{slo}", model="{model}"}}'
    with Prometheus(Access(prometheus)) as client:
        (sample,) = eventually(lambda: client.instant(query), f"no ratio of {slo} {model}")
    return sample.value
