"""Evaluate rules and expressions over written series with promtool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from promql_parser import MatrixSelector, VectorSelector

from triton_exporter.common.duration import parse_seconds
from triton_slo import expression

NEVER = [{"labels": '{answer="none expected"}', "value": 1}]
"""A result that no query has: promtool fails, and prints the result that it got."""

Answer = list[tuple[dict[str, str], float]]
"""Labels and value of each series."""


def promtool(tool: Path, *words: str | Path, timeout: float = 580) -> subprocess.CompletedProcess[str]:
    """Run a promtool to its end."""
    return subprocess.run([tool, *words], capture_output=True, text=True, timeout=timeout)


def evaluated(
    tool: Path,
    folder: Path,
    rules: str,
    series: Mapping[str, str],
    asked: Sequence[tuple[str, float]],
    *,
    interval: float,
    evaluation: float,
    timeout: float = 580,
) -> list[Answer]:
    """Return the value of each expression at its time; all times in seconds."""
    test = {
        "interval": f"{interval:g}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": f"{at:.0f}s", "exp_samples": NEVER} for query, at in asked
        ],
    }
    (folder / "rules.yml").write_text(rules)
    document = {"rule_files": ["rules.yml"], "evaluation_interval": f"{evaluation:g}s", "tests": [test]}
    (folder / "test.json").write_text(json.dumps(document))
    done = promtool(tool, "test", "rules", folder / "test.json", timeout=timeout)
    printed = done.stdout + done.stderr
    answers = re.findall(r"got: *(.*)$", printed, re.M)
    assert len(asked) == len(answers), printed[:2000]
    return [_answer(answer) for answer in answers]


def rule_file(groups: Mapping[str, Sequence[object]]) -> str:
    """Return the text of a rule file."""
    return json.dumps({"groups": [{"name": name, "rules": list(rules)} for name, rules in groups.items()]})


PAUSED = "rules_paused"
"""1 while no rule of `pausable` is evaluated, else 0."""


def pausable(rules: Sequence[Mapping[str, Any]], by: str = "") -> list[dict[str, Any]]:
    """Return rules that record nothing while the series `PAUSED` is 1, as while a Prometheus or vmalert is stopped.

    `by`: a label of every rule, whose values pause one by one.
    """
    return [{**rule, "expr": f"(\n{rule['expr']}\n)\nunless on ({by}) ({PAUSED} == 1)"} for rule in rules]


def at_own_interval(group: Mapping[str, Any], step: float) -> list[dict[str, Any]]:
    """Return a group's rules for promtool, which ignores `interval` and evaluates every group at each step.

    Between its evaluations a rule of such a group repeats what it recorded the step before, as a sample that was
    recorded minutes ago is still read. The first evaluation is as late as it can be.
    """
    if "interval" not in group:
        return list(group["rules"])
    interval = parse_seconds(str(group["interval"]))
    due = f"on () (vector(time()) % {interval:g} == {interval - step:g})"
    timed = []
    for rule in group["rules"]:
        if "alert" in rule:
            timed.append(rule)
            continue
        own = ", ".join(f"{label}={json.dumps(value)}" for label, value in rule["labels"].items())
        held = f"{rule['record']}{{{own}}} offset {step:g}s unless {due}"
        timed.append({**rule, "expr": f"(\n{rule['expr']}\n)\nand {due}\nor ({held})"})
    return timed


def recording_rules_for(rules: Sequence[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
    """Return the recording rules that make these recorded series; the others would only take time."""
    wanted = set(names)
    while True:
        read_by = " ".join(rule["expr"] for rule in rules if rule.get("record") in wanted)
        more = wanted | set(re.findall(r"slo:[\w:]+", read_by))
        if more == wanted:
            return [rule for rule in rules if rule.get("record") in wanted]
        wanted = more


def alerting_rule_file(text: str, *names: str, only: str = "") -> str:
    """Return a file with the rules of `alerting_groups`."""
    return rule_file({group["name"]: group["rules"] for group in alerting_groups(text, *names, only=only)})


def alerting_groups(text: str, *names: str, only: str = "") -> list[dict[str, Any]]:
    """Return the groups of a rule file with its alerts and the recording rules that these or `names` need.

    Annotations are left out, because promtool expands them at each evaluation. `only`: the name of a single alert.
    """
    groups: list[dict[str, Any]] = yaml.safe_load(text)["groups"]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if not only or rule.get("alert", only) == only]
    rules = [rule for group in groups for rule in group["rules"]]
    read_by = " ".join(rule["expr"] for rule in rules if "alert" in rule)
    made_of = {
        rule["record"] for rule in recording_rules_for(rules, *names, *re.findall(r"slo:[\w:]+", read_by))
    }
    for group in groups:
        group["rules"] = [
            {key: value for key, value in rule.items() if key != "annotations"}
            for rule in group["rules"]
            if "alert" in rule or rule["record"] in made_of
        ]
    return groups


def _answer(text: str) -> Answer:
    return [
        (dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value.rstrip(",")))
        for labels, value in re.findall(r"{([^}]*)} ([^\s,]+)", text)
    ]


def series_in(query: str) -> set[str]:
    """Return the names of the series that an expression selects."""
    parts = list(expression.parts(promql_parser.parse(query)))
    selectors = [part.vector_selector if isinstance(part, MatrixSelector) else part for part in parts]
    return {str(each.name) for each in selectors if isinstance(each, VectorSelector) and each.name}
