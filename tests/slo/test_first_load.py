"""A version that loads for the first time is a deploy, not an outage; one that served and loads again is."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from support.tools import promtools
from triton_exporter.catalogue import Metric, state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read

SCRAPES = 40  # ten minutes
[READINESS] = read([("o.yaml", "{name: readiness, target: 99.9%, indicator: readiness}")]).objectives
SPLIT = f'sum by ({names.CAUSE}) ({names.CAUSE_SHARE}{{{names.INDICATOR}="readiness"}}) > 0'


def _series(metric: Metric, values: str, **labels: str) -> dict[str, str]:
    named = {"instance": "a", "model": "m"} | labels
    inside = ",".join(f'{key}="{value}"' for key, value in named.items())
    return {"series": f"{metric}{{{inside}}}", "values": values}


@pytest.mark.real
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
    """Ten minutes of a first load are neither an event nor a cause; other ways of not being ready are."""
    rules = {
        artifact.name: artifact.text
        for artifact in artifacts([READINESS], Options())
        if artifact.part == "rules"
    }
    for name, text in rules.items():
        (tmp_path / name).write_text(text)
    burning = names.sli_error("5m")
    firing = [] if fails is None else [{"labels": "{}", "value": 1}]
    cause = [] if fails is None else [{"labels": f'{{{names.CAUSE}="state:{now}"}}', "value": 1}]
    proof = {
        "interval": "15s",
        "input_series": [
            _series(state.MODEL_EXPECTED, f"1x{SCRAPES}"),
            _series(state.MODEL_READY, f"0x{SCRAPES}", version="1"),
            *([_series(state.MODEL_FIRST_LOAD, f"1x{SCRAPES}", version="1")] if first_load else []),
            *(
                _series(state.MODEL_STATE, f"{int(name == now)}x{SCRAPES}", version="1", state=name)
                for name in ("ready", "loading", "unavailable", "unloaded")
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
            {"expr": SPLIT, "eval_time": "9m", "exp_samples": cause},
        ],
    }
    passes(promtool, tmp_path, sorted(rules), proof)


@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_readiness_asks_a_young_group_for_no_evidence(promtool: Path, tmp_path: Path) -> None:
    """One look at a model that is down fires all tiers when the rules are new; none is left when it serves."""
    rules = {
        artifact.name: artifact.text
        for artifact in artifacts([READINESS], Options())
        if artifact.part == "rules"
    }
    for name, text in rules.items():
        (tmp_path / name).write_text(text)
    firing = f'count(ALERTS{{alertstate="firing", {names.TIER}!=""}})'
    proof = {
        "interval": "15s",
        "input_series": [
            _series(state.MODEL_EXPECTED, f"1x{SCRAPES}"),
            _series(state.MODEL_READY, f"0 1x{SCRAPES}", version="1"),
            _series(state.MODEL_STATE, f"1 0x{SCRAPES}", version="1", state="unavailable"),
            _series(state.MODEL_STATE, f"0 1x{SCRAPES}", version="1", state="ready"),
        ],
        "promql_expr_test": [
            {"expr": firing, "eval_time": "15s", "exp_samples": [{"labels": "{}", "value": 4}]},
            {"expr": firing, "eval_time": "9m", "exp_samples": []},
        ],
    }
    passes(promtool, tmp_path, sorted(rules), proof)


LOADED_TWICE = {  # two minutes of first load, two of serving, one of loading again, four of serving
    "loading": "1x7 0x7 1x3 0x15",
    "ready": "0x7 1x7 0x3 1x15",
}
FAILED = {  # two minutes of first load, three of having failed, four of serving
    "loading": "1x7 0x27",
    "unavailable": "0x7 1x11 0x15",
    "ready": "0x19 1x15",
}
SERVING = {"ready": "1x35", "unavailable": "0x35"}


@pytest.mark.parametrize(
    ("servers", "serves", "split"),
    [
        pytest.param(
            [LOADED_TWICE, FAILED], None, {"loading": 0.25, "unavailable": 0.75}, id="first loads are none"
        ),
        pytest.param([SERVING], "1x7 0x7 1x19", {"not_answering": 1}, id="Triton says ready, a probe fails"),
        pytest.param([FAILED], "0x23 1x11", {"not_answering": 0.25, "unavailable": 0.75}, id="both"),
        pytest.param([SERVING], None, {}, id="nothing is lost"),
    ],
)
@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_lost_time_is_split_by_what_took_it(
    promtool: Path,
    servers: list[dict[str, str]],
    serves: str | None,
    split: dict[str, float],
    tmp_path: Path,
) -> None:
    """Scrapes in each state that is not ready, first loads left out, and in ready where it does not serve."""
    causes = next(
        artifact for artifact in artifacts([READINESS], Options()) if artifact.name == "slo-causes.yml"
    )
    (tmp_path / causes.name).write_text(causes.text)
    series = []
    for number, states in enumerate(servers):
        at = {"instance": str(number), "version": "1"}
        series += [_series(state.MODEL_STATE, values, state=name, **at) for name, values in states.items()]
        series.append(_series(state.MODEL_READY, serves or states["ready"], **at))
        if "loading" in states:
            series.append(_series(state.MODEL_FIRST_LOAD, "1x7 _x27", **at))
    samples = [
        {"labels": f'{{{names.CAUSE}="state:{name}"}}', "value": share} for name, share in split.items()
    ]
    proof = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [{"expr": SPLIT, "eval_time": "9m", "exp_samples": samples}],
    }
    passes(promtool, tmp_path, [causes.name], proof)


def passes(promtool: Path, folder: Path, rules: list[str], proof: Mapping[str, object]) -> None:
    """Promtool finds what the proof expects of these rule files."""
    (folder / "proof.yml").write_text(
        yaml.safe_dump({"rule_files": rules, "evaluation_interval": "15s", "tests": [proof]})
    )
    done = subprocess.run(
        [promtool, "test", "rules", folder / "proof.yml"], capture_output=True, text=True, timeout=60
    )

    assert 0 == done.returncode, done.stdout + done.stderr
