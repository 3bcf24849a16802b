"""Test `tritonwatch convert` from OpenSLO v1."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from support.conversion import convert, converted
from support.tools import promtools
from triton_slo.objective import writing
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from tritonwatch.cli import main

SHOP = """\
apiVersion: openslo/v1
kind: SLO
metadata:
  name: shop
  labels: {team: payments}
spec:
  description: Orders are taken.
  service: checkout
  indicatorRef: orders
  timeWindow:
    - {duration: 4w, isRolling: true}
  budgetingMethod: Occurrences
  objectives:
    - {displayName: Usual, targetPercent: 99.9}
    - {displayName: Best, target: 0.9999}
---
apiVersion: openslo/v1
kind: SLI
metadata: {name: orders}
spec:
  ratioMetric:
    counter: true
    good:
      metricSource: {type: Prometheus, spec: {query: 'sum by (region) (orders_total{outcome="taken"})'}}
    total:
      metricSource: {type: Prometheus, spec: {query: sum by (region) (orders_total)}}
"""
THRESHOLD = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: heat}
spec:
  service: gpu
  indicator:
    metadata: {name: hot}
    spec:
      thresholdMetric:
        metricSource: {type: Prometheus, spec: {query: max by (gpu) (gpu_celsius)}}
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetingMethod: Timeslices
  objectives:
    - {op: lte, value: 83, target: 0.99, timeSliceTarget: 0.9, timeSliceWindow: 5m}
"""


def run(folder: Path, text: str, *options: str) -> int:
    """Exit code of a conversion from OpenSLO."""
    return convert("openslo", folder, text, *options)


def test_documents_that_refer_to_each_other_become_objectives(tmp_path: Path) -> None:
    """One SLO with two targets is two objectives, with the queries and the window that it names."""
    assert 0 == run(tmp_path, SHOP)

    objectives = converted(tmp_path)
    assert {"shop-usual": 0.999, "shop-best": 0.9999} == {
        name: objective.target for name, objective in objectives.items()
    }
    usual = objectives["shop-usual"]
    assert {
        "kind": "custom",
        "error": 'orders_total unless orders_total{outcome="taken"}',
        "total": "orders_total",
    } == usual.indicator.model_dump(exclude_none=True, exclude={"counts_failures"})
    assert (("region",), "28d") == (usual.group_by, usual.window.nominal)


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ({"counter": False, "bad": "b", "total": "t"}, "rules count events, and gauges have none"),
        ({"rawType": "success", "raw": "b"}, "rules count events, and a ratio has none"),
        ({"good": "b", "total": "t"}, "count the failed events instead"),
        ({"bad": "max(b)", "total": "t"}, "max is not a sum of events"),
    ],
)
def test_what_counts_no_events_is_left_out_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: dict[str, Any], reason: str
) -> None:
    """Gauges, precomputed ratios, and what cannot be told from a restart."""
    ratio = {
        key: {"metricSource": {"type": "Prometheus", "spec": {"query": value}}}
        if key in ("good", "bad", "total", "raw")
        else value
        for key, value in metric.items()
    }
    slo = yaml.safe_load(THRESHOLD)
    slo["spec"]["indicator"]["spec"] = {"ratioMetric": ratio}
    slo["spec"] |= {"budgetingMethod": "Occurrences", "objectives": [{"target": 0.99}]}

    assert 1 == run(tmp_path, yaml.safe_dump(slo))
    printed = capsys.readouterr().err
    assert reason in printed
    assert "the SLO is left out" in printed


def test_a_threshold_and_slices_of_time_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither counts events."""
    assert 1 == run(tmp_path, THRESHOLD)
    assert "slices of time are not counted" in capsys.readouterr().err


def test_a_rolling_month_has_thirty_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which a note says."""
    assert 0 == run(tmp_path, SHOP.replace("4w", "1M"))
    assert {"30d"} == {objective.window.nominal for objective in converted(tmp_path).values()}
    assert "a rolling 1M is 30d" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        (("4w", "1Y"), "in.yaml:11: spec.timeWindow[0].duration: a window has 7 to 90 whole days"),
        (
            ("  objectives:", "  alertPolicies: [{alertPolicyRef: fast}]\n  objectives:"),
            "the four tiers of the SRE",
        ),
        (("team: payments", "team: [a, b]"), "in.yaml:5: metadata.labels.team: a label has one value"),
        (("counter: true", "colour: blue"), "in.yaml:22: spec.ratioMetric.colour: not known, or of no use"),
        (
            (
                "kind: SLI\n",
                "kind: DataSource\nmetadata: {name: x}\nspec: {}\n---\napiVersion: openslo/v1\nkind: SLI\n",
            ),
            "no SLO refers to it",
        ),
        (
            ("targetPercent: 99.9", "target: 0.999, compositeWeight: 2"),
            "parts of a composite are not added up",
        ),
    ],
)
def test_what_is_lost_is_reported_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], printed: str
) -> None:
    """Every part of a document that is dropped is reported."""
    assert change[0] in SHOP
    assert 3 == run(tmp_path, SHOP.replace(*change, 1))

    assert printed in capsys.readouterr().err
    assert 2 == len(converted(tmp_path))


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        (("openslo/v1", "openslo/v1alpha"), "in.yaml:1: apiVersion: 'openslo/v1alpha' is not openslo/v1"),
        (("kind: SLO", "kind: Pod"), "in.yaml:2: kind: 'Pod' is not a kind of openslo/v1"),
        (("indicatorRef: orders", "indicatorRef: other"), "in.yaml:9: spec.indicatorRef: no SLI is named"),
        (("4w", "4 weeks"), "in.yaml:11: spec.timeWindow[0].duration: '4 weeks' is not a duration"),
        (("{displayName: Usual, targetPercent: 99.9}", "{}"), "needs target or targetPercent"),
        (("name: orders}\nspec", "name: orders}\ncepS"), "the required field spec is missing"),
        (("    good:", "    god:"), "a ratio needs total, and good or bad"),
        (("apiVersion", "slos: []\n_"), "in.yaml:1: this is not an OpenSLO document; use --from sloth"),
        (
            ("    - {displayName: Usual, targetPercent: 99.9}", "    - [1]"),
            "this should be a mapping, and is a list",
        ),
    ],
)
def test_bad_input_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], printed: str
) -> None:
    """Mistakes of the input have a place; nothing is written."""
    assert change[0] in SHOP
    assert 1 == run(tmp_path, SHOP.replace(*change, 1))

    assert printed in capsys.readouterr().err
    assert not (tmp_path / "objectives").exists()


@pytest.mark.real
@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_what_comes_out_passes_check_generate_and_promtool(tmp_path: Path, promtool: Path) -> None:
    """Converted objectives give rules that every promtool loads."""
    assert 3 == run(tmp_path, f"{SHOP}---\n{THRESHOLD}")

    folder, out = tmp_path / "objectives", tmp_path / "out"
    assert 0 == main(["check", str(folder)])
    assert 0 == main(["generate", "--objectives", str(folder), "--out", str(out)])
    rules = [out / "rules" / f"slo-{name}.yml" for name in ("shop-usual", "shop-best")]
    subprocess.run([promtool, "check", "rules", *rules], check=True, capture_output=True, timeout=60)


NAMES = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,12}[a-z0-9])?\Z")
TEXT = st.text(max_size=30) | st.sampled_from(
    ['"', "{{ .Value }}", "a\nb ", "\t", "\x85", "\u2028", "'", "# a: b", "~"]
)
LABELS = st.dictionaries(st.sampled_from(["team", "service", "_x", "a1"]), TEXT, max_size=3)
RATIO = st.sampled_from([0.5, 0.9, 0.99, 0.999, 0.9995, 1 / 3, 0.123456789012])
MODELS = st.just("all") | st.lists(TEXT.filter(bool), min_size=1, max_size=3) | st.just({"regex": "a.*"})
INDICATORS = st.sampled_from(
    [
        "readiness",
        "errors",
        {"kind": "errors", "reasons": ["OTHER"]},
        {"kind": "latency", "threshold": "250ms"},
        {"kind": "queue", "threshold": "1s", "source": "histogram"},
        {"kind": "first_response", "threshold": "2s", "engine": "vllm"},
        {"kind": "custom", "error": 'e{a="b"}', "total": "t"},
    ]
)
ALERTING = st.sampled_from(
    [
        {},
        {"enabled": False},
        {"min_failures": 0, "confidence": 0.5},
        {"severities": {"page_fast": "info"}},
        {"tiers": [{"name": "a_", "severity": "none", "long": "90m", "short": "10m", "burn": 2.5}]},
    ]
)
OBJECTIVES = st.fixed_dictionaries(
    {"name": NAMES, "target": RATIO, "indicator": INDICATORS},
    optional={
        "description": TEXT,
        "owner": TEXT,
        "window": st.sampled_from(["7d", "28d", "month", {"calendar": "week", "timezone": "Europe/Berlin"}]),
        "models": MODELS,
        "versions": MODELS,
        "group_by": st.sampled_from([[], ["model"], ["model", "version", "zone"]]),
        "overrides": st.lists(
            st.fixed_dictionaries({"models": st.lists(NAMES, min_size=1, max_size=2), "target": RATIO}),
            max_size=2,
        ),
        "labels": LABELS,
        "annotations": LABELS,
        "alerting": ALERTING,
    },
)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(OBJECTIVES)
def test_a_written_objective_is_read_back_the_same(data: dict[str, Any]) -> None:
    """For any objective, also with hostile words."""
    try:
        objective = Objective.model_validate(data)
    except ValidationError:
        assume(False)
    assert (objective,) == read([("a.yaml", writing.write([objective]))]).objectives


def test_a_list_holds_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OpenSLO's Go SDK writes its objects as one YAML list; a mistake keeps its line."""
    written = list(yaml.safe_load_all(SHOP))
    assert 0 == run(tmp_path, SHOP)
    apart = converted(tmp_path)
    assert 0 == run(tmp_path, yaml.safe_dump(written, sort_keys=False), "--force")
    assert apart == converted(tmp_path)

    capsys.readouterr()
    assert 1 == run(tmp_path, "- {apiVersion: openslo/v1, kind: SLO}\n- text\n", "--force")
    assert "in.yaml:2: this should be a mapping, and is a single value" in capsys.readouterr().err
