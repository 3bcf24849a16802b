"""Test sources before Triton: each is a row of a table, and makes rules that are proven like all others."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from support import history
from support.tools import ROOT
from triton_exporter.catalogue.external import gateway
from triton_slo.indicators.gateways import GATEWAYS
from triton_slo.indicators.indicator import Scope
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from triton_slo.promql import Matchers
from tritonwatch.cli import main

PAGE = ROOT / "docs" / "gateways.md"


def blocks() -> list[str]:
    """All objectives that the page shows."""
    return re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def errors(source: str, **indicator: object) -> Objective:
    """Return an objective of errors at a source."""
    return Objective(name="e", target=0.99, indicator={"kind": "errors", "source": source, **indicator})


def failed(objective: Objective) -> str:
    """Return the counters of its failed requests."""
    return objective.indicator.measure(None, Scope(Matchers(), objective.group_by)).error


def test_the_page_shows_every_source_with_a_valid_example() -> None:
    """Each row of the table stands on the page with its series, and an example that `check` accepts."""
    text = PAGE.read_text(encoding="utf-8")
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    reading = read([("gateways.md", block) for block in blocks()])

    assert () == reading.problems
    used = {objective.indicator.source for objective in reading.objectives}  # type: ignore[union-attr]
    assert GATEWAYS.keys() == used
    for name, row in GATEWAYS.items():
        shown = rows[name]
        assert f"`{row.requests or row.durations}`" in shown
        assert f"`{row.durations}`" in shown
        assert all(f"`{label}`" in shown for label in (row.http, row.grpc, row.model.label) if label)


def test_a_group_at_a_gateway_is_a_model() -> None:
    """No proxy knows a version; a group by version would never have a series."""
    assert ("model",) == errors("envoy").group_by
    assert ("model", "version") == errors("triton").group_by


@pytest.mark.parametrize(
    ("changes", "printed"),
    [
        ({"indicator": {"kind": "errors", "source": "traefik"}}, "'traefik' is none of triton, envoy"),
        ({"indicator": {"kind": "errors", "selector": 'a="b"'}}, "selector needs a source before Triton"),
        (
            {"indicator": {"kind": "errors", "source": "envoy", "selector": "a=b"}},
            "is not a list of matchers",
        ),
        ({"indicator": {"kind": "errors", "source": "envoy", "codes": ["bad"]}}, "neither an HTTP status"),
        (
            {"indicator": {"kind": "errors", "source": "grpc-client", "codes": [429]}},
            "codes has no status of",
        ),
        ({"indicator": {"kind": "errors", "source": "envoy", "reasons": ["OTHER"]}}, "reasons are Triton's"),
        (
            {
                "indicator": {
                    "kind": "errors",
                    "source": "envoy",
                    "model_from": {"label": "a", "pattern": "b.*"},
                }
            },
            "marks the model's name by one (group)",
        ),
        ({"group_by": ["model", "version"]}, "knows no versions of a model"),
        ({"versions": ["1"]}, "knows no versions of a model"),
    ],
)
def test_what_a_source_cannot_give_is_refused(changes: dict[str, object], printed: str) -> None:
    """Silently nothing would be measured."""
    fields = {"name": "e", "target": "99%", "indicator": {"kind": "errors", "source": "envoy"}, **changes}
    problems = [str(problem) for problem in read([("o.yaml", yaml.safe_dump(fields))]).problems]

    assert any(printed in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("source", "codes", "printed"),
    [
        ("envoy", ["5xx", 429], 'envoy_response_code=~"5..|429"'),
        ("istio", ["UNAVAILABLE"], 'grpc_response_status=~"UNAVAILABLE|Unavailable|14"'),
        ("grpc-server", ["CANCELLED"], 'grpc_code=~"CANCELLED|Cancelled|Canceled|1"'),
        ("otel-http-client", ["503"], 'http_response_status_code="", error_type!=""'),
    ],
)
def test_codes_are_written_as_the_source_does(source: str, codes: list[object], printed: str) -> None:
    """Number, Go's name or upper case: one list fits all."""
    assert printed in failed(errors(source, codes=codes))


def test_a_selector_replaces_the_sources_own_matcher() -> None:
    """Both ends of a request report it in Istio: one of them is read, and the user may choose which."""
    assert 'reporter="source"' in failed(errors("istio"))
    chosen = failed(errors("istio", selector='reporter="destination", namespace="models"'))
    assert 'reporter="destination", namespace="models"' in chosen
    assert 'reporter="source"' not in chosen


@pytest.mark.real
def test_check_names_what_a_source_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No series, none that the selector chooses, no label with the name, no bucket: each with what settles it."""
    indicators = {
        "absent": {"kind": "errors", "source": "envoy"},
        "unchosen": {"kind": "errors", "source": "istio"},
        "nameless": {"kind": "errors", "source": "ingress-nginx"},
        "bucketless": {"kind": "latency", "source": "otel-http-server", "threshold": "300ms"},
        "sound": {"kind": "errors", "source": "grpc-client"},
    }
    file = tmp_path / "o.yaml"
    objectives = [
        {"name": name, "target": "99%", "indicator": indicator, "models": ["embedder"]}
        for name, indicator in indicators.items()
        if name != "nameless"
    ]
    objectives.append({"name": "nameless", "target": "99%", "indicator": indicators["nameless"]})
    file.write_text(yaml.safe_dump({"objectives": objectives}))
    assert 0 == main(["check", str(file)])
    noted = capsys.readouterr().err
    now = time.time()
    always = history.counter(now - 600, now, 15, 0.0)
    ok = {"model": "embedder", "http_response_status_code": "200"}
    duration = gateway.HTTP_SERVER_DURATION
    series = [
        (str(gateway.ISTIO_REQUESTS), {"reporter": "destination", "response_code": "200"}, always),
        (str(gateway.NGINX_REQUESTS), {"path": "/", "status": "200"}, always),
        (duration.count, ok, always),
        (duration.bucket, {**ok, "le": "0.25"}, always),
        (str(gateway.GRPC_CLIENT_REQUESTS), {"model": "embedder", "grpc_code": "OK"}, always),
    ]
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        assert 1 == main(["check", str(file), "--prometheus", url])
    printed = capsys.readouterr().err

    assert "absent: it needs series envoy_cluster_upstream_rq (fix: route each model to a cluster" in noted
    for expected in (
        "absent: indicator: Prometheus has no series envoy_cluster_upstream_rq (fix: route each model",
        'unchosen: indicator: Prometheus has no series istio_requests_total with reporter="source" (fix:',
        "nameless: indicator: Prometheus has no label path on nginx_ingress_controller_requests that matches /v2/",
        "bucketless: indicator: embedder: its histogram has no bucket bound at the threshold",
        "bucketless: threshold 300ms is between the default buckets of otel-http-server (fix: use 250ms, 500ms,",
    ):
        assert expected in printed, printed
    assert "sound:" not in printed
