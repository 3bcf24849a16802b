"""`status`, `gate`, `report` and the web page have the same answers about the same events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from support import history, web_fleet
from support.recorded_period import END, START, MadeGroup, MadeObjective, Span
from support.thorough import examples
from triton_exporter.catalogue import own, state
from triton_slo import names
from tritonwatch.cli import main

MODELS = ("a", "b<i>", '"c')
HOUR = (END - 3600, END)
EXPORTER = {"job": "triton-exporter", "instance": "a:9401"}
groups = st.tuples(
    st.sampled_from(("fast", "sure")),
    st.sampled_from(MODELS),
    st.sampled_from((0.0, 0.3, 0.98, 1.02, 3.0)),
    st.floats(0, 20),
    st.sampled_from((False, False, True)),
)


def recorded(model: str, spent: float, burn: float, unknown: bool, seed: int) -> MadeGroup:
    """A month of events that spend about so much of the budget, and what rules record of it at its end."""
    group = MadeGroup(model, spent * 0.001, seed)
    error, total = group.truth((START, END))
    values = {
        names.PERIOD_BUDGET_REMAINING: 1 - error / total / 0.001,
        names.PERIOD_BURN_RATE: error / total / 0.001,
        names.CURRENT_BURN_RATE: burn,
        names.LAST_SEEN: END,
        **{names.sli_error(window): burn * 0.001 for window in ("5m", "1h", "6h", "3d")},
    }
    more: list[tuple[str, Mapping[str, str], Span, float]] = [
        (name, {}, HOUR, value) for name, value in values.items()
    ]
    more.append((names.SLI_SOURCE, {names.SOURCE: "histogram"}, HOUR, 1.0))
    if unknown:
        more.append((names.UNKNOWN, {names.REASON: "stuck"}, HOUR, 1.0))
    return replace(group, more=more)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    main(list(words))
    return json.loads(capsys.readouterr().out)


@pytest.mark.real
@examples(2, thorough=25)
@given(st.lists(groups, min_size=3, max_size=6, unique_by=lambda group: group[:2]))
def test_all_have_the_same_answers_on_random_histories(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    drawn: list[tuple[str, str, float, float, bool]],
) -> None:
    """September has the 30 days of the window: its report is about the events of the status at its end."""
    series: list[Any] = [
        (str(own.LAST_SUCCESS), EXPORTER, [(END - 7, END - 7)]),
        *(
            (str(state.MODEL_READY), {**EXPORTER, "model": model, "version": "1"}, [(END - 7, 1.0)])
            for model in MODELS
        ),
    ]
    for slo in sorted({group[0] for group in drawn}):
        own_groups = [recorded(*group[1:], seed=seed) for seed, group in enumerate(drawn) if group[0] == slo]
        series += MadeObjective(slo, "search", own_groups).series()
    with (
        history.serve(history.openmetrics(series), tmp_path_factory.mktemp("random")) as prometheus,
        web_fleet.pages(prometheus) as (url, _),
    ):
        at = ["--prometheus", prometheus, "--at", str(END)]
        status = printed(capsys, "status", *at, "--json")
        judgements = printed(capsys, "gate", *at, "--json")["judgements"]
        owners = printed(
            capsys, "report", "--prometheus", prometheus, "--period", "2025-09", "--format", "json"
        )["owners"]
        assert status == requests.get(f"{url}/api/status?at={END}", timeout=10).json()
        page = requests.get(f"{url}/?at={END}", timeout=10).text
        api = requests.get(f"{url}/api/report?period=2025-09", timeout=10).json()

    rows = status["group_statuses"]
    assert [row["state"] for row in rows] == web_fleet.states(page)
    assert owners == api["owners"]
    verdicts = {(one["slo"], one["model"]): one["verdict"] for one in judgements}
    reported = {
        (objective["slo"], group["group"]["model"]): group
        for owner in owners
        for objective in owner["objectives"]
        for group in objective["groups"]
    }
    assert {group[:2] for group in drawn} == set(reported) == set(verdicts)
    for row in rows:
        key = row["slo"], row["group"]["model"]
        # No alert fires here, which alone holds a release whose budget only burns.
        assert (row["state"] in ("ok", "burning")) == (verdicts[key] == "promote"), row
        if row["state"] == "unknown":
            continue
        assert pytest.approx(1 - row["budget_left"]) == reported[key]["budget_spent"], row
        assert (row["budget_left"] <= 0) == (reported[key]["result"] == "missed"), row
