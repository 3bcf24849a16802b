"""Calendar objectives under test: their rules at any time, and what promtool makes of them.

promtool's clock starts in 1970, so rules are run at another time by putting a shift to every `time()` of theirs.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from support.simulator import SCRAPE
from triton_slo.artifact import Options
from triton_slo.objective import Objective
from triton_slo.plan import Plan
from triton_slo.recording import recording_rules

NEVER = [{"labels": '{answer="none expected"}', "value": 1}]
"""An answer that nobody gives: promtool prints what it got instead."""


def unix(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def objective(name: str, kind: str, zone: str, **more: object) -> Objective:
    return Objective.model_validate(
        {
            "name": name,
            "target": 0.99,
            "indicator": "errors",
            "window": {"calendar": kind, "timezone": zone},
            **more,
        }
    )


def rules(one: Objective, shift: int, wanted: str) -> list[dict[str, Any]]:
    """The generated rules that a recorded series rests on, as they are at another time."""
    recording = [
        {"record": rule.record, "expr": rule.expr, "labels": dict(rule.labels)}
        for rule in recording_rules(Plan(one, Options(scrape_interval_seconds=SCRAPE)))
    ]
    needed = {wanted}
    while True:
        read = {
            name
            for rule in recording
            if rule["record"] in needed
            for name in re.findall(r"slo:[\w:]+", rule["expr"])
        }
        if read <= needed:
            break
        needed |= read
    kept = [rule for rule in recording if rule["record"] in needed]
    return [{**rule, "expr": rule["expr"].replace("time()", f"(time() + {shift})")} for rule in kept]


def promtool(
    tool: Path, folder: Path, groups: Mapping[str, Sequence[object]], **test: object
) -> list[list[tuple[dict[str, str], float]]]:
    """What each expression gave, in order: labels and value of each of its series."""
    document = {"groups": [{"name": name, "rules": list(found)} for name, found in groups.items()]}
    (folder / "rules.yml").write_text(json.dumps(document))
    whole = {"rule_files": ["rules.yml"], "evaluation_interval": "60s", "tests": [test]}
    (folder / "test.json").write_text(json.dumps(whole))
    command = [str(tool), "test", "rules", str(folder / "test.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    said = done.stdout + done.stderr
    answers = re.findall(r"got: *(.*)$", said, re.M)
    assert len(test["promql_expr_test"]) == len(answers), said[:2000]  # type: ignore[arg-type]
    return [
        [
            (dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value.rstrip(",")))
            for labels, value in re.findall(r"{([^}]*)} ([^\s,]+)", answer)
        ]
        for answer in answers
    ]
