"""Test objectives of ensembles, and of a model that calls another (BLS), against what clients saw.

A real Triton, the exporter, Prometheus with the rules. Clients wait most of their time for the second step of the
ensemble `pipe`, which others call directly, or of `line`, which nobody else calls; every fifth request to the ensemble
`broken` fails at its second step. One exporter has Triton's counters alone, another one a trace of every request too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

import pytest

from support import history
from support.exporter import exporting
from support.loopback import free_ports
from support.repository import Repository
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import models, state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

OBJECTIVES = """
objectives:
  - {name: latency, target: 99%, indicator: {kind: latency, threshold: 50ms}}
  - {name: errors, target: 99%, indicator: errors}
  - {name: fleet, target: 99%, group_by: [], indicator: errors}
"""
PARSED = read([("o.yaml", OBJECTIVES)]).objectives
STEP_SECONDS = 0.5
"""Long beside what a busy machine adds to a request."""
SECONDS = 20.0
BROKEN = 50
_CALLS = """\
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            pb_utils.InferenceRequest(
                model_name="my_rerank", requested_output_names=["Y"], inputs=[x], trace=request.trace()
            ).exec()
        inputs = [pb"""


@dataclass(frozen=True)
class Stage:
    """The address of Prometheus and when it had all answers, the seconds of each request by model, and the statuses that `broken` answered."""

    url: str
    at: float
    took: Mapping[str, Sequence[float]]
    broken: Sequence[int]

    def causes(self, model: str) -> dict[str, float]:
        with Prometheus(Access(self.url)) as prometheus:
            causes = prometheus.instant(
                f'{names.CAUSE_SHARE}{{model="{model}", {names.INDICATOR}="latency"}}', self.at
            )
        return {sample.labels[names.CAUSE]: sample.value for sample in causes}

    def waited(self, model: str) -> float:
        """Return the share of its time that a client waited for the second step's one instance."""
        took = mean(self.took[model])
        return (took - STEP_SECONDS) / took


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Stage]]:
    """Yield what was measured of one load: from Triton's counters alone, and with a trace of every request."""
    directory = tmp_path_factory.mktemp("composed")
    repository = Repository(directory / "models")
    repository.model("quick")
    repository.model("my_rerank", delay_seconds=STEP_SECONDS)
    repository.model("flaky", fail_every=5)
    repository.model("front")
    repository.model("lone", delay_seconds=STEP_SECONDS)
    repository.ensemble("pipe", "quick", "my_rerank")
    repository.ensemble("line", "front", "lone")
    repository.ensemble("broken", "quick", "flaky")
    caller = repository.model("caller") / "1" / "model.py"
    caller.write_text(caller.read_text().replace("        inputs = [pb", _CALLS))
    [port] = free_ports(1)
    arguments = (
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url=http://127.0.0.1:{port}/v1/traces",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=1",
    )
    options = Options(scrape_interval_seconds=1, time_scale=1 / 60)
    rules = {each.name: each.text for each in artifacts(PARSED, options) if each.part == "rules"}
    with live_triton(repository.path, directory, arguments=arguments) as server, ExitStack() as stack:
        run = stack.enter_context
        urls = {}
        for name, listens in {"counters": None, "traces": f"127.0.0.1:{port}"}.items():
            exporter = run(exporting(server.http_url, server.metrics_url, otlp_listen=listens))
            exporter.wait(lambda page: page.value(state.MODEL_READY, model="broken", version="1"))
            address = exporter.url.removeprefix("http://")
            urls[name] = run(history.serve("", directory / name, rules=rules, scrape=address))
        counted = f'{names.COUNTER}{{{names.SLO}="errors", model="broken", {names.EVENT}="total"}}'
        asked = {name: run(Prometheus(Access(url))) for name, url in urls.items()}
        for prometheus in asked.values():
            eventually(partial(prometheus.instant, str(models.ENSEMBLE_STEP)), "no steps")
            eventually(partial(prometheus.instant, counted), "nothing is counted")
        took, broken = _load(server)
        wanted = [f"{counted} >= {BROKEN}", f'{names.COUNTER}{{model="line"}}']
        wanted += [_cause("line", "queue of lone"), f'{names.COUNTER}{{model="caller"}}']
        wanted += [f"absent({_cause('line', 'compute_infer')})"]

        def complete(prometheus: Prometheus, *queries: str) -> float:
            """Return the present if it has all: on a busy machine scrapes are missed, and leave gaps."""
            now = time.time()
            return now if all(prometheus.instant(query, now) for query in queries) else 0.0

        time.sleep(3)
        traced = [_cause("pipe", "queue of my_rerank"), _cause("caller", "queue of my_rerank")]
        more = {"counters": [_cause("caller", "compute_infer")], "traces": traced}
        yield {
            name: Stage(
                urls[name],
                eventually(partial(complete, prometheus, *wanted, *more[name]), f"{name}: not all is there"),
                took,
                broken,
            )
            for name, prometheus in asked.items()
        }


def _cause(model: str, cause: str) -> str:
    return f'{names.CAUSE_SHARE}{{model="{model}", {names.INDICATOR}="latency", {names.CAUSE}="{cause}"}}'


@pytest.fixture(params=["counters", "traces"])
def stage(request: pytest.FixtureRequest, stages: Mapping[str, Stage]) -> Stage:
    return stages[request.param]


def _load(server: TritonServer) -> tuple[dict[str, list[float]], list[int]]:
    """Send for some seconds: six clients of an ensemble, and one of a second step, two of the caller."""
    ends, seconds = time.monotonic() + SECONDS, dict[str, list[float]]()

    def call(model: str) -> None:
        while time.monotonic() < ends:
            began = time.monotonic()
            assert 200 == infer(server, model)
            seconds.setdefault(model, []).append(time.monotonic() - began)

    clients = {"pipe": 6, "my_rerank": 1, "caller": 2, "line": 6}
    threads = [threading.Thread(target=call, args=(m,)) for m, count in clients.items() for _ in range(count)]
    for thread in threads:
        thread.start()
    statuses = [infer(server, "broken") for _ in range(BROKEN)]
    for thread in threads:
        thread.join()
    return seconds, statuses


@pytest.mark.parametrize(
    ("ensemble", "first", "second"), [("line", "front", "lone"), ("pipe", "quick", "my_rerank")]
)
def test_the_budget_of_an_ensemble_is_split_by_step(
    stage: Stage, request: pytest.FixtureRequest, ensemble: str, first: str, second: str
) -> None:
    """The queue of the step with one instance is what clients wait for; it is not called compute of the ensemble."""
    causes = stage.causes(ensemble)

    assert "compute_infer" not in causes
    if ensemble == "pipe" and "[counters" in request.node.name:
        assert not [cause for cause in causes if second in cause], (
            "its counters are those of direct clients too"
        )
        return
    assert 0.7 < stage.waited(ensemble)
    assert stage.waited(ensemble) == pytest.approx(causes[f"queue of {second}"], abs=0.1)
    assert STEP_SECONDS / mean(stage.took[ensemble]) == pytest.approx(causes[f"compute of {second}"], abs=0.1)
    assert causes[f"queue of {first}"] + causes[f"compute of {first}"] < 0.1


def test_the_budget_of_a_calling_model_is_split_by_call(stage: Stage, request: pytest.FixtureRequest) -> None:
    """BLS: traces alone show that the caller's compute is another model's queue."""
    causes = stage.causes("caller")
    if "compute_infer" in causes:
        assert "[counters]" in request.node.name
        assert not [cause for cause in causes if " of " in cause]
        return
    queued = causes["queue"] + causes["queue of my_rerank"]
    assert 0.6 < stage.waited("caller")
    assert stage.waited("caller") == pytest.approx(queued, abs=0.12)
    assert "compute of caller" in causes


def test_a_failed_request_to_an_ensemble_counts_once(stage: Stage) -> None:
    """Every fifth failed, as the clients saw: Triton's own counter says twice as many."""
    with Prometheus(Access(stage.url)) as prometheus:
        samples = prometheus.instant(f'{names.COUNTER}{{{names.SLO}="errors", model="broken"}}', stage.at)
    counted = {sample.labels[names.EVENT]: sample.value for sample in samples}
    failed = BROKEN - stage.broken.count(200)

    assert BROKEN / 5 == failed
    assert {names.ERROR: failed, names.TOTAL: BROKEN} == counted


def test_status_names_the_step(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """The cause is in the words of the page, with the model's own name."""
    assert 0 == main(["status", "--prometheus", stage.url, "--model", "line", "--at", str(int(stage.at))])

    assert "queue of lone" in " ".join(capsys.readouterr().out.split())


def test_check_warns_of_a_sum_over_models(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An objective without the label model counts a client's request once more for each step."""
    (tmp_path / "o.yaml").write_text(OBJECTIVES)
    main(["check", str(tmp_path), "--prometheus", stage.url, "--scrape-interval", "1"])
    said = " ".join("".join(capsys.readouterr()).split())

    assert "a request to the ensemble broken counts again at its step flaky" in said
