"""Test `tritonwatch init` on a real Triton, with and without a Prometheus that knows its latencies."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support import history
from support.conversion import objectives_in
from support.repository import Repository
from support.triton import infer, live_triton
from triton_exporter.catalogue import state
from triton_exporter.common.duration import parse_seconds
from triton_exporter.distribution.buckets import le
from triton_exporter.snapshot import IndexEntry, ModelConfig
from triton_slo.objective.propose import (
    MeasurementSource,
    ObservedModel,
    Timing,
    propose,
    queue_threshold,
    round_up,
)
from triton_slo.objective.reading import read
from tritonwatch import files
from tritonwatch.cli import main
from tritonwatch.local import TritonServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Yield a real Triton with a batching model that served 20 requests, and one that failed to load."""
    directory = tmp_path_factory.mktemp("triton")
    for model in ("embedder", "broken"):
        shutil.copytree(files.demo_models() / model, directory / "models" / model)
    with live_triton(directory / "models", directory) as triton:
        body = {"inputs": [{"name": "FEATURES", "shape": [1, 16], "datatype": "FP32", "data": [0.0] * 16}]}
        for _ in range(20):
            requests.post(
                f"{triton.http_url}/v2/models/embedder/infer", json=body, timeout=10
            ).raise_for_status()
        yield triton


def write(directory: Path, text: str) -> Path:
    (directory / "printed.yaml").write_text(text)
    return directory / "printed.yaml"


def init(server: TritonServer, *words: object) -> int:
    return main(
        ["init", "--triton", server.http_url, "--triton-metrics", server.metrics_url, *map(str, words)]
    )


@pytest.mark.real
def test_a_live_triton_gets_objectives_from_what_it_shows(server: TritonServer, tmp_path: Path) -> None:
    """The file is valid, covers all models, knows queue delays and means, and names what is not ready."""
    path = tmp_path / "new" / "objectives.yaml"

    assert 0 == init(server, "--out", path)
    assert 0 == main(["check", str(path)])
    proposed = objectives_in(path)
    assert ["readiness", "errors", "latency", "queue"] == list(proposed)
    assert {(None, None)} == {
        (objective.models.names, objective.models.regex) for objective in proposed.values()
    }
    text = path.read_text()
    assert "embedder: mean " in text
    assert "of 20 requests" in text
    assert "its batcher waits up to 2ms" in text
    assert "not ready now: broken 1 UNAVAILABLE: failed to load; /state of the exporter says why\n" in text
    assert "Internal" not in text  # the error of the model, which may hold secrets
    assert () == proposed["queue"].overrides  # its batcher's delay is far below the 100 ms of all models
    assert "rounded up to a bucket of the exporter: 1ms, 2ms, 5ms, 10ms, ..., 10s, 30s, 1m, then" in text


@pytest.mark.real
def test_an_existing_file_is_replaced_only_by_force(
    server: TritonServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user's file stays as it is, and the folder contains no drafts."""
    path = tmp_path / "objectives.yaml"
    path.write_text("mine")

    assert 2 == init(server, "--out", path)
    assert "already exists (fix: choose another file, or replace it with --force)" in capsys.readouterr().err
    assert ["mine"] == [path.read_text() for path in tmp_path.iterdir()]
    assert 0 == init(server, "--out", path, "--force")
    assert ["readiness", "errors", "latency", "queue"] == list(objectives_in(path))
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.real
def test_percentiles_in_prometheus_win_over_means(server: TritonServer, tmp_path: Path) -> None:
    """With histograms, the threshold is the 99th percentile with headroom, at a bucket's bound."""
    name, labels = state.REQUEST_DURATION.bucket, {"model": "embedder", "version": "1"}
    now = time.time()
    series = [
        (name, {**labels, "le": bound}, history.counter(now - 3600, now, 60, share))
        for bound, share in ((le(0.05), 0.0), (le(0.1), 10.0), ("+Inf", 10.0))
    ]
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        assert 0 == init(server, "--out", tmp_path / "o.yaml", "--prometheus", url)

    [override] = objectives_in(tmp_path / "o.yaml")["latency"].overrides
    # p99 of a bucket from 50 to 100 ms is 99.5 ms; half as much again is below 200 ms.
    assert "200ms" == override.threshold
    assert "embedder: p99 99.5ms" in (tmp_path / "o.yaml").read_text()


@pytest.mark.real
@pytest.mark.parametrize("address", ["http://127.0.0.1:1/metrics", "API/v2", "API/metrics"])
def test_without_metrics_nothing_is_proposed(
    server: TritonServer, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Objectives without a measurement would be guesses, about a server that the exporter cannot watch."""
    page = address.replace("API", server.http_url)
    words = ["--triton", server.http_url, "--triton-metrics", page, "--out", str(tmp_path / "o.yaml")]

    assert 1 == main(["init", *words])
    assert f"tritonwatch init: Triton's metrics at {page}: cannot be read (" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.real
def test_five_percent_of_slow_requests_are_seen(tmp_path: Path) -> None:
    """A model that answers in 40 ms, and each twentieth time in 600 ms, gets an objective that these violate."""
    repository = Repository(tmp_path / "models")
    code = repository.model("ranker") / "1" / "model.py"
    slow = "0.04 if self.executions % 20 else 0.6"
    code.write_text(code.read_text().replace("time.sleep(self.delay)", f"time.sleep({slow})"))
    with live_triton(repository.path, tmp_path) as triton:
        assert {200} == {infer(triton, "ranker") for _ in range(40)}
        assert 0 == init(triton, "--out", tmp_path / "o.yaml")

    [override] = objectives_in(tmp_path / "o.yaml")["latency"].overrides
    assert parse_seconds(str(override.threshold)) < 0.6


@pytest.mark.real
def test_several_tritons_are_one_project(
    server: TritonServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The models of all get objectives, and each Triton its exporter."""
    repository = Repository(tmp_path / "models")
    repository.model("ranker")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    with live_triton(repository.path, tmp_path) as other:
        tritons = (server, other)
        words = [word for each in tritons for word in ("--triton", each.http_url)]
        pages = [word for each in tritons for word in ("--triton-metrics", each.metrics_url)]
        assert 2 == main(["init", *words, *pages[:2]])
        assert "--triton-metrics: 1 addresses for 2 Tritons" in capsys.readouterr().err
        assert 2 == main(["init", *words])
        assert "cannot all have their metrics at port 8002" in capsys.readouterr().err
        assert 0 == main(["init", *words, *pages])
        capsys.readouterr()
        main(["doctor", "--gpu=none", "--watch=10ms"])
        asked = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Triton 2.")]
        assert [f" at {each.http_url}, " in line for each, line in zip(tritons, asked, strict=True)] == [
            True
        ] * 2
        main(["doctor", "--gpu=none", "--watch=10ms", "--json", *words[2:], *pages[2:]])
        assert {other.http_url} == {each["triton"] for each in json.loads(capsys.readouterr().out)}

    assert 0 == main(["generate"])
    proposed = Path("objectives/proposed.yaml").read_text()
    assert "embedder: mean " in proposed
    assert "ranker: no requests measured yet" in proposed
    assert [
        {
            "targets": [f"127.0.0.1:{9401 + number}"],
            "labels": {"instance": each.http_url.removeprefix("http://")},
        }
        for number, each in enumerate(tritons)
    ] == yaml.safe_load(Path("generated/targets/triton.yml").read_text())

    project = Path("tritonwatch.yaml").read_text()
    Path("x/y").mkdir(parents=True)
    monkeypatch.chdir("x/y")
    assert 2 == main(["init", *pages])
    assert "--out ../../objectives/proposed.yaml: already exists" in capsys.readouterr().err
    Path("../../objectives/proposed.yaml").write_text("old")
    assert 1 == main(["init", "--force", *pages])  # the other one has stopped
    assert f"Triton at {other.http_url}: does not answer" in capsys.readouterr().err
    second = f"- 127.0.0.1:9402={other.http_url},{other.metrics_url}\n"
    assert second in project
    only = project.replace(second, "")
    Path("../../tritonwatch.yaml").write_text(only.replace("prometheus: http://127.0.0.1:9090\n", ""))
    assert 0 == main(["init", "--force", *pages[:2]])
    assert "embedder: mean " in Path("../../objectives/proposed.yaml").read_text()
    assert [] == list(Path().iterdir())


def test_without_any_triton_init_says_where_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line or in the project file, by the key that the other verbs read."""
    monkeypatch.chdir(tmp_path)
    assert 1 <= main(["init"])
    fix = "give --triton URL, or write it into tritonwatch.yaml as tritons"
    assert f"--triton: is missing (fix: {fix})" in capsys.readouterr().err


def test_an_absent_triton_is_one_line_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a server no file is written."""
    assert 1 == main(["init", "--triton", "127.0.0.1:1", "--out", str(tmp_path / "o.yaml")])
    assert "Triton at http://127.0.0.1:1: does not answer (refused)" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "address", ["http://h:99999", "http://[::1", "ftp://h", "", "http://me:pw@h", "http://h/?a"]
)
def test_a_malformed_address_is_wrong_usage(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped address is reported before anything is asked or written."""
    assert 2 == main(["init", "--triton", address, "--out", "-"])
    assert capsys.readouterr().err.startswith("tritonwatch init: --triton")


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=20), st.text(max_size=40), st.floats(0, 500) | st.none()),
        max_size=5,
        unique_by=lambda pair: pair[0],
    )
)
def test_hostile_names_and_messages_stay_inside_the_file(models: list[tuple[str, str, float | None]]) -> None:
    """For any names of models and messages of Triton, the proposal is valid and has the same objectives."""
    observed = [
        ObservedModel(
            name, (IndexEntry(name, "1", "UNAVAILABLE", reason),), None, Timing(1, mean), Timing(1, mean)
        )
        for name, reason, mean in models
        if not any(0xD800 <= ord(character) <= 0xDFFF for character in name)
    ]
    text = propose(observed, MeasurementSource())

    documents = yaml.safe_load(text)
    assert ["readiness", "errors", "latency", "queue"] == [
        objective["name"] for objective in documents["objectives"]
    ]
    named = {
        n for o in documents["objectives"] for override in o.get("overrides", ()) for n in override["models"]
    }
    assert named <= {model.name for model in observed}
    assert () == read([("o.yaml", text)]).problems


def test_a_queue_threshold_allows_for_the_batcher_but_not_for_saturation() -> None:
    """Five batch delays are allowed; a queue measured to be long is not made the promise."""
    batching = ModelConfig("m", dynamic_batching=True, max_queue_delay_microseconds=100_000)

    assert 0.5 == queue_threshold(ObservedModel("m", config=batching))
    assert 0.1 == queue_threshold(ObservedModel("m", queue=Timing(p99=7.0)))
    assert 0.01 == queue_threshold(ObservedModel("m", queue=Timing(p99=0.0001)))


def test_ordinary_waits_for_a_slow_model_do_not_page() -> None:
    """One instance of 100 ms with four requests a second (M/D/1): 0.1 % wait over 400 ms; at twelve all do."""
    ordinary = ObservedModel("m", request=Timing(500, mean=0.137), queue=Timing(500, mean=0.037))
    saturated = ObservedModel("m", request=Timing(500, mean=7.1), queue=Timing(500, mean=7.0))

    assert 0.5 == queue_threshold(ordinary)
    assert 0.5 == queue_threshold(saturated)
    assert "alerts from the start" not in propose([ordinary], MeasurementSource())


def test_a_heavy_tail_is_seen_and_an_ordinary_one_is_not() -> None:
    """Five percent at 600 ms violate the objective, and the comment says so; ordinary times do not."""
    heavy = Timing(p90=0.048, p99=0.6)

    assert 0.2 == heavy.threshold(1.0)
    assert 0.5 == Timing(100, mean=0.95 * 0.05 + 0.05 * 0.6).threshold(1.0)
    assert "m: p99 600ms: longer than the threshold, so this alerts from the start" in propose(
        [ObservedModel("m", request=heavy)], MeasurementSource()
    )
    # Exponentially distributed, with a mean of 40 ms: the threshold is above the 99th percentile.
    assert Timing(p90=0.092, p99=0.184).threshold(1.0) > 0.184
    assert Timing(100, mean=0.04).threshold(1.0) > 0.184


def test_few_light_requests_make_no_tight_promise() -> None:
    """Test requests to an idle server show nothing of its queue under traffic."""
    assert 0.1 == Timing(20, mean=0.0003).threshold(1.0)
    assert 0.1 == queue_threshold(ObservedModel("m", queue=Timing(20, mean=0.0001)))


def test_a_queue_or_failures_that_alert_from_the_start_are_named() -> None:
    """A value beyond the proposed target today is in a comment, with what to do."""
    slow = ObservedModel("slow", queue=Timing(90, mean=0.2), request=Timing(90, mean=0.3), failed=3.0)
    text = propose([slow, ObservedModel("fine", request=Timing(1000, mean=0.3))], MeasurementSource())

    assert "slow: mean 200ms of 90 requests: near the threshold, so this alerts from the start" in text
    assert "slow: 3 of 93 requests failed since Triton's start: more than the target allows" in text
    assert "fine: 0 of" not in text
    assert () == read([("o.yaml", text)]).problems


@pytest.mark.parametrize(("seconds", "bound"), [(0.0, 0.001), (0.2, 0.2), (0.2001, 0.5), (60, 60), (61, 120)])
def test_thresholds_are_bounds_of_buckets(seconds: float, bound: float) -> None:
    """A threshold between two buckets could not be measured."""
    assert bound == round_up(seconds)
