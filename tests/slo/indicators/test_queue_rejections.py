"""Test rejected requests: they fail the queue objective, and the error objective on request, or are in doubt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from slo.slo_scenarios import series
from support.promtool import evaluated, recording_rules_for, rule_file
from support.tools import promtools
from triton_exporter.catalogue import models, state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

STEP, SCRAPES = 30, 40
QUEUE: dict[str, object] = {"kind": "queue", "threshold": "100ms"}
GOOD = f"0+60x{SCRAPES}"
HISTOGRAM = {
    series(state.QUEUE_DURATION.bucket, le="0.1"): GOOD,
    series(state.QUEUE_DURATION.bucket, le="+Inf"): GOOD,
    series(state.QUEUE_DURATION.count): GOOD,
}
MEANS = {series(triton.REQUEST_SUCCESS): GOOD, series(triton.QUEUE_DURATION_US): GOOD}
TIMED_OUT = {series(triton.REQUEST_FAILURE, reason="REJECTED"): f"0+20x{SCRAPES}"}
FULL = {series(state.QUEUE_FULL_ESTIMATE): f"0+20x{SCRAPES}"}


def errors(*reasons: str) -> dict[str, object]:
    return {"kind": "errors", "reasons": list(reasons)}


@pytest.mark.parametrize(
    ("indicator", "rejected", "share"),
    [
        pytest.param(QUEUE, {}, 0, id="none"),
        pytest.param(QUEUE, TIMED_OUT, 20 / 80, id="timed out in the queue"),
        pytest.param(QUEUE, FULL, 20 / 80, id="found the queue full"),
        pytest.param(QUEUE, TIMED_OUT | FULL, 40 / 100, id="both"),
        pytest.param(
            errors("REJECTED", "BACKEND", "OTHER"), TIMED_OUT | FULL, 20 / 80, id="errors, not asked"
        ),
        pytest.param(errors("REJECTED", "QUEUE_FULL"), TIMED_OUT | FULL, 40 / 100, id="errors, asked"),
        pytest.param(errors("QUEUE_FULL"), TIMED_OUT | FULL, 20 / 80, id="errors, alone"),
        # The failure counter of the model is not there yet.
        pytest.param(errors("BACKEND", "QUEUE_FULL"), FULL, 20 / 80, id="errors, beside no failure"),
    ],
)
def test_rejections_burn_the_budget_of_the_queue_and_of_errors_that_ask(
    indicator: dict[str, object], rejected: dict[str, str], share: float, tmp_path: Path
) -> None:
    """Timeouts are counted by Triton, full queues are seen by traces: each fails, and each is a request."""
    answer = recorded(indicator, names.sli_error("5m"), HISTOGRAM | MEANS | rejected, tmp_path)

    assert [pytest.approx(share, abs=1e-9)] == [value for _, value in answer]


@pytest.mark.parametrize(
    ("indicator", "shares"),
    [
        pytest.param({"kind": "errors"}, {"failure:REJECTED": 1.0}, id="not asked"),
        pytest.param(
            {"kind": "errors", "reasons": ["REJECTED", "QUEUE_FULL"]},
            {"failure:REJECTED": 1 / 3, "failure:QUEUE_FULL": 2 / 3},
            id="asked",
        ),
        pytest.param(QUEUE, {"queue": 0.25, "failure:REJECTED": 0.2, "failure:QUEUE_FULL": 0.4}, id="queue"),
    ],
)
def test_the_cause_split_has_the_rejections(
    indicator: dict[str, object], shares: dict[str, float], tmp_path: Path
) -> None:
    """Errors by reason, those that an objective counts; of a queue, the share of requests that it turned away."""
    times = {series(triton.QUEUE_DURATION_US): GOOD, series(triton.REQUEST_DURATION_US): f"0+240x{SCRAPES}"}
    full = {series(state.QUEUE_FULL_ESTIMATE): f"0+40x{SCRAPES}"}
    made = artifacts(
        [Objective(name="o", target=0.99, indicator=indicator)], Options(scrape_interval_seconds=STEP)
    )
    [rules] = [artifact.text for artifact in made if artifact.name == "slo-causes.yml"]
    there = {series(triton.REQUEST_SUCCESS): f"0+40x{SCRAPES}"} | times | TIMED_OUT | full
    query = f'{names.CAUSE_SHARE}{{{names.INDICATOR}="{indicator["kind"]}"}}'

    [answer] = evaluated(
        promtools()[0], tmp_path, rules, there, [(query, STEP * SCRAPES)], interval=STEP, evaluation=STEP
    )

    assert shares == {labels[names.CAUSE]: pytest.approx(value) for labels, value in answer}


ERRORS: dict[str, object] = {"kind": "errors"}
ERRORS_AND_FULL = errors("BACKEND", "QUEUE_FULL")
ONNX = {series(models.INFO, backend="onnxruntime", platform="onnxruntime_onnx"): f"1+0x{SCRAPES}"}
LIMITED = {series(models.QUEUE_SIZE_LIMIT, priority="2"): f"8+0x{SCRAPES}"}
CACHED = {series(models.RESPONSE_CACHE): f"1+0x{SCRAPES}"}


def fed(source: str) -> dict[str, str]:
    return {series(state.DISTRIBUTION_SOURCE, signal="queue", source=source): f"1+0x{SCRAPES}"}


@pytest.mark.parametrize(
    ("indicator", "there", "sources"),
    [
        pytest.param(QUEUE, fed("trace"), {"trace"}, id="no limit"),
        pytest.param(QUEUE, LIMITED | fed("trace"), {"trace"}, id="limited and traced"),
        pytest.param(
            QUEUE, LIMITED | fed("decomposed"), {"decomposed", "untraced_queue"}, id="limited, not traced"
        ),
        pytest.param(ERRORS, LIMITED | fed("decomposed"), {"counters"}, id="errors that do not ask"),
        pytest.param(
            ERRORS_AND_FULL, LIMITED | fed("decomposed"), {"counters", "untraced_queue"}, id="errors that ask"
        ),
        pytest.param(ERRORS_AND_FULL, LIMITED | fed("trace"), {"counters"}, id="errors that ask, traced"),
        pytest.param(ERRORS, CACHED, {"backend_counters"}, id="errors that a response cache turns into hits"),
    ],
)
def test_the_source_names_where_rejections_may_be_hidden(
    indicator: dict[str, object], there: dict[str, str], sources: set[str], tmp_path: Path
) -> None:
    """A limited queue without traces is in doubt, and so is any backend behind a response cache."""
    answer = recorded(indicator, names.SLI_SOURCE, HISTOGRAM | MEANS | ONNX | there, tmp_path)

    assert sources == {labels[names.SOURCE] for labels, _ in answer}


def recorded(
    indicator: Mapping[str, object], name: str, source: dict[str, str], tmp_path: Path
) -> list[tuple[dict[str, str], float]]:
    """Return what the rules of an objective with this indicator record as `name`."""
    objective = Objective.model_validate({"name": "o", "target": "99%", "indicator": indicator})
    made = artifacts([objective], Options(scrape_interval_seconds=STEP))
    [text] = [artifact.text for artifact in made if artifact.name == "slo-o.yml"]
    every = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    rules = rule_file({"o": recording_rules_for(every, name)})
    [answer] = evaluated(
        promtools()[-1], tmp_path, rules, source, [(name, SCRAPES * STEP)], interval=STEP, evaluation=STEP
    )
    return answer
