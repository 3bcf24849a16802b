"""Test servers that restart one after the other: no page while the others serve, a page where too few do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from support.promtool import alerting_rule_file, evaluated
from support.tools import promtools
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read

STEP = 30
BEGINS, ENDS = 20, 80
"""Minutes: the first restart, and the end of the play."""
Away = tuple[int, int]
"""Minutes from when until when a server is not ready, counted from the first restart."""

RESTARTS: Mapping[str, Sequence[Sequence[Away]]] = {
    "three in turn, 1 min each": [[(2 * number, 2 * number + 1)] for number in range(3)],
    "three in turn, 6 min each": [[(8 * number, 8 * number + 6)] for number in range(3)],
    "two in turn": [[(0, 5)], [(6, 11)]],
}
OUTAGES: Mapping[str, Sequence[Sequence[Away]]] = {
    "the only one": [[(0, 5)]],
    "all at once": [[(0, 5)], [(0, 5)]],
    "two of three": [[(0, 5)], [(0, 5)], []],
    "one of three, for long": [[(0, 30)], [], []],
    "all at once, then in turn": [[(0, 2), (10, 14)], [(0, 2), (16, 20)]],
}


def series(model: str, servers: Sequence[Sequence[Away]]) -> dict[str, str]:
    """Return what the exporters beside some servers show of one model."""
    written: dict[str, str] = {}
    for number, spans in enumerate(servers):
        away = [60 * (BEGINS + start) for start, end in spans for _ in range(0, 60 * (end - start), STEP)]
        since = dict(
            zip(
                (
                    60 * (BEGINS + start) + at
                    for start, end in spans
                    for at in range(0, 60 * (end - start), STEP)
                ),
                away,
                strict=True,
            )
        )
        moments = range(0, 60 * ENDS, STEP)
        ready = ["0" if at in since else "1" for at in moments]
        lost = ["1" if at in since else "0" for at in moments]
        began = [str(since.get(at, "stale" if at - STEP in since else "_")) for at in moments]
        labels = f'model="{model}", version="1", instance="{number}"'
        expected = f'{state.MODEL_EXPECTED}{{model="{model}", instance="{number}"}}'
        written |= {
            f"{state.MODEL_READY}{{{labels}}}": " ".join(ready),
            f'{state.MODEL_STATE}{{{labels}, state="ready"}}': " ".join(ready),
            f'{state.MODEL_STATE}{{{labels}, state="unavailable"}}': " ".join(lost),
            f"{state.MODEL_NOT_READY_SINCE}{{{labels}}}": " ".join(began),
            expected: f"1x{len(moments)}",
        }
    return written


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
def test_only_an_outage_that_is_felt_pages(tool: Path, tmp_path: Path) -> None:
    """Restarts in turn are tickets at most; half of the servers at once, or one for long, is a page."""
    text = "{name: readiness, target: 99.9%, indicator: readiness}"
    [objective] = read([("o.yaml", text)]).objectives
    [made] = [
        artifact for artifact in artifacts([objective], Options()) if artifact.name == "slo-readiness.yml"
    ]
    played: dict[str, str] = {}
    for model, servers in {**RESTARTS, **OUTAGES}.items():
        played |= series(model, servers)
    firing = 'ALERTS{alertstate="firing", severity="critical", slo="readiness"}'
    asked = f"count by (model, {names.TIER}) (count_over_time({firing}[{ENDS}m]))"

    (answer,) = evaluated(
        tool,
        tmp_path,
        alerting_rule_file(made.text),
        played,
        [(asked, 60.0 * ENDS)],
        interval=STEP,
        evaluation=STEP,
    )

    assert set(OUTAGES) == {labels["model"] for labels, _ in answer}
    tiers = {labels[names.TIER] for labels, _ in answer if labels["model"] == "the only one"}
    assert {"page_fast", "page_slow"} == tiers
