"""Test the probe indicator: what counts, and what does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from support.promtool import evaluated, recording_rules_for, rule_file
from support.tools import promtools
from triton_exporter.catalogue import probe
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read

GROUP = 'model="a", version="1"'
OBJECTIVE = "{name: probe, target: 99%, indicator: probe}"


@pytest.mark.parametrize(
    ("series", "expression", "value"),
    [
        ({"success": "0+3x80", "timeout": "0+1x80"}, names.sli_error("5m"), 0.25),
        ({"success": "0+3x80", "timeout": "0+1x80", "bad_input": "0+9x80"}, names.sli_error("5m"), 0.25),
        ({"success": "7x80", "timeout": "0x80"}, names.sli_error("5m"), None),
        (
            {"success": "0+9x80", "timeout": "0+1x80", "failed": "0+3x80", "bad_input": "0+9x80"},
            f'{names.CAUSE_SHARE}{{{names.INDICATOR}="probe", {names.CAUSE}="failure:timeout"}}',
            0.25,
        ),
    ],
)
def test_results_of_probes_are_good_bad_or_neither(
    series: dict[str, str], expression: str, value: float | None, tmp_path: Path
) -> None:
    """A wrong input is neither good nor bad. How failed probes ended is their cause split."""
    reading = read([("o.yaml", OBJECTIVE)])
    assert () == reading.problems
    rules = [
        rule
        for artifact in artifacts(reading.objectives, Options())
        if artifact.name in ("slo-probe.yml", "slo-causes.yml")
        for group in yaml.safe_load(artifact.text)["groups"]
        for rule in group["rules"]
    ]
    needed = rule_file({"probe": recording_rules_for(rules, *re.findall(r"slo:[\w:]+", expression))})
    sent = {f'{probe.REQUESTS}{{{GROUP}, result="{result}"}}': values for result, values in series.items()}

    [samples] = evaluated(
        promtools()[0], tmp_path, needed, sent, [(f"sum({expression})", 900)], interval=15, evaluation=15
    )

    assert ([] if value is None else [pytest.approx(value)]) == [number for _, number in samples]
