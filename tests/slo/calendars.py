"""Run the rules of calendar objectives at any time.

promtool's clock starts in 1970, so rules are run at another time by adding a shift to each of their `time()`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from slo.simulator import SCRAPE
from support.promtool import recording_rules_for
from triton_slo.artifact import Options
from triton_slo.objective.model import Objective
from triton_slo.rules.plan import Plan
from triton_slo.rules.recording import recording_rules


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


def rules(objective: Objective, shift: int, wanted: str) -> list[dict[str, Any]]:
    """Return the generated rules that a recorded series rests on, as they are at another time."""
    recording = [
        {"record": rule.record, "expr": rule.expr, "labels": dict(rule.labels)}
        for rule in recording_rules(Plan(objective, Options(scrape_interval_seconds=SCRAPE)))
    ]
    needed = recording_rules_for(recording, wanted)
    return [{**rule, "expr": rule["expr"].replace("time()", f"(time() + {shift})")} for rule in needed]
