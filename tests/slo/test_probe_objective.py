"""The probe indicator: what counts, what does not, and that no word from the prober is unknown, not good."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.tools import promtools
from triton_exporter.catalogue import probe, state
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
        ({"success": "7x80", "timeout": "0x80", "bad_input": "0+9x80"}, names.UNKNOWN, 1),
        ({"success": "7x80", "timeout": "0x80", "unloaded": "1x80"}, names.UNKNOWN, None),
        ({"success": "7x80", "timeout": "0x80"}, names.sli_error("5m"), None),
        (
            {"success": "0+9x80", "timeout": "0+1x80", "failed": "0+3x80", "bad_input": "0+9x80"},
            f'{names.CAUSE_SHARE}{{{names.INDICATOR}="probe", {names.CAUSE}="failure:timeout"}}',
            0.25,
        ),
    ],
)
def test_what_a_probe_says(
    series: dict[str, str], expression: str, value: float | None, tmp_path: Path
) -> None:
    """A wrong input is neither good nor bad; counters that stand still are unknown, unless it was unloaded.

    How failed probes ended is their cause split.
    """
    reading = read([("o.yaml", OBJECTIVE)])
    assert () == reading.problems
    rules = {one.name: one.text for one in artifacts(reading.objectives, Options()) if one.part == "rules"}
    for name, text in rules.items():
        (tmp_path / name).write_text(text)
    written = "".join(
        f"      - {{series: '{_series(result)}', values: '{values}'}}\n" for result, values in series.items()
    )
    expected = "[]" if value is None else f"[{{labels: '{{}}', value: {value}}}]"
    test = tmp_path / "probe.test.yml"
    test.write_text(
        f"rule_files: [slo-probe.yml, slo-causes.yml]\nevaluation_interval: 15s\ntests:\n"
        f"  - interval: 15s\n    input_series:\n{written}    promql_expr_test:\n"
        f"      - {{expr: 'sum({expression})', eval_time: 15m, exp_samples: {expected}}}\n"
    )

    command = [promtools()[0], "test", "rules", test]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr


def _series(result: str) -> str:
    if result == "unloaded":
        return f'{state.MODEL_STATE}{{{GROUP}, state="unloaded"}}'
    return f'{probe.REQUESTS}{{{GROUP}, result="{result}"}}'
