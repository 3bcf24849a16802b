"""Test `gate` with an objective on a real Envoy before a real Triton, whose own counters hide failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from slo.answering import HIDDEN, post, write_models
from slo.envoy import ENVOY, envoy
from support import history
from support.exporter import exporting
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import triton
from triton_exporter.catalogue.external import gateway
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.cli import main
from tritonwatch.commands.gate import EXIT

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not ENVOY.exists(), reason="no wheel of Envoy for this machine"),
]

OBJECTIVES = (
    Objective(name="errors", target=0.95, indicator="errors"),
    Objective(name="client-errors", target=0.95, indicator={"kind": "errors", "source": "envoy"}),
)
REQUESTS = 120
"""59 requests without a failure are needed to be 95 % sure of a target of 95 %; a busy machine scrapes them late."""
TRUSTED = ("hiding", "--objective", "errors", "--trust", "backend_counters")
"""What a gate promotes that believes Triton's counters."""


@dataclass(frozen=True)
class Stack:
    """Where the stack is, and what it scrapes."""

    url: str
    prometheus: str
    targets: Path

    def count(self, model: str) -> float:
        """Return the requests to a model in the counters that the gate reads; the smaller of the two."""
        events = f'{names.COUNTER}{{model="{model}", event="total"}}'
        return self.asked(f"min(sum by (slo) ({events})) and count({events}) == {len(OBJECTIVES)}")

    def asked(self, query: str) -> float:
        """Return the value of a query with one answer; 0 without any."""
        with Prometheus(Access(self.prometheus)) as client:
            return sum(sample.value for sample in client.instant(query))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """120 requests to each of two models: `sound` answers all; `hiding` fails one in seven, unseen by Triton."""
    directory = tmp_path_factory.mktemp("stack")
    models = ("sound", "hiding")
    write_models(directory / "models", *models)
    made = artifacts(OBJECTIVES, Options(scrape_interval_seconds=1))
    # Budgets are evaluated every four minutes; this test does not wait for them.
    rules = {
        artifact.name: artifact.text.replace("interval: 4m", "interval: 5s")
        for artifact in made
        if artifact.part == "rules"
    }
    targets = directory / "targets.json"
    with (
        live_triton(directory / "models", directory) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
        envoy(server.http_url, directory, models) as (url, admin),
    ):
        scraped = [
            {"targets": [exporter.url.removeprefix("http://")]},
            {"targets": [admin], "labels": {"__metrics_path__": "/stats/prometheus"}},
        ]
        targets.write_text(json.dumps(scraped))
        with history.serve("", directory / "p", rules=rules, targets=targets) as prometheus:
            stack = Stack(url, prometheus, targets)
            # What comes before the first scrape of a status is in no rate.
            first = [post(url, *request) for request in (("sound", 0.0), ("hiding", 0.0), ("hiding", HIDDEN))]
            assert [200, 200, 500] == first
            scraped_all = f"count({gateway.ENVOY_REQUESTS}) == 3 and count({triton.REQUEST_SUCCESS} > 0) == 2"
            eventually(lambda: stack.asked(scraped_all), "not scraped")
            copied = f"count({names.COPY}) == {2 * 2 * len(models)}"
            eventually(lambda: stack.asked(copied), "nothing is copied for budgets")
            for turn in range(REQUESTS):
                assert 200 == post(url, "sound", 0.0)
                fails = turn % 7 == 0
                assert (500 if fails else 200) == post(url, "hiding", HIDDEN if fails else 0.0)
            counted: dict[str, float] = {}

            def all_counted() -> bool:
                counted.update({model: stack.count(model) for model in models})
                return min(counted.values()) > 90

            eventually(all_counted, lambda: str(counted))
            # A budget is there before its long window, by which a group is known that is not counted any more.
            for name in (names.PERIOD_BUDGET_REMAINING, names.sli_error("30d")):
                recorded = f"count({name}) == {len(OBJECTIVES) * len(models)}"
                eventually(lambda recorded=recorded: stack.asked(recorded), f"not recorded: {name}")  # type: ignore[misc]
            yield stack


Gate = Callable[..., tuple[int, Mapping[str, str]]]


@pytest.fixture
def gate(stack: Stack, capsys: pytest.CaptureFixture[str]) -> Gate:
    """Return the gate's exit code for a model, and by objective the verdict with its reason."""

    def judged(model: str, *more: str) -> tuple[int, Mapping[str, str]]:
        code = main(["gate", "--prometheus", stack.prometheus, "--model", model, "--json", *more])
        judgements = json.loads(capsys.readouterr().out)["judgements"]
        return code, {
            judgement["slo"]: f"{judgement['verdict']}: {judgement['reason']}" for judgement in judgements
        }

    return judged


def test_a_model_of_which_the_gateway_saw_no_failure_is_promoted(gate: Gate) -> None:
    """Triton's own counters may hide failures of its backend; the gateway's show that there are none."""
    eventually(lambda: gate("sound")[0] == 0, lambda: str(gate("sound")))

    assert {"errors", "client-errors"} == gate("sound")[1].keys()


def test_a_model_whose_failures_only_the_gateway_sees_is_not(gate: Gate) -> None:
    """Nothing is spent of the budget of Triton's objective, which does not promote it; --trust would."""
    eventually(lambda: gate(*TRUSTED)[0] == 0, lambda: str(gate(*TRUSTED)))
    code, printed = gate("hiding")

    assert code in (EXIT["hold"], EXIT["rollback"]), printed
    assert not printed["client-errors"].startswith("promote")
    assert printed["errors"].startswith("hold: budget left: "), printed["errors"]
    assert "see objective client-errors" in printed["errors"]


def test_a_gateway_that_is_not_scraped_any_more_promotes_nothing(stack: Stack, gate: Gate) -> None:
    """The gateway's last values are recorded for minutes, while the exporter's series stay fresh."""
    own = ("--objective", "client-errors", "--max-age", "8s")
    eventually(lambda: gate("sound", *own)[0] == 0, lambda: str(gate("sound", *own)))
    exporter, _ = json.loads(stack.targets.read_text())
    stack.targets.write_text(json.dumps([exporter]))

    answers: list[tuple[int, Mapping[str, str]]] = []

    def named() -> bool:
        answers.append(gate("sound", *own))
        return "check that what counts it is scraped" in answers[-1][1]["client-errors"]

    eventually(named, lambda: str(answers[-1]))
    code, _ = answers[-1]

    assert EXIT["hold"] == code
    trusted = (*TRUSTED, "--max-age", "8s")
    eventually(lambda: gate(*trusted)[0] == 0, lambda: str(gate(*trusted)))
