"""Test the lints of alert rules: each finds a mistake that promtool accepts, and none in our own rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from support.tools import ROOT, promtools
from triton_alerts import lint
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import gpu, state, triton
from triton_slo.artifact import Options
from tritonwatch.cli import main

GOOD: dict[str, Any] = {
    "alert": "TritonTest",
    "expr": f"{state.SERVER_LIVE} == 0",
    "for": "2m",
    "labels": {"severity": "warning", "component": "lifecycle"},
    "annotations": {
        "summary": "{{ $labels.instance }} is down",
        "description": "It is.",
        "runbook_url": "https://example.com/r",
        "dashboard_url": "/d/x",
    },
}
RATIO = f"rate({triton.REQUEST_FAILURE}[5m]) / (rate({triton.REQUEST_SUCCESS}[5m]) > 0) > 0.1"

BAD = {
    lint.value_in_label: {"labels": {**GOOD["labels"], "value": "{{ $value }}"}},
    lint.no_comparison: {"expr": f"sum without (x) ({state.SERVER_LIVE})"},
    lint.regexp_without_effect: {"expr": f'{state.MODEL_STATE}{{state=~"ready"}} == 0'},
    lint.short_window: {"expr": f"rate({triton.REQUEST_SUCCESS}[20s]) == 0"},
    lint.labels_and_annotations: {"labels": {"severity": "urgent", "component": "lifecycle"}},
    lint.unknown_label_in_text: {"annotations": {**GOOD["annotations"], "summary": "{{ $labels.instnace }}"}},
    # The public rule that has never fired since Triton has the label reason.
    lint.unmatched_vectors: {"expr": RATIO},
    lint.counter_without_rate: {"expr": f"{triton.REQUEST_SUCCESS} > 1000"},
    lint.rate_of_gauge: {"expr": f"rate({gpu.TEMPERATURE}[5m]) > 1"},
    lint.unguarded_division: {"expr": f"avg by (instance) ({gpu.MEMORY_USED} / {gpu.MEMORY_TOTAL}) > 0.9"},
    lint.unstable_threshold: {"for": ""},
    lint.unknown_series: {"expr": "triton_model_load_failed_total > 0 or nv_inference_load_ratio_bucket > 0"},
    lint.badly_named: {"alert": "server_down"},
}


def groups(*rules: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the document of one group of rules."""
    return [{"name": "g", "rules": list(rules)}]


def test_a_good_rule_passes() -> None:
    """The rule that the bad ones are made from has nothing wrong with it."""
    assert [] == lint.problems(groups(GOOD))


def test_every_check_has_a_bad_rule() -> None:
    """Each check must find its mistake once, or it might find nothing."""
    assert set(lint.CHECKS) == set(BAD)


@pytest.mark.parametrize("check", BAD, ids=lambda check: check.__name__)
def test_each_check_catches_its_bad_rule(check: lint.Check) -> None:
    """The check reports its bad rule, with place and fix, and no good one."""
    rule = {**GOOD, **BAD[check]}
    fix = lint.CHECKS[check]

    problems = [problem for problem in lint.problems(groups(rule)) if problem.fix == fix]

    assert problems
    assert all(finding.place == f"g: {rule['alert']}" and finding.reason for finding in problems)


@pytest.mark.real
@pytest.mark.parametrize("check", BAD, ids=lambda check: check.__name__)
def test_promtool_is_silent_about_all_of_them(check: lint.Check, tmp_path: Path) -> None:
    """promtool accepts each of the bad rules; otherwise our check would not be needed."""
    path = tmp_path / "rules.yml"
    rule = {key: value for key, value in {**GOOD, **BAD[check]}.items() if value}
    path.write_text(yaml.safe_dump({"groups": groups(rule)}))

    checked = subprocess.run([promtools()[0], "check", "rules", path], capture_output=True, timeout=60)

    assert 0 == checked.returncode


def test_a_rule_that_exists_twice_is_found() -> None:
    """The same rule twice pages twice."""
    assert ["the same rule as g: TritonTest"] == [
        problem.reason for problem in lint.problems(groups(GOOD, GOOD))
    ]
    assert [] == lint.problems(groups(GOOD, {**GOOD, "labels": {**GOOD["labels"], "tier": "x"}}))


@pytest.mark.parametrize(
    ("expr", "labels"),
    [
        (
            f"sum without (reason) (rate({triton.REQUEST_FAILURE}[5m]))",
            {"instance", "job", "model", "version"},
        ),
        (f"sum by (model) ({triton.PENDING_REQUESTS})", {"model"}),
        (f"time() - {state.MODEL_NOT_READY_SINCE} > 600", {"instance", "job", "model", "version"}),
        (f"{state.SERVER_LIVE} == 0 and on (instance) {state.UP} == 1", {"instance", "job"}),
        (f"{triton.PENDING_REQUESTS} / on (model) {triton.EXEC_COUNT}", {"model"}),
        (
            f"histogram_quantile(0.9, rate({state.REQUEST_DURATION.bucket}[5m]))",
            {"instance", "job", "model", "version"},
        ),
    ],
)
def test_the_labels_of_an_expression_are_known(expr: str, labels: set[str]) -> None:
    """Aggregation, matching and functions are followed from the catalogue's labels."""
    assert labels == lint.labels_of(promql_parser.parse(expr))


@pytest.mark.parametrize(
    "options",
    [Options(), Options(time_scale=1 / 360, scrape_interval_seconds=1.0, selector='cluster="eu1"')],
    ids=["real time", "demo"],
)
def test_our_own_rules_have_no_problem(options: Options) -> None:
    """Our own rules pass the lints that users run on theirs."""
    for artifact in artifacts((), options):
        if artifact.part == "rules":
            read = yaml.safe_load(artifact.text)["groups"]
            assert read[0]["rules"]
            assert [] == lint.problems(read, options.scrape_interval_seconds), artifact.name


def test_the_committed_rules_have_no_problem() -> None:
    """The burn alerts of the objectives pass the lints, too."""
    assert 0 == main(["check", str(ROOT / "alerts" / "generated" / "rules")])


@pytest.mark.parametrize("wrap", [False, True], ids=["rule file", "PrometheusRule"])
def test_check_lints_rule_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrap: bool) -> None:
    """`tritonwatch check` takes rule files beside objectives and reports each mistake with its place."""
    body = {
        "groups": groups(
            GOOD, {**GOOD, "alert": "Bad", "expr": "sum(up"}, {**GOOD, **BAD[lint.no_comparison]}
        )
    }
    path = tmp_path / "mine.yaml"
    resource = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": body}
    path.write_text(yaml.safe_dump(resource if wrap else body))

    assert 1 == main(["check", str(path)])

    printed = capsys.readouterr()
    assert re.search(rf"^{re.escape(str(path))}:\d+: g: Bad", printed.err, re.MULTILINE)
    assert re.search(
        rf"^{re.escape(str(path))}:\d+: g: TritonTest: the expression compares", printed.err, re.M
    )
    assert "0 objectives and 3 rules in 1 file, 2 mistakes" in printed.out


def test_sides_of_and_with_unequal_labels_are_reported_with_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An alert that Prometheus loads, and that can never fire."""
    pair = f"sum by (model) (rate({triton.REQUEST_FAILURE}[5m])) > 1 and sum by (version) (rate(x[5m])) > 1"
    path = tmp_path / "mine.yaml"
    path.write_text(f"groups:\n- name: g\n  rules:\n  - alert: TritonDead\n    expr: '{pair}'\n")

    assert 1 == main(["check", str(path)])
    output = f"{path}:4: g: TritonDead: the sides of and differ in model, version and never meet (fix: "
    assert output in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["groups: []", "groups: [1]", "groups: [{name: x, rules: [1, {expr: up}, {}]}]"]
)
def test_check_reads_files_that_only_resemble_rules(tmp_path: Path, text: str) -> None:
    """Half a rule file is a list of mistakes or none, never a traceback."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)

    assert main(["check", str(path)]) in {0, 1}


@pytest.mark.parametrize("key", ["alert", "Alerts"])
def test_a_misspelt_key_of_alert_settings_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    """The file is not taken for one of objectives, whose fixes would be about other fields."""
    path = tmp_path / "alerts.yaml"
    path.write_text(f"{key}: {{TritonServerDown: {{enabled: false}}}}\n")

    assert 1 == main(["check", str(path)])
    printed = capsys.readouterr().err
    assert "is not a file of alert settings (fix: write a mapping such as {alerts: " in printed
    assert 1 == len(printed.splitlines())
