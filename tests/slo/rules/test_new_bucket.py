"""Test a histogram that gets a bucket for its objective hours after its count began, by an exporter restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promtool import alerting_groups, alerting_rule_file, evaluated, rule_file
from support.tools import promtools, shared_out
from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read

HOUR = 3600
BEGAN = 1.5 * HOUR
"""When the exporter was started with the bucket; requests come at one a second, all of them in time."""
TEXT = "{name: fast, target: 99%, indicator: {kind: latency, threshold: 150ms}}"
"""An objective whose threshold is between the default buckets."""

OTHERS = {"alone": 0, "beside": 1}
"""Model -> how many servers beside the exporter's had the bucket all the time."""
DEALT = [(tool, since) for tool, cases in shared_out((0.0, BEGAN + 60)).items() for since in cases]
"""Since when there are rules."""


def _series(instance: str, *, renewed: bool, model: str = "m") -> dict[str, str]:
    """Return an exporter that was started anew with the bucket, or one that always had it."""
    labels = f'model="{model}",version="1",instance="{instance}"'
    before, after = int(BEGAN / 15), int(2 * HOUR / 15)
    count = f"0+15x{before - 1} 0+15x{after}" if renewed else f"0+15x{before + after}"
    bucket = f"_x{before} 0+15x{after}" if renewed else count
    histogram = state.REQUEST_DURATION
    return {
        f"{histogram.count}{{{labels}}}": count,
        f'{histogram.bucket}{{{labels},le="0.15"}}': bucket,
        f'{state.DISTRIBUTION_SOURCE}{{{labels},signal="request",source="trace"}}': f"1x{before + after}",
        f"{triton.REQUEST_SUCCESS}{{{labels}}}": count,
    }


@pytest.mark.real
@pytest.mark.parametrize(("tool", "rules_since"), DEALT)
def test_what_came_before_the_bucket_is_neither_good_nor_bad(
    tool: Path, rules_since: float, tmp_path: Path
) -> None:
    """No window takes earlier requests for failures, nothing fires, and later requests all count."""
    [objective] = read([("o.yaml", TEXT)]).objectives
    [made] = [artifact for artifact in artifacts([objective], Options()) if artifact.name == "slo-fast.yml"]
    windows = [names.sli_error(window) for window in ("5m", "1h", "6h", "30d")]
    groups = alerting_groups(made.text, *windows, names.SLI_EVENTS_SUM)
    for rule in (rule for group in groups for rule in group["rules"]):
        rule["expr"] = f"(\n{rule['expr']}\n)\nand on () (vector(time()) >= {rules_since:.0f})"
    series: dict[str, str] = {}
    for model, others in OTHERS.items():
        series |= _series("a", renewed=True, model=model)
        for number in range(others):
            series |= _series(f"b{number}", renewed=False, model=model)
    moments = [BEGAN + minutes * 60 for minutes in (3, 6, 12, 35, 65, 110)]
    bad = [(f"max({window}) > 1e-9", at) for window in windows for at in moments]
    fired = ('count(ALERTS{alertname!="TritonSLOUnknown"})', BEGAN + 2 * HOUR - 60)
    total = f'{names.SLI_EVENTS_SUM}{{event="total"}}'
    every = f"sum by (model) ({total}) - sum by (model) ({total} offset 1h)", BEGAN + 110 * 60
    caught_up = f"sum by (model) ({total})", BEGAN + 65 * 60
    *errors, alerts, counted, since = evaluated(
        tool,
        tmp_path,
        rule_file({group["name"]: group["rules"] for group in groups}),
        series,
        [*bad, (f"{fired[0]} or vector(0)", fired[1]), every, caught_up],
        interval=15,
        evaluation=60,
    )

    assert [] == [asked for asked, error in zip(bad, errors, strict=True) if error]
    assert [({}, 0.0)] == alerts
    requests, so_far = ({labels["model"]: value for labels, value in answer} for answer in (counted, since))
    for model, others in OTHERS.items():
        assert pytest.approx((1 + others) * HOUR, rel=0.02) == requests[model], model
        assert so_far[model] > (1 + others) * 0.98 * HOUR, model


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
def test_a_missing_bucket_is_a_ticket_after_a_while(tool: Path, tmp_path: Path) -> None:
    """A setting that prevents measuring is not a page; in the minutes that a restart takes there is no alert."""
    [objective] = read([("o.yaml", TEXT)]).objectives
    [made] = [artifact for artifact in artifacts([objective], Options()) if artifact.name == "slo-fast.yml"]
    fired = 'count by (alertname, severity) (ALERTS{alertstate="firing"})'

    early, late = evaluated(
        tool,
        tmp_path,
        alerting_rule_file(made.text),
        _series("a", renewed=True),
        [(fired, 9 * 60.0), (fired, 12 * 60.0)],
        interval=15,
        evaluation=30,
    )

    assert [] == early
    assert [({"alertname": names.UNKNOWN_ALERT, "severity": "warning"}, 1.0)] == late
