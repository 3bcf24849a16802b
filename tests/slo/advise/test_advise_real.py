"""Test `tritonwatch advise` on a real Triton: predict from light traffic, then send what was predicted."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slo.advise.workload import Model, plan, send
from support import history
from support.exporter import exporting
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import models, triton
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

THRESHOLD = 0.25
"""Long beside the pauses of a busy machine."""
OBJECTIVES = "{name: answers, target: 85%, indicator: {kind: latency, threshold: 250ms}}\n"
SECONDS = 25
LIGHT, OVER = 10.0, 26.0
EVENLY = [number / OVER for number in range(int(OVER * SECONDS))]
"""As many come in each part of the time, whichever of them is told."""


@dataclass(frozen=True)
class Stack:
    """A Triton with four equal models, and the Prometheus that watches it."""

    triton: TritonServer
    prometheus: str
    folder: Path

    def send(self, times: dict[str, list[float]]) -> dict[str, float]:
        """Send requests at these times; return the shares that were answered in time, as the clients saw it."""
        return {
            model: sum(status == 200 and took <= THRESHOLD for status, took, _ in answers) / len(answers)
            for model, answers in send(self.triton.http_url, times).items()
        }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("advise")
    (folder / "objectives").mkdir()
    (folder / "objectives" / "o.yaml").write_text(OBJECTIVES)
    for model in ("light", "below", "above", "over"):
        Model(0.05).write(folder / "models", model)
    with (
        live_triton(folder / "models", folder) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
        history.serve("", folder / "p", scrape=exporter.url.removeprefix("http://")) as url,
        Prometheus(Access(url)) as client,
    ):
        eventually(lambda: len(client.instant(f"{models.SCHEDULER_INFO}")) == 4, "not scraped")
        yield Stack(server, url, folder)


ROUNDS = 3
"""A machine that is short of processors for a while spoils a round; a wrong prediction spoils all of them."""


def command(stack: Stack, model: str, seconds: int) -> list[str]:
    """Return the command that advises on a model from so many seconds until now."""
    words = ["advise", "--prometheus", stack.prometheus, "--objectives", str(stack.folder / "objectives")]
    words += ["--model", model, "--scrape-interval", "1", "--last", f"{seconds}s"]
    return [*words, "--at", str(int(time.time()))]


def predicted(stack: Stack, capsys: pytest.CaptureFixture[str], sent: int) -> float:
    """Return the rate at which the objective breaks, after light traffic; asserts what is printed."""
    with Prometheus(Access(stack.prometheus)) as client:
        eventually(
            lambda: client.instant(f'{triton.EXEC_COUNT}{{model="light"}} >= {sent}'), "not all counted"
        )
    words = command(stack, "light", SECONDS + 5)
    assert 0 == main([*words, "--json", "--if", "instances=2"])
    [advice] = json.loads(capsys.readouterr().out)["advice"]
    assert 0 == main(words)
    text = capsys.readouterr().out
    assert "light 1, answers: 85.00% take at most 250ms" in text
    assert max(map(len, text.splitlines())) <= 80
    assert advice["unknown"] in text
    if advice["unknown"]:
        return 0.0  # a disturbance may leave too little
    assert 0.05 <= advice["fit"]["service"]["fixed"]
    assert advice["fit"]["rate"] == pytest.approx(LIGHT, rel=0.3)
    breaks = float(advice["breaks"]["estimate"])
    assert breaks < advice["asked"]["breaks"]["estimate"]
    assert f"breaks    at about {breaks:.3g}" in text
    return breaks


def test_the_objective_holds_below_the_predicted_rate_and_breaks_above(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    """From 10 requests/s: at 0.8 of the predicted rate 85 % are in time, at 1.25 of it they are not."""
    seen = []
    for number in range(1, ROUNDS + 1):
        light = plan(LIGHT, SECONDS, seed=3)
        stack.send({"light": light})
        breaks = predicted(stack, capsys, number * len(light))
        if breaks:
            below, above = (plan(share * breaks, SECONDS, seed=3) for share in (0.8, 1.25))
            shares = stack.send({"below": below, "above": above, "over": EVENLY})
            assert 0 == main(command(stack, "over", SECONDS + 15))
            told = " ".join(capsys.readouterr().out.split())
            found = re.search(
                r"overload (\S+) requests/s (?:have )?c[ao]me .*, its instances answer at most (\S+)/s", told
            )
            seen.append((breaks, shares, told))
            if (
                shares["below"] >= 0.85 > shares["above"]
                and found
                and pytest.approx(float(found[1]), rel=0.1) == OVER
                and pytest.approx(float(found[2]), rel=0.1) == 1 / 0.051
            ):
                return
    pytest.fail(f"predicted, shares in time below and above it, and what was said of the overload: {seen}")
