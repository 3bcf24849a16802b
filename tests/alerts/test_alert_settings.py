"""Test alerts.yaml: mistakes are refused with line and fix, and its settings reach alerts and panels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.test_alertmanager_config import meets
from support.files import write
from support.panels import panels
from support.promtool import evaluated, promtool, rule_file
from support.tools import ROOT, newest, promtools
from triton_alerts import alertmanager
from triton_alerts import rules as alert_rules
from triton_alerts.alerts_file import AlertsFile, read
from triton_alerts.catalogue import ALERTS
from triton_alerts.generate import artifacts
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana import dashboard_model
from triton_exporter.catalogue import models
from triton_slo import artifact, names
from triton_slo.artifact import Options
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.rules import groups
from tritonwatch.cli import main

EVERY_THRESHOLD = [alert for alert in ALERTS if alert.threshold]


def settings(**alerts: object) -> AlertsFile:
    """Read a file with these alerts."""
    return read("alerts.yaml", yaml.safe_dump({"alerts": alerts}))


def tuned(**alerts: object) -> Options:
    """Options with these settings, which have no mistake."""
    loaded = settings(**alerts)
    assert () == loaded.problems
    return Options(tuning=loaded.tuning)


@pytest.mark.parametrize(
    ("alert", "given", "reason"),
    [
        (
            "TritonInstanceSaturated",
            {},
            "no alert has this name (fix: did you mean TritonInstancesSaturated?)",
        ),
        ("Elephant", {}, "no alert has this name (fix: docs/alerts.md lists all)"),
        ("TritonErrorsBudgetBurn", {"enabled": False}, "tune it in the objectives file, under `alerting`"),
        ("TritonSLOBudgetSpentUnnoticed", {"threshold": "1d"}, "this alert compares with no threshold"),
        ("TritonSLOBudgetNearlySpent", {"threshold": 3}, "write it with its unit, such as 100ms or 1h"),
        (
            "TritonServerDown",
            {"keep_firing_for": 10},
            "keep_firing_for: the number 10 is not a duration (fix: write it with its unit",
        ),
        ("GpuMemoryNearFull", None, "must be a mapping of fields, and is nothing"),
        ("GpuMemoryNearFull", 0.9, "must be a mapping of fields, and is the number 0.9"),
        ("GpuMemoryNearFull", {"threshold": 97}, "a share is above 0% and below 100%"),
        ("GpuMemoryNearFull", {"threshold": "97 percent"}, "is not a share; write for example 99.5%"),
        ("GpuMemoryNearFull", {"threshold": "100%"}, "a share is above 0% and below 100%"),
        (
            "GpuMemoryNearFull",
            {"threshold": None},
            "threshold: must be a share, and is nothing; write for example 99.5%",
        ),
        ("GpuDataStale", {"threshold": 120}, "write it with its unit, such as 100ms or 1h"),
        ("LlmFirstTokenSlow", {"threshold": "2 s"}, "'2 s' is not a duration"),
        ("TritonServerDown", {"threshold": 2}, "this alert compares with no threshold"),
        (
            "TritonServerDown",
            {"for": 10},
            "for: the number 10 is not a duration (fix: write it with its unit",
        ),
        ("TritonServerDown", {"for": "soon"}, "for: 'soon' is not a duration such as 100ms, 5m, 1h or 30d"),
        ("TritonServerDown", {"severity": "page"}, "'page' is none of critical, warning, info"),
        ("TritonServerDown", {"enabled": "maybe"}, "must be true or false, and is 'maybe'"),
        ("TritonServerDown", {"color": "red"}, "color: unknown field"),
        (
            "TritonServerDown",
            {"overrides": [{"models": "a", "for": "1m"}]},
            "is not about one model but about inst",
        ),
        ("TritonQueueDominates", {"overrides": [{"models": "a"}]}, "overrides.0: changes nothing"),
        (
            "TritonQueueDominates",
            {"overrides": [{"for": "1m"}]},
            "overrides.0.models: required field is missing",
        ),
        (
            "TritonQueueDominates",
            {"overrides": [{"models": {"regex": "a("}, "for": "1m"}]},
            "overrides.0.models.regex: not a regular expression",
        ),
        (
            "TritonQueueDominates",
            {"overrides": [{"models": "a", "threshold": 5}]},
            "overrides.0.threshold: a share is above",
        ),
        ("TritonQueueDominates", {"overrides": {"models": "a"}}, "overrides: must be a list"),
        ("Watchdog", {"severity": "info"}, "change nothing but `enabled`"),
    ],
)
def test_a_mistake_is_refused_with_its_line(alert: str, given: object, reason: str) -> None:
    """Each has the line, the path of the field, what is wrong and how to fix it."""
    problems = [str(problem) for problem in settings(**{alert: given}).problems]

    assert any(reason in problem for problem in problems), problems
    assert [] == [problem for problem in problems if not re.match(rf"alerts\.yaml:\d+: {alert}", problem)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("alerts: []", "alerts.yaml:1: is not a file of alert settings"),
        ("alerts: [TritonServerDown]", "alerts.yaml:1: is not a file of alert settings"),
        ("TritonServerDown: {enabled: false}", "alerts.yaml:1: is not a file of alert settings"),
        ("alerts: {}\ncolor: red", "alerts.yaml:1: is not a file of alert settings"),
        ("alerts:\n  Watchdog: {}\n  Watchdog: {}", "the key 'Watchdog' is written twice, first in line 2"),
        ("alerts: {", "alerts.yaml:2: not YAML"),
        ("alerts: {}\n---\nalerts: {}", "contains several documents"),
    ],
)
def test_a_file_in_another_form_is_refused(text: str, reason: str) -> None:
    """The message shows the form that is expected."""
    [problem] = read("alerts.yaml", text).problems

    assert reason in str(problem)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "alerts: {}\n", "alerts:\n  # nothing yet\n"])
def test_a_file_that_changes_nothing_generates_the_same_bytes(text: str) -> None:
    """A file whose settings are all commented out is not a mistake, and no change."""
    actual = read("alerts.yaml", text)

    assert () == actual.problems
    assert artifacts((), Options()) == artifacts((), Options(tuning=actual.tuning))
    assert list(dashboards(Options())) == list(dashboards(Options(tuning=actual.tuning)))


def rules(options: Options, name: str) -> list[dict[str, Any]]:
    """Return the rules of one alert."""
    own = [alert for alert in ALERTS if alert.name == name]
    rule_file = artifact.render([alert_rules.group("own", own, options)], "own", options.format)
    [group] = yaml.safe_load(rule_file)["groups"]
    return list(group["rules"] or ())


def busy(model: str, share: float) -> dict[str, str]:
    """Series of a model whose only instance is busy for this share of the time; 15 s apart, for an hour."""
    labels = f'{{instance="gpu-1:9095", model="{model}", version="1"}}'
    return {f"{models.BUSY_SECONDS}{labels}": f"0+{15 * share}x240", f"{models.INSTANCES}{labels}": "1x240"}


def firing(
    binary: Path, folder: Path, options: Options, name: str, series: Mapping[str, str], at: float
) -> Any:
    """Model -> severity of an alert's firing instances at a time in seconds."""
    query = 'max by (model, severity) (ALERTS{alertstate="firing"})'
    [answer] = evaluated(
        binary,
        folder,
        rule_file({"g": rules(options, name)}),
        series,
        [(query, at)],
        interval=15,
        evaluation=15,
    )
    return {labels["model"]: labels["severity"] for labels, _ in answer}


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(promtools()), ids=str)
def test_a_tuned_alert_fires_at_its_new_threshold(binary: Path, tmp_path: Path) -> None:
    """At 92 % it fires by default after 15 minutes, and at 97 % when tuned, after the tuned `for`."""
    options = tuned(TritonInstancesSaturated={"threshold": "95%", "for": "30m", "severity": "info"})
    series = busy("a", 0.92) | busy("b", 0.97)

    def severities(options: Options, at: float) -> Any:
        return firing(binary, tmp_path, options, "TritonInstancesSaturated", series, at)

    assert {"a": "warning", "b": "warning"} == severities(Options(), 20 * 60)
    assert {} == severities(tuned(TritonInstancesSaturated={"enabled": False}), 20 * 60)
    assert {} == severities(options, 29 * 60)
    assert {"b": "info"} == severities(options, 35 * 60)


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(promtools()), ids=str)
def test_models_have_thresholds_of_their_own(binary: Path, tmp_path: Path) -> None:
    """Each model meets exactly one of the rules: the first override that chooses it, else the general one."""
    options = tuned(
        TritonInstancesSaturated={
            "threshold": "95%",
            "overrides": [
                {"models": ["ranker"], "threshold": "99%", "severity": "critical"},
                {"models": {"regex": "batch-.*"}, "enabled": False},
                {"models": {"regex": "(batch|rank).*"}, "threshold": "50%"},
            ],
        }
    )
    series = {
        name: values
        for model, share in {
            "ranker": 0.97,
            "batch-1": 1.0,
            "ranker-2": 0.6,
            "other": 0.97,
            "idle": 0.92,
        }.items()
        for name, values in busy(model, share).items()
    }

    actual = firing(binary, tmp_path, options, "TritonInstancesSaturated", series, 30 * 60)
    assert {"ranker-2": "warning", "other": "warning"} == actual
    series |= busy("ranker", 0.995)
    actual = firing(binary, tmp_path, options, "TritonInstancesSaturated", series, 30 * 60)
    assert {"ranker": "critical", "ranker-2": "warning", "other": "warning"} == actual


@pytest.mark.real
@pytest.mark.parametrize("binary", promtools(), ids=str)
def test_every_tuned_rule_loads(binary: Path, tmp_path: Path) -> None:
    """Every alert with another `for` and severity, and where it has them with a threshold and models."""
    numbers = {"share": "42%", "seconds": "1500ms", "age": "90s", "number": 4242}
    given: dict[str, Any] = {}
    for alert in ALERTS:
        if alert.name == "Watchdog":
            continue
        setting: dict[str, Any] = {"for": "7m", "severity": "info"}
        if alert.threshold:
            setting["threshold"] = numbers[alert.threshold.unit]
        if "model" in alert.labels:
            setting["overrides"] = [
                {"models": {"regex": 'a"{2}\\.b'}, **setting},
                {"models": ["x"], "enabled": False},
            ]
        given[alert.name] = setting
    write(artifacts((), tuned(**given)), tmp_path)

    checked = promtool(binary, "check", "rules", *sorted((tmp_path / "rules").iterdir()))

    assert 0 == checked.returncode, checked.stdout + checked.stderr


def test_a_threshold_is_in_the_expression_and_has_its_reason() -> None:
    """A tuned value stands wherever the expression has `$threshold`, and nowhere by default."""
    values = {"share": "42%", "seconds": "4242ms", "age": "42h", "number": 4242}
    as_written = {"share": "0.42", "seconds": "4.242", "age": "151200", "number": "4242"}
    for alert in EVERY_THRESHOLD:
        value, written = values[alert.threshold.unit], as_written[alert.threshold.unit]
        [before] = rules(Options(), alert.name)
        [after] = rules(tuned(**{alert.name: {"threshold": value}}), alert.name)

        assert written not in before["expr"], alert.name
        used = after["expr"].count(written) + after["expr"].count(f"[{value}]")
        assert (alert.expr + alert.until).count("$threshold") == used, alert.name
        assert "$" not in before["expr"].replace('"$1"', ""), alert.name
        assert alert.threshold.why.endswith("."), alert.name


def test_texts_have_no_placeholder_left() -> None:
    """`$threshold` and `$for` are for us; Prometheus would refuse them."""
    for alert in ALERTS:
        options = tuned() if alert.name == "Watchdog" else tuned(**{alert.name: {"for": "77m"}})
        for rule in rules(options, alert.name):
            assert [] == re.findall(r"\$(?:threshold|for)\b", str(rule)), alert.name


def test_an_alert_outlives_its_condition_as_long_as_it_is_tuned() -> None:
    """By default, for a time of its own, or not at all; the reference names the default."""
    name = "TritonInstancesSaturated"
    overrides = [{"models": "a", "keep_firing_for": "0s"}]

    durations = [
        [rule.get("keep_firing_for") for rule in rules(options, name)]
        for options in (
            Options(),
            tuned(**{name: {"keep_firing_for": "1h", "overrides": overrides}}),
            tuned(**{name: {"keep_firing_for": "0m"}}),
        )
    ]

    [default] = [f"{alert.keep_firing_for}" for alert in ALERTS if alert.name == name]
    assert [[default], [None, "1h"], [None]] == durations


def of_an_objective(options: Options, name: str, **more: object) -> list[dict[str, Any]]:
    """Return the rules of an alert of an objective on errors, without their texts."""
    objective = Objective.model_validate({"name": "x", "target": 0.99, "indicator": "errors", **more})
    every = list(groups(Plan(objective, options)))
    return [
        {
            "expr": rule.expr,
            "for": rule.for_,
            "keep": rule.keep_firing_for,
            "severity": rule.labels["severity"],
        }
        for group in every
        for rule in group.rules
        if rule.alert == name
    ]


@pytest.mark.parametrize("name", names.BUDGET_ALERTS)
def test_a_ticket_about_a_budget_is_tuned_for_some_models(name: str) -> None:
    """One rule for each group of models, with its own times and severity; a disabled one has none."""
    override = {"models": ["a", "b"], "severity": "info", "for": "2h", "keep_firing_for": "0s"}
    hold = {"TritonSLOBudgetNearlySpent": "1h", "TritonSLOBudgetSpentUnnoticed": "6h"}[name]

    some, rest = of_an_objective(tuned(**{name: {"overrides": [override]}}), name)

    assert ("2h", "", "info") == (some["for"], some["keep"], some["severity"])
    assert (hold, "6h", "warning") == (rest["for"], rest["keep"], rest["severity"])
    assert ('model=~"a|b"' in some["expr"], 'model!~"a|b"' in rest["expr"]) == (True, True)
    assert [] == of_an_objective(tuned(**{name: {"enabled": False}}), name)


def test_an_objective_that_cannot_be_measured_is_tuned_for_some_models() -> None:
    """An objective without models has the general settings alone."""
    name = names.UNMEASURED_ALERT
    options = tuned(**{name: {"overrides": [{"models": {"regex": "batch-.*"}, "severity": "info"}]}})
    latency = {"indicator": {"kind": "latency", "threshold": "1s"}}

    some, rest = of_an_objective(options, name, **latency)
    [whole] = of_an_objective(options, name, group_by=["instance"], **latency)

    assert ("info", "warning", "warning") == (some["severity"], rest["severity"], whole["severity"])
    assert ('model=~"batch-.*"' in some["expr"], 'model!~"batch-.*"' in rest["expr"]) == (True, True)


def _inhibited(options: Options, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """Whether some row of the configuration lets the source silence the target."""

    return any(
        meets(row["source_matchers"], source) and meets(row["target_matchers"], target)
        for row in alertmanager.config(options)["inhibit_rules"]
    )


@pytest.mark.parametrize(
    ("alerts", "silent"),
    [
        ({}, True),
        ({"TritonModelFlapping": {"severity": "critical"}}, False),
        ({"TritonServerRestarting": {"severity": "info"}}, False),
        ({"TritonServerRestarting": {"severity": "critical"}}, True),
        ({"TritonModelFlapping": {"overrides": [{"models": "a", "severity": "critical"}]}}, False),
    ],
)
def test_no_alert_silences_a_more_urgent_one(alerts: dict[str, object], silent: bool) -> None:
    """`TritonServerRestarting` inhibits `TritonModelFlapping`, but never as a ticket a page or as info a ticket."""
    options = tuned(**alerts)

    def labels(name: str) -> dict[str, str]:
        return {"alertname": name, **rules(options, name)[0]["labels"]}

    assert silent == _inhibited(options, labels("TritonServerRestarting"), labels("TritonModelFlapping"))


def test_severities_that_change_no_order_leave_the_configuration_as_it_is() -> None:
    """A page that became a ticket inhibits no page; what needs no change has none."""
    usual = alertmanager.config(Options())

    assert usual == alertmanager.config(tuned(TritonQueueBacklog={"severity": "info"}))
    assert usual != alertmanager.config(tuned(TritonAllServersDown={"severity": "warning"}))


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        (
            [{"models": "rankr", "for": "1m"}],
            "TritonQueueDominates: rankr matches no model that Prometheus knows",
        ),
        (
            [{"models": ["ranker"], "for": "1m"}, {"models": "ranker", "for": "2m"}],
            "earlier overrides already choose",
        ),
        (
            [{"models": "all", "for": "1m"}, {"models": {"regex": "r.*"}, "for": "2m"}],
            "already choose all of r.*",
        ),
        ([{"models": {"regex": "r.*"}, "for": "1m"}], ""),
    ],
)
def test_overrides_that_match_nothing_are_named(given: list[object], warned: str) -> None:
    """By what Prometheus knows where it is asked, and by the overrides before in any case."""
    findings = [
        str(finding)
        for finding in settings(TritonQueueDominates={"overrides": given}).findings({"ranker", "other"})
    ]

    assert bool(warned) == bool(findings)
    assert all(warned in message for message in findings)
    assert [] == [
        finding
        for finding in settings(TritonQueueDominates={"overrides": given}).findings(None)
        if "knows" in str(finding)
    ]


def test_the_example_of_the_page_and_the_shipped_file_are_valid() -> None:
    """They are read without mistakes; the shipped one changes nothing until an entry is uncommented."""
    page = (ROOT / "docs" / "alert-settings.md").read_text()
    example = read("alerts.yaml", re.findall(r"```yaml title=\"alerts.yaml\"\n(.*?)```", page, re.DOTALL)[0])
    shipped = (ROOT / "alerts" / "alerts.yaml").read_text()

    assert () == example.problems
    assert 5 == len(example.tuning.alerts)
    assert {} == read("alerts.yaml", shipped).tuning.alerts
    uncommented = read("alerts.yaml", shipped.replace("\n#  ", "\n  "))
    assert ((), 1) == (uncommented.problems, len(uncommented.tuning.alerts))


def drawn(options: Options, alert: str) -> list[tuple[str, list[float | None]]]:
    """Return the words of the panels that name an alert, and the values at which they change colour."""
    return [
        (
            panel["description"],
            [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]],
        )
        for dashboard in dashboards(options)
        for panel in panels(dashboard_model(dashboard))
        if f"`{alert}`" in panel.get("description", "")
    ]


def test_the_line_of_a_panel_moves_along() -> None:
    """The panel states and draws the tuned threshold, names the exceptions, and draws none for a disabled alert."""
    name = "TritonInstancesSaturated"
    overrides = [{"models": ["a", "b"], "threshold": 0.5}, {"models": {"regex": "c.*"}, "enabled": False}]

    [(printed, steps)] = drawn(tuned(**{name: {"threshold": "95%", "overrides": overrides}}), name)
    assert f"`{name}` fires above 95%. For some models: a, b: above 50%; c.*: off." in printed
    assert [None, 0.95] == steps
    [(printed, steps)] = drawn(tuned(**{name: {"enabled": False}}), name)
    assert f"`{name}` is disabled." in printed
    assert [None] == steps


def test_generate_takes_the_settings_and_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A disabled page is allowed, with a warning; a mistake writes nothing."""
    file = tmp_path / "alerts.yaml"
    words = [
        "generate",
        "--objectives",
        "slo/objectives",
        "--alerts",
        str(file),
        "--out",
        str(tmp_path / "out"),
    ]

    file.write_text("alerts:\n  TritonModelDownEverywhere:\n    enabled: false\n")
    assert 0 == main(words)
    warned = capsys.readouterr().err
    assert f"warning: {file}:2: TritonModelDownEverywhere pages by default and is disabled" in warned
    assert "TritonModelDownEverywhere" not in (tmp_path / "out/rules/triton-lifecycle.yml").read_text()

    file.write_text("alerts:\n  TritonModelDownEverywher:\n    enabled: false\n")
    assert 1 == main([*words[:-1], str(tmp_path / "other")])
    assert "did you mean TritonModelDownEverywhere" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


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
