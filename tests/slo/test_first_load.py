"""A version that loads for the first time is a deploy, not an outage; one that served and loads again is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from support.tools import promtools
from triton_exporter.catalogue import Metric, state
from triton_slo import conventions as names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.reading import read

SCRAPES = 40  # ten minutes


def _series(metric: Metric, values: str, **labels: str) -> dict[str, str]:
    named = {"instance": "a", "model": "m"} | labels
    inside = ",".join(f'{key}="{value}"' for key, value in named.items())
    return {"series": f"{metric}{{{inside}}}", "values": values}


@pytest.mark.parametrize(
    ("now", "first_load", "fails"),
    [
        pytest.param("loading", True, None, id="first load"),
        pytest.param("loading", False, 1.0, id="loads again after it served"),
        pytest.param("unavailable", False, 1.0, id="failed its first load"),
    ],
)
@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_a_first_load_burns_nothing(
    promtool: Path, now: str, first_load: bool, fails: float | None, tmp_path: Path
) -> None:
    """Ten minutes of loading for the first time are no event at all; every other way of not being ready fails."""
    reading = read([("o.yaml", "{name: readiness, target: 99.9%, indicator: readiness}")])
    rules = {one.name: one.text for one in artifacts(reading.objectives, Options()) if one.part == "rules"}
    (tmp_path / "slo-readiness.yml").write_text(rules["slo-readiness.yml"])
    burning = names.sli_error("5m")
    firing = [] if fails is None else [{"labels": "{}", "value": 1}]
    proof = {
        "interval": "15s",
        "input_series": [
            _series(state.MODEL_EXPECTED, f"1x{SCRAPES}"),
            _series(state.MODEL_READY, f"0x{SCRAPES}", version="1"),
            *([_series(state.MODEL_FIRST_LOAD, f"1x{SCRAPES}", version="1")] if first_load else []),
            *(
                _series(state.MODEL_STATE, f"{int(one == now)}x{SCRAPES}", version="1", state=one)
                for one in ("ready", "loading", "unavailable", "unloaded")
            ),
        ],
        "promql_expr_test": [
            {
                "expr": f"sum({burning})",
                "eval_time": "9m",
                "exp_samples": [] if fails is None else [{"labels": "{}", "value": fails}],
            },
            {
                "expr": 'count(count by (alertname) (ALERTS{alertstate="firing"}))',
                "eval_time": "9m",
                "exp_samples": firing,
            },
        ],
    }
    (tmp_path / "proof.yml").write_text(
        yaml.safe_dump({"rule_files": ["slo-readiness.yml"], "evaluation_interval": "15s", "tests": [proof]})
    )
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "proof.yml"], capture_output=True, text=True, timeout=60
    )

    assert 0 == done.returncode, done.stdout + done.stderr
