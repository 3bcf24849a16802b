"""Test a model that exposes series of Prometheus, the rules or the exporter, with a real Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from exporters.faults import body, faulty
from support.exporter import RunningExporter, exporting
from support.history import running
from support.tools import newest, prometheuses
from support.waiting import eventually
from triton_exporter.catalogue import METRICS, own, state, triton
from triton_exporter.exposition.scrape import is_reserved
from triton_exporter.exposition.write import TEXT
from triton_slo import names

pytestmark = pytest.mark.real

_FORGED = f"""\
# TYPE up gauge
up 0
# TYPE ALERTS gauge
ALERTS{{alertname="TritonDown",alertstate="firing",severity="critical"}} 1
ALERTS_FOR_STATE{{alertname="TritonDown",severity="critical"}} 1
scrape_samples_scraped 1
# TYPE {names.PERIOD_BUDGET_REMAINING} gauge
{names.PERIOD_BUDGET_REMAINING}{{slo="errors"}} 99
{names.RECORDED_PREFIX}anything 1
# TYPE {state.MODEL_READY} gauge
{state.MODEL_READY}{{model="a",version="1"}} 1
"""
_RENAMED = 'renamed{__name__="up"} 0\n'
_OWN = f'# TYPE {triton.INFERENCE_COUNT} counter\n{triton.INFERENCE_COUNT}{{model="a",version="1"}} 7\n'


@pytest.mark.parametrize("prometheus", newest(prometheuses()), ids=lambda path: str(path.parent))
def test_a_model_cannot_forge_series_of_prometheus_or_of_the_rules(prometheus: Path, tmp_path: Path) -> None:
    """The page bare fools Prometheus; through the exporter only the model's own series arrive."""
    with (
        faulty(
            {
                "/metrics": body((_OWN + _FORGED).encode(), Content_Type=TEXT),
                "/all": body((_OWN + _FORGED + _RENAMED).encode()),
            }
        ) as target,
        exporting(target.url, f"{target.url}/all") as exporter,
    ):
        actual = _stored(prometheus, tmp_path, target.port, exporter)
        page = exporter.scrape()

    series = ("up", "ALERTS", "ALERTS_FOR_STATE", names.PERIOD_BUDGET_REMAINING)
    assert [0.0, 1.0, 1.0, 99.0] == [actual.get(("bare", name)) for name in series]
    assert [1.0, None, None, None] == [actual.get(("exporter", name)) for name in series]
    assert 7 == actual["exporter", str(triton.INFERENCE_COUNT)]
    assert actual["exporter", "scrape_samples_scraped"] > 1
    assert ("exporter", f"{names.RECORDED_PREFIX}anything") not in actual
    # Each of the scrapes counted the same bad lines.
    assert 0 < (page.value(own.BAD_LINES, kind="collision") or 0)
    assert 0 < (page.value(own.BAD_LINES, kind="syntax") or 0)


def test_every_name_that_the_rules_record_is_reserved() -> None:
    """What a rule records can never come from a model."""
    recorded = [
        text
        for text in vars(names).values()
        if isinstance(text, str) and ":" in text.strip(":") and "//" not in text
    ]

    assert len(recorded) > 10
    assert [] == [name for name in recorded if " " not in name and not is_reserved(name)]
    assert not any(is_reserved(metric.name) for metric in METRICS if metric.name.startswith("nv_"))
    assert not is_reserved("vllm:num_requests_running")


def _stored(
    prometheus: Path, tmp_path: Path, bare: int, exporter: RunningExporter
) -> dict[tuple[str, str], float]:
    """Return the last value of each series by job and name, after both jobs were scraped twice."""
    jobs = [
        {
            "job_name": job,
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "static_configs": [{"targets": [at]}],
        }
        for job, at in (("bare", f"127.0.0.1:{bare}"), ("exporter", exporter.url.removeprefix("http://")))
    ]
    with running(tmp_path, {"scrape_configs": jobs}, server=prometheus) as url:
        twice = "count_over_time(scrape_duration_seconds[1m]) > 1"
        eventually(lambda: len(_query(url, twice)) == 2, "a job was never scraped twice")
        return _query(url, '{job=~".+"}')


def _query(url: str, expression: str) -> dict[tuple[str, str], float]:
    answer = requests.get(f"{url}/api/v1/query", {"query": expression}, timeout=5).json()
    return {
        (sample["metric"]["job"], sample["metric"].get("__name__", "")): float(sample["value"][1])
        for sample in answer["data"]["result"]
    }
