"""Test `tritonwatch doctor` on real servers, and on stand-ins for faults that no real server can show."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import requests

from exporters.faults import FaultyServer, body, faulty
from exporters.paced import Traffic
from support.loopback import free_ports
from support.repository import Repository, write
from support.sleeper import write_sleeper
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import triton
from triton_exporter.doctor.checks import examine
from triton_exporter.doctor.finding import Finding, TritonFacts
from triton_exporter.exposition.parse import parse
from triton_exporter.http.client import Client
from triton_exporter.snapshot import (
    BatchStatistics,
    InstanceGroup,
    ModelConfig,
    ModelStatistics,
    ModelVersion,
    QueuePolicy,
    Snapshot,
)
from triton_exporter.tracing.trace_setting import TraceSetting, fetch_setting
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

_TRACES = "Traces would show exact distributions and queue-full rejections"
PREPARED = ["--trace-config=mode=opentelemetry", "--trace-config=opentelemetry,url=http://127.0.0.1:9/v1"]


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process; return what it prints."""
    command = ["doctor", "--watch", "500ms", *arguments]
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        code = main(command)
    return subprocess.CompletedProcess(command, code, stdout.getvalue(), stderr.getvalue())


def findings(*arguments: str) -> dict[str, dict[str, str]]:
    """Return findings by title."""
    return {finding["title"]: finding for finding in json.loads(doctor("--json", *arguments).stdout)}


def at(server: TritonServer) -> tuple[str, ...]:
    """Return the options for a server."""
    return "--triton", server.http_url, "--triton-metrics", server.metrics_url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Yield a real Triton with everything set the wrong way."""
    directory = tmp_path_factory.mktemp("doctor")
    repository = Repository(directory / "models")
    repository.model("echo", config="dynamic_batching { }")
    repository.model("stream", config="model_transaction_policy { decoupled: true }")
    repository.model("broken", **{"raise": "weights missing"})
    write(repository.model("badconfig") / "config.pbtxt", "nonsense {")
    arguments = [
        "--metrics-config=counter_latencies=false",
        "--metrics-config=summary_latencies=true",
        "--http-restricted-api=statistics:admin-key=s3cret",
    ]
    with live_triton(repository.path, directory, arguments=arguments) as server:
        assert 200 == infer(server, "echo")
        yield server


@pytest.mark.real
def test_a_real_triton_with_everything_set_wrong(server: TritonServer, tmp_path: Path) -> None:
    """Each thing that hides something is named, with its flag and its price."""
    headers = tmp_path / "headers"
    headers.write_text("admin-key: s3cret\n")
    reported = findings(*at(server), "--triton-headers-file", str(headers))

    assert "counter_latencies=true" in reported["Latency counters are off"]["do"]
    assert "summary_latencies=false" in reported["Summaries are on"]["do"]
    assert "broken:1" in reported["Models failed to load"]["seen"]
    assert "--strict-readiness=false" in reported["The whole server is not ready"]["do"]
    assert "badconfig" in reported["Models are listed without a version"]["seen"]
    assert "--log-file" in reported["Failed hot reloads and broken configs are in the log only"]["do"]
    assert "echo" in reported["Queues without a limit"]["seen"]
    traces = reported[_TRACES]
    assert "0.0 requests/s, not prepared for traces" in traces["seen"]
    assert "--trace-config opentelemetry,url=http://127.0.0.1:4318/v1/traces" in traces["do"]
    assert "run `tritonwatch doctor` again while" in traces["do"]
    assert not any(word in str(traces) for word in ("rate=", "level="))
    assert "2.65 (26.01)" in reported["Triton 2.51.0 is not the newest"]["do"]
    assert "Triton restricts what the exporter reads" not in reported
    problems = [finding["grade"] for finding in reported.values()]
    assert sorted(problems, reverse=True) == problems, "problems stand first"


@pytest.mark.real
def test_a_restricted_triton_is_reported_with_the_flag_for_access(server: TritonServer) -> None:
    """Without the header the doctor lists the closed endpoints; the output is for people, the exit code 1."""
    result = doctor(*at(server))

    assert 1 == result.returncode
    assert "[problem] Triton restricts what the exporter reads\n  403 from: statistics." in result.stdout
    assert "do:   tritonwatch exporter --triton-headers-file FILE" in result.stdout
    assert result.stdout.startswith(f"Triton 2.51.0 at {server.http_url}, 4 models\n")
    assert "" == result.stderr


def test_a_closed_port_is_one_problem() -> None:
    """Nothing listens: the doctor reports it, and the usual causes why a Triton ends at its start."""
    http, metrics = free_ports(2)
    urls = (f"http://127.0.0.1:{http}", f"http://127.0.0.1:{metrics}/metrics")
    reported = findings("--triton", urls[0], "--triton-metrics", urls[1])

    assert ["Triton's API refuses connections", "Triton's metrics do not answer"] == list(reported)
    assert "--exit-on-error=false" in reported["Triton's API refuses connections"]["do"]


def test_nothing_is_advised_from_metrics_of_another_triton(newer: FaultyServer) -> None:
    """The API does not answer, and metrics of another server of the same machine do: one problem, in words."""
    [http] = free_ports(1)
    where = ("--triton-metrics", f"{newer.url}/metrics")

    assert ["Triton's metrics answer and its API does not"] == list(
        findings("--triton", f"http://127.0.0.1:{http}", *where)
    )
    result = doctor("--triton", "http://nowhere.invalid:8000", *where)
    assert 1 == result.returncode
    assert result.stdout.startswith("No Triton answers at http://nowhere.invalid:8000\n")
    assert "the host name does not resolve: check --triton and the name server" in result.stdout
    assert 1 == result.stdout.count("\n[")


_BOUNDS = ("100", "500", "2000", "5000", "+Inf")


@pytest.fixture
def newer() -> Iterator[FaultyServer]:
    """Yield a Triton newer than the wheel carries, as its documentation describes it."""
    histogram = "".join(
        f'{triton.FIRST_RESPONSE_MS.bucket}{{model="a",version="1",le="{le}"}} 0\n' for le in _BOUNDS
    )
    text = f"# TYPE {triton.FIRST_RESPONSE_MS} histogram\n{histogram}"
    config = {"name": "a", "instance_group": [{"kind": "KIND_GPU", "count": 1, "gpus": [0]}]}
    answers = {
        "/metrics": body(text.encode()),
        "/v2": body(b'{"name":"triton","version":"2.66.0","extensions":[]}'),
        "/v2/repository/index": body(b'[{"name":"a","version":"1","state":"READY"}]'),
        "/v2/models/a/versions/1/config": body(json.dumps(config).encode()),
        "/v2/models/stats": body(b'{"error":"no namespace"}', "400 Bad Request"),
    }
    with faulty(answers) as server:
        yield server


@pytest.mark.parametrize(
    ("version", "decoupled", "needed"),
    [
        ("2.51.0", False, "26.01 (2.65)"),
        ("2.51.0", True, "24.11 (2.52)"),
        ("2.55.0", False, "26.01 (2.65)"),
        ("2.55.0", True, "--metrics-config histogram_latencies=true"),
        ("2.66.0", False, "--metrics-config histogram_latencies=true"),
    ],
)
def test_what_a_first_response_needs_is_named(version: str, decoupled: bool, needed: str) -> None:
    """Where the histogram is missing: the version that can have it, or the flag that shows it."""
    key = ModelVersion("a", "1")
    snapshot = Snapshot(0, triton_version=version, configs={key: ModelConfig("a", decoupled=decoupled)})
    reported = examine(TritonFacts("http://t", "http://t/metrics", snapshot))
    about = [finding for finding in reported if "first_response" in finding.seen]

    assert 1 == len(about)
    assert needed in about[0].do


def test_default_buckets_missing_gpus_and_namespaces_are_reported(newer: FaultyServer) -> None:
    """Findings about default buckets, GPU models without GPU data, and statistics that namespacing breaks."""
    where = ("--triton", newer.url, "--triton-metrics", f"{newer.url}/metrics")
    reported = findings(*where, "--gpu", "triton")

    assert "histogram_options: { buckets:" in reported["Histogram buckets are Triton's defaults"]["do"]
    assert "--dcgm-url" in reported["No source of GPU data answers"]["do"]
    assert "--model-namespacing=false" in reported["Statistics do not answer"]["do"]
    assert not any("newest" in title for title in reported)


def test_the_wrong_path_of_the_metrics_port_is_reported(newer: FaultyServer) -> None:
    """Triton's metrics port answers 200 with nothing to any other path."""
    reported = findings("--triton", newer.url, "--triton-metrics", f"{newer.url}/v2/health/ready")

    finding = reported["Triton's metrics do not answer"]
    assert finding["seen"].endswith("the page is empty; Triton's metrics are at /metrics")
    assert finding["do"].startswith("check --triton-metrics")


def test_no_model_name_steers_the_terminal_of_the_doctor(newer: FaultyServer) -> None:
    """Escape sequences, line ends and bidirectional characters of a model's name are printed as escapes."""
    index = [{"name": "a\n\x1b[2J\u202e", "version": "1", "state": "UNAVAILABLE", "reason": "no"}]
    newer.answers["/v2/repository/index"] = body(json.dumps(index).encode())
    text = doctor("--triton", newer.url, "--triton-metrics", f"{newer.url}/metrics").stdout

    assert r"a\n\x1b[2J\u202e:1" in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_the_doctor_only_reads(newer: FaultyServer) -> None:
    """No request of the doctor can change a server."""
    findings("--triton", newer.url, "--triton-metrics", f"{newer.url}/metrics")

    assert {("POST", "/v2/repository/index")} == {
        (method, path) for method, path, _ in newer.requests if method != "GET"
    }


@pytest.mark.parametrize(
    ("rate", "advice"),
    [
        (0, "again while the models have their usual traffic"),
        (15, '"trace_rate": "1"}\' u/v2/trace/setting (traces every request, 15.0 a second at this traffic'),
        (50, '"trace_rate": "3"}\' u/v2/trace/setting (traces one request in 3, 16.7 a second'),
        (199.9, "--trace-config level=TIMESTAMPS --trace-config rate=10)"),
        (3000, "trace only while there are fewer than 2000 requests/s"),
    ],
)
def test_the_recommended_trace_rate_follows_the_traffic(rate: float, advice: str) -> None:
    """About 20 requests a second are traced, failed ones too; no rate is recommended for no traffic, nor for too much."""

    def page(count: float) -> bytes:
        names = (triton.REQUEST_SUCCESS, triton.REQUEST_FAILURE)
        lines = (f'# TYPE {name} counter\n{name}{{model="a",version="1"}} {count / 2}\n' for name in names)
        return "".join(lines).encode()

    first, second = parse(page(7)), parse(page(7 + 10 * rate))
    facts = TritonFacts("u", "m", Snapshot(1.0, live=True), {}, first, second, watched_seconds=10.0)
    reported = {finding.title: finding for finding in examine(facts)}

    finding = reported[_TRACES]
    assert advice in finding.do
    assert ("rate=" in finding.do) == (0 < rate < 2000)


OFF = TraceSetting(False, 1000, -1, "opentelemetry")
EVERY_FOURTH = TraceSetting(True, 4, -1, "opentelemetry")
EVERY = TraceSetting(True, 1, -1, "opentelemetry")
TO_FILES = TraceSetting(True, 1, -1, "triton")


def trace_findings(of_all: TraceSetting | None, **of_models: TraceSetting) -> list[Finding]:
    """Return the findings about traces of a Triton whose models a and b have 100 requests a second each."""
    name = triton.REQUEST_SUCCESS
    first, second = (
        parse(
            (
                f"# TYPE {name} counter\n"
                + "".join(f'{name}{{model="{model}",version="1"}} {count}\n' for model in "ab")
            ).encode()
        )
        for count in (0, 100)
    )
    facts = TritonFacts(
        *("u", "m", Snapshot(1.0, live=True), {}, first, second, 1.0), traces=of_all, model_traces=of_models
    )
    return [finding for finding in examine(facts) if finding.title == _TRACES]


@pytest.mark.parametrize(
    ("of_all", "of_models", "seen", "flags", "models"),
    [
        (None, {}, "not prepared for traces", True, ""),
        (OFF, {}, "prepared for traces, none taken", False, ""),
        (OFF, {"a": EVERY}, "traced by a setting of their own: a (every request)", False, "b"),
        (TO_FILES, {}, "every request is traced, 200.0 a second now", True, ""),
        (
            EVERY_FOURTH,
            {"a": OFF},
            "not traced by a setting of their own: a; one request in 4 of the other models is traced, 25.0 a",
            *(False, "a"),
        ),
        (EVERY_FOURTH, {"a": OFF, "b": OFF}, "s, not traced by a setting of their own: a, b", False, ""),
    ],
)
def test_the_doctor_reports_the_present_trace_settings(
    of_all: TraceSetting | None, of_models: dict[str, TraceSetting], seen: str, flags: bool, models: str
) -> None:
    """A Triton that is prepared needs no flag; the setting of all is not that of each."""
    (finding,) = trace_findings(of_all, **of_models)

    assert seen in finding.seen
    assert flags == ("--trace-config mode=" in finding.do)
    assert "--otlp-listen 127.0.0.1:4318; then curl" in finding.do
    assert tuple(models) == finding.models


@pytest.mark.parametrize(
    ("of_all", "of_models"),
    [(EVERY_FOURTH, {}), (EVERY_FOURTH, {"a": EVERY}), (OFF, {"a": EVERY, "b": EVERY_FOURTH})],
)
def test_a_triton_that_traces_every_model_with_requests_needs_no_advice(
    of_all: TraceSetting, of_models: dict[str, TraceSetting]
) -> None:
    """It makes no difference whether the setting of all models or one of each model does this."""
    assert [] == trace_findings(of_all, **of_models)


def trace(server: TritonServer, model: str, rate: int, count: int) -> None:
    wanted = {"trace_level": ["TIMESTAMPS"], "trace_rate": str(rate), "trace_count": str(count)}
    assert requests.post(f"{server.http_url}/v2/models/{model}/trace/setting", json=wanted, timeout=5).ok


@pytest.mark.real
def test_models_that_are_traced_by_a_setting_of_their_own_need_no_advice(tmp_path: Path) -> None:
    """Triton's setting of all models is that none is traced, while each may have one of its own."""
    for name in ("first", "second"):
        write_sleeper(tmp_path / "models", name)
    with (
        live_triton(tmp_path / "models", tmp_path, arguments=PREPARED) as server,
        closing(Client(server.http_url)) as client,
        Traffic(server, "first", 40),
        Traffic(server, "second", 40),
    ):
        where = at(server)
        trace(server, "first", 4, 100_000)
        partly = findings(*where)[_TRACES]
        trace(server, "second", 1, -1)
        traced = findings(*where)
        trace(server, "second", 1, 1)
        eventually(
            lambda: not fetch_setting(client, "second").is_in_use, "the count of the setting is not used up"
        )
        used_up = findings(*where)[_TRACES]

    assert "traced by a setting of their own: first (one request in 4)" in partly["seen"]
    assert ["second"] == partly["models"]
    assert _TRACES not in traced
    assert ["second"] == used_up["models"]


@pytest.mark.real
@pytest.mark.thorough
def test_a_model_with_traces_turned_off_is_reported_though_all_models_are_traced(tmp_path: Path) -> None:
    """The setting of all models does not apply to a model with the level OFF."""
    for name in ("first", "second"):
        write_sleeper(tmp_path / "models", name)
    arguments = [*PREPARED, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=100"]
    with (
        live_triton(tmp_path / "models", tmp_path, arguments=arguments) as server,
        Traffic(server, "first", 40),
        Traffic(server, "second", 40),
    ):
        where = at(server)
        traced = findings(*where)
        setting = f"{server.http_url}/v2/models/first/trace/setting"
        assert requests.post(setting, json={"trace_level": ["OFF"]}, timeout=5).ok
        partly = findings(*where)[_TRACES]

    assert _TRACES not in traced
    assert "not traced by a setting of their own: first; one request in 100 of the other" in partly["seen"]
    assert ["first"] == partly["models"]
    assert "--trace-config mode=" not in partly["do"]


@pytest.mark.real
def test_the_command_that_the_doctor_recommends_sets_the_trace_rate(tmp_path: Path) -> None:
    """After it a Triton that was started with the recommended flags traces every model, and needs no advice."""
    write_sleeper(tmp_path / "models", "m")
    with (
        live_triton(tmp_path / "models", tmp_path, arguments=PREPARED) as server,
        closing(Client(server.http_url)) as client,
        Traffic(server, "m", 60),
    ):
        where = at(server)
        advice = findings(*where)[_TRACES]["do"]
        command = advice[advice.index("curl") : advice.index(" (traces")]
        subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=10)
        setting = fetch_setting(client)
        after = findings(*where)

    assert setting is not None
    assert setting.is_in_use
    assert f"rate={setting.rate})" in advice
    assert 2 <= setting.rate <= 4
    assert _TRACES not in after


def batching_findings(
    config: ModelConfig, sizes: Mapping[int, int] | None = None, gpu: str = "", infer_ns: int = 1
) -> dict[str, Finding]:
    """Return the findings by title about a model whose executions had these batch sizes."""
    key = ModelVersion("m", "1")
    batches = tuple(BatchStatistics(size, count, 0, infer_ns, 0) for size, count in (sizes or {}).items())
    snapshot = Snapshot(
        1.0, live=True, configs={key: config}, statistics=(ModelStatistics("m", "1", batches=batches),)
    )
    queued, computed = triton.QUEUE_DURATION_US, triton.COMPUTE_INFER_DURATION_US
    first, second = (
        parse(
            f'# TYPE {queued} counter\n{queued}{{model="m",version="1"}} {5 * count}\n'
            f'# TYPE {computed} counter\n{computed}{{model="m",version="1"}} {count}\n{gpu}'.encode()
        )
        for count in (0, 100)
    )
    facts = TritonFacts("u", "m", snapshot, {}, first, second, 1.0)
    return {finding.title: finding for finding in examine(facts)}


STALLS = "A queue limit with batches of one lets requests wait beside a free instance"


def test_a_queue_limit_with_batches_of_one_is_reported() -> None:
    """With larger batches it is not; and no limit is advised where it would stall the queue."""
    limit = QueuePolicy(16)
    found = batching_findings(ModelConfig("m", max_batch_size=1, dynamic_batching=True, queue=limit))
    assert "m:1" in found[STALLS].seen
    assert STALLS not in batching_findings(
        ModelConfig("m", max_batch_size=8, dynamic_batching=True, queue=limit)
    )
    for size, advised in ((1, False), (8, True)):
        endless = batching_findings(ModelConfig("m", max_batch_size=size, dynamic_batching=True))
        assert advised == ("Queues without a limit" in endless)


def test_a_queue_limit_below_the_batch_size_is_reported() -> None:
    """Four that wait never make a batch of eight."""
    limited = [
        ModelConfig("m", max_batch_size=8, dynamic_batching=True, queue=QueuePolicy(limit))
        for limit in (4, 8)
    ]
    assert [True, False] == [
        "A queue limit keeps batches small" in batching_findings(each) for each in limited
    ]


def test_a_delay_without_larger_batches_is_reported() -> None:
    """105 requests in 100 executions gain nothing; 180 do, unless each execution takes less than the delay; ten say nothing."""
    config = ModelConfig("m", max_batch_size=8, dynamic_batching=True, max_queue_delay_microseconds=5000)
    title = "A queue delay gains nothing"

    assert title in batching_findings(config, {1: 95, 2: 5})
    assert title not in batching_findings(config, {1: 20, 2: 80}, infer_ns=300_000_000)
    assert title in batching_findings(config, {1: 20, 2: 80}, infer_ns=200_000_000)
    assert title not in batching_findings(config, {2: 100}, infer_ns=200_000_000)
    assert title not in batching_findings(config, {1: 10})
    assert title not in batching_findings(ModelConfig("m", max_batch_size=8, dynamic_batching=True), {1: 100})


def test_one_instance_on_an_idle_gpu_is_reported_where_requests_wait() -> None:
    """Not where the GPU is busy, where there are two, or on a processor."""
    title = "Requests wait for one instance on an idle GPU"
    name = triton.GPU_UTILIZATION
    idle, busy = (f'# TYPE {name} gauge\n{name}{{gpu_uuid="g"}} {share}\n' for share in (0.2, 0.9))

    def reported(kind: str, count: int, gpu: str) -> bool:
        config = ModelConfig("m", instance_groups=(InstanceGroup(kind, count, (0,)),))
        return title in batching_findings(config, gpu=gpu)

    assert reported("KIND_GPU", 1, idle)
    assert not reported("KIND_GPU", 1, busy)
    assert not reported("KIND_GPU", 2, idle)
    assert not reported("KIND_CPU", 1, idle)
    assert not reported("KIND_GPU", 1, "")
