"""Test that a real Prometheus reads the same through the exporter as from Triton itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
import requests
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from support.exporter import RunningExporter, exporting
from support.history import running
from support.repository import Repository, write
from support.tools import ROOT, newest, prometheuses, promtools
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import METRICS, Metric, models, own, state, triton
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

# A custom metric with everything that is awkward in a label.
_CUSTOM = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="my_requests", description='Says "hello" \\\\ twice', kind=pb_utils.MetricFamily.COUNTER
        )
        self.metric = self.family.Metric(labels={"path": 'C:\\\\models\\n"quoted" {braces}, = #'})
        self.metric.increment(7)
        # OpenMetrics calls the family of this one my_requests, too.
        self.other = pb_utils.MetricFamily(
            name="my_requests_total", description="Another", kind=pb_utils.MetricFamily.COUNTER
        )
        self.total = self.other.Metric(labels={"of": "all"})
        self.total.increment(3)

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(r, "X").as_numpy())])
            for r in requests
        ]
"""


@contextmanager
def _server(directory: Path, *arguments: str) -> Iterator[TritonServer]:
    repository = Repository(directory / "models")
    repository.model("echo", "1", "2", config="version_policy { all {} }")
    repository.model("custom")
    write(repository.path / "custom" / "1" / "model.py", _CUSTOM)
    repository.model("broken", **{"raise": "weights missing"})
    with live_triton(repository.path, directory, arguments=arguments) as server:
        yield server


@pytest.fixture(scope="module")
def replicas(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[tuple[TritonServer, RunningExporter]]]:
    """Two real Tritons of the same models, one with summaries, each with its exporter."""
    with ExitStack() as stack:
        pairs = []
        for number, arguments in enumerate(((), ("--metrics-config=summary_latencies=true",))):
            server = stack.enter_context(_server(tmp_path_factory.mktemp(f"replica{number}"), *arguments))
            for _ in range(3 + number):
                assert 200 == infer(server, "echo", "1")
            running = stack.enter_context(exporting(server.http_url, server.metrics_url))
            running.wait(lambda page: page.value(state.MODEL_READY, model="echo", version="2"))
            pairs.append((server, running))
        yield pairs


def _prometheus(binary: Path, directory: Path, jobs: Mapping[str, list[str]]) -> AbstractContextManager[str]:
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "scrape_configs": [
            {"job_name": job, "honor_labels": True, "static_configs": [{"targets": targets}]}
            for job, targets in jobs.items()
        ],
    }
    return running(directory, config, server=binary)


def _query(url: str, query: str) -> list[dict[str, object]]:
    answer = requests.get(f"{url}/api/v1/query", params={"query": query}, timeout=5)
    return answer.json()["data"]["result"] if answer.ok else []


def _wait(url: str, query: str, count: int) -> list[dict[str, object]]:
    def there() -> list[dict[str, object]] | None:
        samples = _query(url, query)
        return samples if len(samples) >= count else None

    return eventually(there, f"{query}: not {count} samples")


def _series(samples: list[dict[str, object]]) -> dict[str, str]:
    """Values by labels, without those that Prometheus itself adds."""
    values = {}
    for sample in samples:
        labels = {name: value for name, value in sample["metric"].items() if name not in ("job", "instance")}
        values[json.dumps(labels, sort_keys=True)] = sample["value"][1]
    return values


@pytest.mark.parametrize("binary", newest(prometheuses()), ids=lambda path: str(path.parent))
def test_prometheus_reads_the_same_through_the_exporter(
    binary: Path, replicas: list[tuple[TritonServer, RunningExporter]], tmp_path: Path
) -> None:
    """Every series of two Tritons, names, labels and values; Prometheus asks the exporter for OpenMetrics."""
    direct = [f"127.0.0.1:{server.ports.metrics}" for server, _ in replicas]
    through = [running.url.removeprefix("http://") for _, running in replicas]
    with _prometheus(binary, tmp_path / "p", {"direct": direct, "through": through}) as url:
        assert _wait(url, f'{triton.REQUEST_SUCCESS}{{model="echo",version="1"}}', 4)
        up = _wait(url, "up == 1", 4)
        for place in range(2):
            # CPU series move between two scrapes, and summaries are left out.
            other = "|".join(f"{name}.*" for name in ("nv_cpu", *sorted(triton.UNREAD)))
            mine = f'{{__name__=~"nv_.*|my_.*",__name__!~"{other}",instance="%s"}}'
            ours = _series(_wait(url, mine % through[place], 1))
            theirs = _series(_wait(url, mine % direct[place], 1))

            assert len(theirs) > 40
            assert theirs == ours
        assert 4 == len(up)
        total = _query(url, f'sum({triton.REQUEST_SUCCESS}{{job="through",model="echo"}})')
        assert "7" == total[0]["value"][1]
        ready = _query(url, f'sum by (model) ({state.MODEL_READY}{{job="through"}})')
        assert {"echo": "4", "custom": "2", "broken": "0"} == {
            sample["metric"]["model"]: sample["value"][1] for sample in ready
        }


@pytest.mark.parametrize("promtool", newest(promtools()), ids=lambda path: str(path.parent))
def test_promtool_finds_no_mistake_in_the_exporters_own_families(
    promtool: Path, replicas: list[tuple[TritonServer, RunningExporter]]
) -> None:
    """The page parses, and promtool's lint finds no mistake in the exporter's families."""
    server, exporter = replicas[1]
    for _ in range(4):
        assert 200 == infer(server, "custom", "1")
    exporter.wait(lambda page: page.series(state.REQUEST_QUANTILE) and page.series(state.QUEUE_QUANTILE))
    page = exporter.get().content
    result = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=30)
    printed = result.stdout.decode() + result.stderr.decode()

    # 3 is lint only, and Triton's own names give plenty of that.
    assert result.returncode in (0, 3), printed
    assert [] == [line for line in printed.splitlines() if line.startswith("triton_")]


def test_no_family_is_twice_on_an_openmetrics_page(
    replicas: list[tuple[TritonServer, RunningExporter]],
) -> None:
    """A counter of a model beside one that has its name with _total: both are there, under names of their own."""
    page = replicas[0][1].get(headers={"Accept": "application/openmetrics-text"}).text
    families = {family.name: family for family in text_string_to_metric_families(page)}

    types = [line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)) == len(families)
    assert [7.0] == [sample.value for sample in families["my_requests"].samples]
    assert [("my_requests_total", 3.0)] == [
        (sample.name, sample.value) for sample in families["my_requests_total"].samples
    ]


def test_every_family_the_exporter_promises_without_a_flag_is_there(
    replicas: list[tuple[TritonServer, RunningExporter]],
) -> None:
    """What the catalogue lists as always there is on the page of a plain exporter."""
    page = replicas[0][1].get().text
    always = [
        metric
        for module in (state, models, own)
        for metric in vars(module).values()
        if metric in METRICS and not metric.flag and "trace" not in metric.source + metric.name
    ]

    assert len(always) > 25
    assert [] == [metric.name for metric in always if f"# TYPE {metric} " not in page]


def test_the_summaries_that_nothing_reads_are_left_out_by_default(
    replicas: list[tuple[TritonServer, RunningExporter]],
) -> None:
    """In both formats, while the histograms read them; `--relay all` has everything."""
    server, needed = replicas[1]
    settings = Settings.read({"triton": server.http_url, "relay": "all"}, {})
    with exporting(server.http_url, server.metrics_url, relay=settings.relay) as everything:
        page = needed.wait(lambda page: page.value(state.MODEL_READY, model="echo", version="2"))
        openmetrics = needed.get(headers={"Accept": "application/openmetrics-text"}).text
        queue = {"model": "echo", "version": "1", "signal": "queue", "source": "summary"}
        assert 200 == infer(server, "echo", "1")
        needed.wait(lambda page: page.value(state.DISTRIBUTION_SOURCE, **queue))
        left_out = {name for name in triton.UNREAD if f"# TYPE {name} " in everything.scrape().text}

    assert left_out == triton.UNREAD
    assert not [name for name in left_out if name in page.text or name in openmetrics]


def test_nothing_reads_what_is_left_out() -> None:
    """No rule, dashboard, runbook or query has the name of a family that is left out."""
    folders = ("alerts", "dashboards", "slo", "compose")
    texts = [
        path.read_text()
        for folder in folders
        for suffix in ("*.py", "*.yaml", "*.yml", "*.json", "*.md")
        for path in (ROOT / folder).rglob(suffix)
        if "node_modules" not in path.parts
    ]
    constants = {name: value.name for name, value in vars(triton).items() if isinstance(value, Metric)}
    names = [f"triton.{name}" for name, value in constants.items() if value in triton.UNREAD]

    assert len(texts) > 100
    assert not [name for name in (*triton.UNREAD, *names) for text in texts if name in text]
