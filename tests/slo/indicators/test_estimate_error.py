"""Test the possible error of an estimated SLI: how it is recorded, shown, and used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from support.promtool import evaluated, recording_rules_for, rule_file
from support.tools import newest, promtools
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.estimate import settled_by
from triton_slo.generate import artifacts
from triton_slo.group_status import GroupStatus
from triton_slo.objective.reading import read

SCRAPES = 8 * 60
"""Of 15 s: two hours."""
HOUR = 3600


def rules() -> str:
    """Return the rules of the error of estimates, of one objective: 99 % within 500 ms."""
    objective = {"name": "o", "target": "99%", "indicator": {"kind": "latency", "threshold": "500ms"}}
    [text] = [
        artifact.text
        for artifact in artifacts(read([("o.yaml", yaml.safe_dump(objective))]).objectives, Options())
        if artifact.name == "slo-o.yml"
    ]
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    return rule_file({"slo": recording_rules_for(rules, names.ESTIMATE_ERROR)})


def served(
    model: str, source: str, *, instance: str = "a", error: float | None = None, blur: int = 0, slow: int = 0
) -> dict[str, str]:
    """Return a model with 100 requests a scrape, `slow` of them estimated and `blur` of them uncertain."""
    own = f'instance="{instance}", model="{model}", version="1"'
    of_signal = f'{own}, signal="request"'
    within = f'{state.REQUESTS_WITHIN}{{{of_signal}, le="0.5", bound='
    steps = f"x{SCRAPES}"
    written = {
        f"{state.REQUEST_DURATION.count}{{{own}}}": f"0+100{steps}",
        f'{state.REQUEST_DURATION.bucket}{{{own}, le="0.5"}}': f"0+{100 - slow}{steps}",
        f'{state.DISTRIBUTION_SOURCE}{{{of_signal}, source="{source}"}}': f"1+0{steps}",
        f'{within}"least"}}': f"0+{100 - slow - blur}{steps}",
        f'{within}"most"}}': f"0+{100 - slow}{steps}",
    }
    if error is not None:
        written[f'{state.DISTRIBUTION_ERROR}{{{of_signal}, le="0.5"}}'] = f"{error}+0{steps}"
        written[f'{state.DISTRIBUTION_ERROR}{{{of_signal}, le="2.0"}}'] = f"0.7+0{steps}"
    return written


@pytest.mark.real
@pytest.mark.parametrize("tool", newest(promtools()), ids=str)
def test_the_error_of_an_estimate_is_recorded_for_each_group(tool: Path, tmp_path: Path) -> None:
    """The stated error or the width of the guaranteed bounds, whichever is less; none where the source is exact."""
    series: Mapping[str, str] = {
        **served("stated", "decomposed", error=0.02, blur=10),
        **served("bounded", "decomposed", error=0.2, blur=10),
        **served("means", "sampled_mean", blur=30),
        **served("traced", "trace", blur=30),
        **served("mixed", "decomposed", error=0.02, blur=10),
        **served("mixed", "sampled_mean", instance="b", blur=30),
        # What was uncertain before is certain now: the lower bound grows by more than the upper one.
        **served("late", "decomposed", blur=-1),
    }

    [samples] = evaluated(
        tool, tmp_path, rules(), series, [(names.ESTIMATE_ERROR, 2 * HOUR)], interval=15, evaluation=60
    )

    errors = {labels["model"]: round(value, 4) for labels, value in samples}
    assert {"stated": 0.02, "bounded": 0.1, "means": 0.3, "mixed": 0.2, "late": 0.0} == errors
    assert {"o"} == {labels[names.SLO] for labels, _ in samples}


def test_one_request_to_trace_is_no_plural() -> None:
    """The page of an objective told its reader to let Triton trace 1 requests."""
    row = GroupStatus("o", "latency", {"model": "m"}, target=0.99, threshold_seconds=1.0, sli=0.0)

    assert "let Triton trace 1 request (" in settled_by(row, "decomposed")
