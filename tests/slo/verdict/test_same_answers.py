"""Test that `status`, `gate`, `report` and the web page have the same answers about the same events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from support import history, web_fleet
from support.recorded_period import END, START, MadeGroup, MadeObjective, Span
from support.thorough import examples
from triton_exporter.catalogue import own, state
from triton_exporter.common.duration import in_words
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
    """Return a month of events that spend about so much of the budget, and what rules record of it at its end."""
    group = MadeGroup(model, spent * 0.001, seed)
    error, total = group.truth((START, END))
    values = {
        names.PERIOD_BUDGET_REMAINING: 1 - error / total / 0.001,
        names.ERROR_BUDGET_RATIO: 0.001,
        **{names.sli_error(window): burn * 0.001 for window in ("5m", "1h", "6h", "3d")},
    }
    more: list[tuple[str, Mapping[str, str], Span, float]] = [
        (name, {}, HOUR, value) for name, value in values.items()
    ]
    more.append((names.SLI_SOURCE, {names.SOURCE: "histogram"}, HOUR, 1.0))
    more.append((names.COUNTER, {names.EVENT: names.TOTAL}, HOUR, 1.0))
    if unknown:
        alert = {"alertname": names.UNMEASURED_ALERT, names.REASON: "no_bucket"}
        more.append((names.ALERTS, {**alert, "alertstate": "firing"}, HOUR, 1.0))
        more.append((f"{names.ALERTS}_FOR_STATE", alert, HOUR, END - 3600))
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
    verdicts = {(judgement["slo"], judgement["model"]): judgement["verdict"] for judgement in judgements}
    reported = {
        (objective["slo"], group["group"]["model"]): group
        for owner in owners
        for objective in owner["objectives"]
        for group in objective["groups"]
    }
    assert {group[:2] for group in drawn} == set(reported) == set(verdicts)
    for row in rows:
        key = row["slo"], row["group"]["model"]
        # No alert fires here, so that only the burning budget gives `hold`.
        assert (row["state"] in ("ok", "burning")) == (verdicts[key] == "promote"), row
        if row["state"] == "unknown":
            continue
        assert pytest.approx(1 - row["budget_left"], rel=0.005) == reported[key]["budget_spent"], row
        assert (row["budget_left"] <= 0) == (reported[key]["result"] == "missed"), row


MARCH = datetime.fromisoformat("2026-03-01T00:00:00+01:00").timestamp()
BEFORE = 3600
"""Seconds of February that the rules record."""
FAILING, FAILING_BEFORE = 0.005, 0.02
"""Shares of failed requests in March and in February, which overspends the budget of 1 %."""
MOMENTS = (60, 600, 5400)
"""Seconds of March at which the answers are compared."""


def month_begins() -> Iterator[history.Series]:
    """Yield what a calendar objective's rules record around the start of March, and the exporter's series."""
    group = {names.SLO: "month", names.INDICATOR: "errors", "model": "m", "version": "1"}
    of_objective = {names.SLO: "month", names.INDICATOR: "errors"}
    times = [MARCH - BEFORE + at for at in range(0, BEFORE + 5401, 30)]
    for event, shares in ((names.ERROR, (FAILING_BEFORE, FAILING)), (names.TOTAL, (1.0, 1.0))):
        points, counted = [], 0.0
        for at in times:
            counted += 500 * shares[at > MARCH]
            points.append((at, counted))
        yield names.COUNTER, {**group, names.EVENT: event}, points
        yield names.COPY, {**group, names.EVENT: event}, points
    for name, value in (
        (names.OBJECTIVE_RATIO, 0.99),
        (names.ERROR_BUDGET_RATIO, 0.01),
        (names.COUNTER_SINCE, times[0]),
        (names.sli_error("5m"), FAILING),
    ):
        yield name, group, [(at, value) for at in times]
    yield names.PERIOD_DAYS, of_objective, [(at, 30.0) for at in times]
    yield names.INFO, {**of_objective, "window": "month, Europe/Berlin"}, [(at, 1.0) for at in times]
    yield names.SLI_SOURCE, {**group, names.SOURCE: "counters"}, [(at, 1.0) for at in times]
    yield str(own.LAST_SUCCESS), EXPORTER, [(at, at) for at in times]
    yield str(state.MODEL_READY), {**EXPORTER, "model": "m", "version": "1"}, [(at, 1.0) for at in times]


@pytest.mark.real
def test_all_have_the_same_answers_when_a_month_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its first half minute on: status, gate, pages and report; February is in no answer."""
    series = history.openmetrics(month_begins())
    with history.serve(series, tmp_path) as prometheus, web_fleet.pages(prometheus) as (url, _):
        for moment in MOMENTS:
            at = str(MARCH + moment)
            asked = ["--prometheus", prometheus, "--at", at]
            status = printed(capsys, "status", *asked, "--json")
            [judgement] = printed(capsys, "gate", *asked, "--json")["judgements"]
            [row] = status["group_statuses"]
            page = requests.get(f"{url}/?at={at}", timeout=10).text
            api = requests.get(f"{url}/api/status?at={at}", timeout=10).json()
            answer = requests.get(f"{url}/objective?slo=month&model=m&version=1&at={at}", timeout=10)
            drawn = requests.get(
                f"{url}/api/objective?slo=month&model=m&version=1&at={at}", timeout=10
            ).json()

            assert status == api
            assert [row["state"]] == web_fleet.states(page)
            assert 200 == answer.status_code
            # Minutes of a month say nothing about its budget: no answer has a number of it.
            words = f"not known yet: {in_words(BEFORE + moment)} of data, of 30d"
            assert f"budget left: {words}" in judgement["reason"]
            assert words in page
            assert words in answer.text
            assert {None} == set(drawn["charts"][0]["curves"][0]["values"])
            assert pytest.approx(1 - FAILING, abs=1e-4) == row["sli"]
            assert row["budget_left"] is None
        report = printed(
            capsys, "report", "--prometheus", prometheus, "--period", "2026-03", "--format", "json"
        )
    [objective_reported] = report["owners"][0]["objectives"]
    [group] = objective_reported["groups"]
    assert pytest.approx(90_000, rel=0.01) == group["events"]
    assert pytest.approx(row["sli"], abs=1e-4) == group["sli"]
    assert group["budget_spent"] is None
