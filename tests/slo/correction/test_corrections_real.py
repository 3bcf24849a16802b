"""Test corrections on real servers: budgets before and after match the true events, and undo restores them."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml

from support.history import openmetrics, serve
from support.loopback import free_ports, started
from support.recorded_fleet import OBJECTIVE, TARGET, RecordedFleet, rules
from support.tools import prometheuses, promtools
from support.victoria import serve_victoria
from support.waiting import eventually
from support.web_fleet import text_of
from triton_exporter.common.moments import rfc3339
from triton_slo import names
from triton_slo.prometheus.client import Prometheus
from triton_slo.prometheus.server_access import Access
from tritonwatch.audited_corrections import writers
from tritonwatch.audited_corrections.trail import Entry, Trail
from tritonwatch.audited_corrections.writers import VictoriaMetrics
from tritonwatch.cli import main

pytestmark = pytest.mark.real

TOKEN = "a-token-of-the-test"

Budgets = dict[str, tuple[float, float, float]]
"""Model -> failures and requests in the period, and budget left."""


def budgets(url: str) -> Budgets:
    """Return what the rules have recorded lately."""
    values: dict[str, dict[str, float]] = {}
    with Prometheus(Access(url)) as prometheus:
        for name in (names.sli_events("7d"), names.PERIOD_BUDGET_REMAINING):
            for sample in prometheus.instant(f"{name} and timestamp({name}) > time() - 4"):
                kind = sample.labels.get(names.EVENT, "left")
                values.setdefault(sample.labels["model"], {})[kind] = sample.value
    week = 7 * 86_400
    return {
        model: (amounts["error"] * week, amounts["total"] * week, amounts["left"])
        for model, amounts in values.items()
        if len(amounts) == 3
    }


def settled(url: str) -> Budgets:
    """Budgets of both models, once the rules have been evaluated some times from now on."""
    begun = time.time()
    with Prometheus(Access(url)) as prometheus:
        evaluated = f"min(timestamp({names.PERIOD_BUDGET_REMAINING})) > {begun + 3}"
        eventually(lambda: prometheus.instant(evaluated), "the rules were not evaluated")
    return eventually(lambda: left if len(left := budgets(url)) == 2 else None, "no budgets")


def expect(fleet: RecordedFleet, amounts: Budgets, *, without_test: bool, shared: float = 0) -> None:
    """Check that the recorded period is the truth, except for minutes at its edges and `shared` failures.

    What a replay has added is known by tiles of five minutes: events of those at a stretch's ends are shared out.
    """
    for model, (failed, every, left) in amounts.items():
        true_failed, true_every = fleet.truth(model, without_test=without_test and model == "tested")
        assert pytest.approx(true_every, rel=1e-3) == every, model
        assert pytest.approx(true_failed, abs=5e-3 * true_failed + shared) == failed, model
        budget = 1 - true_failed / true_every / (1 - TARGET)
        assert pytest.approx(budget, abs=0.005 + shared / true_every / (1 - TARGET)) == left, model


def correct(*words: str, code: int = 0) -> None:
    assert code == main(["correct", *words])


@pytest.fixture
def killing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Write a promtool that works, and then kills the program that called it."""

    def kill() -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "promtool"
        script.write_text(f'#!/bin/sh\n"{promtools()[0]}" "$@"\nkill -9 $PPID\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return kill


@pytest.mark.parametrize("server", prometheuses(), ids=str)
def test_a_correction_on_prometheus(
    server: Path, tmp_path: Path, killing: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before: the truth. Corrected, though killed meanwhile: the truth without the test. Undone: as before."""
    fleet = RecordedFleet()
    trail, data = tmp_path / "trail", tmp_path / "data"
    stretch = ["--from", str(fleet.stretch[0]), "--to", str(fleet.stretch[1]), "--model", "tested"]
    written = ["--trail", str(trail), "--blocks", str(data)]
    signed = ["--reason", "load test", "--author", "anna"]
    with serve(openmetrics(fleet.series()), tmp_path, rules={"r.yml": rules()}, server=server) as url:
        before = settled(url)
        expect(fleet, before, without_test=False)
        correct("plan", *stretch, "--json", "--prometheus", url)
        [planned] = json.loads(capsys.readouterr().out)["groups"]
        with pytest.MonkeyPatch.context() as patch:
            killing()
            command = [sys.executable, "-m", "tritonwatch", "correct", "apply"]
            killed = subprocess.run([*command, *stretch, *signed, *written, "--prometheus", url])
            patch.undo()
        assert -9 == killed.returncode
        (tmp_path / "bin" / "promtool").unlink()
        correct("list", "--trail", str(trail), "--json")
        [entry] = map(json.loads, capsys.readouterr().out.splitlines())
        assert "incomplete" == entry["state"]
        correct("resume", entry["id"], "--trail", str(trail))
    with serve("", tmp_path, rules={"r.yml": rules()}, server=server) as url:
        after = settled(url)
        expect(fleet, after, without_test=True)
        assert pytest.approx(planned["after"]["left"], abs=0.005) == after["tested"][2]
        correct("plan", *stretch, "--prometheus", url, code=1)
        assert "corrected already" in capsys.readouterr().err
        correct("undo", entry["id"], *signed, "--trail", str(trail))
    with serve("", tmp_path, rules={"r.yml": rules()}, server=server) as url:
        expect(fleet, settled(url), without_test=False)
        with Prometheus(Access(url)) as prometheus:
            net = f"sum without (correction) (sum_over_time({names.SLI_EVENTS_CORRECTION}[7d]))"
            assert {0.0} == {sample.value for sample in prometheus.instant(net)}


@contextmanager
def page(url: str, folder: Path) -> Iterator[str]:
    """Yield the web server, whose forms write blocks into the data directory of Prometheus."""
    [port] = free_ports(1)
    (folder / "token").write_text(TOKEN)
    command = [sys.executable, "-m", "tritonwatch", "web", "--prometheus", url]
    command += [
        "--listen",
        f"127.0.0.1:{port}",
        "--trail",
        str(folder / "trail"),
        "--blocks",
        str(folder / "data"),
    ]
    command += ["--corrections-token-file", str(folder / "token")]
    with started(command, f"http://127.0.0.1:{port}/corrections", folder / "web.log"):
        yield f"http://127.0.0.1:{port}"


def sent(site: str, path: str, **fields: str) -> requests.Response:
    """Send a form with the token, as the page does."""
    own = {"Sec-Fetch-Site": "same-origin"}
    form = {**fields, "token": TOKEN}
    return requests.post(site + path, data=form, headers=own, timeout=60, allow_redirects=False)


def shown(site: str, entry: Entry) -> str:
    """Return the words on the page of a correction."""
    return text_of(requests.get(f"{site}/correction", params={"id": entry.id}, timeout=20).text)


def test_blocks_from_the_page_on_prometheus(tmp_path: Path, killing: Callable[[], None]) -> None:
    """Entered on the page, killed meanwhile, resumed and undone there: budgets are what the page showed before."""
    fleet = RecordedFleet()
    start, end = map(rfc3339, fleet.stretch)
    signed = {"reason": "load test", "author": "anna"}
    with serve(openmetrics(fleet.series()), tmp_path, rules={"r.yml": rules()}) as url:
        before = settled(url)
        killing()
        with page(url, tmp_path) as site, pytest.raises(requests.ConnectionError):
            sent(site, "/corrections", **{"from": start, "to": end, "model": "tested"}, **signed)
        (tmp_path / "bin" / "promtool").unlink()
        [entry] = Trail(tmp_path / "trail").entries
        assert pytest.approx(before["tested"][2], abs=0.005) == entry.groups[0]["before"]["left"]
        with page(url, tmp_path) as site:
            assert "not all of its samples are written" in shown(site, entry)
            assert 303 == sent(site, "/correction", id=entry.id, action="resume").status_code
            written = shown(site, entry)
            assert "Prometheus loads the blocks within a minute; budgets change at the next" in written
            assert f"Loaded 0 of {entry.samples} samples" in written
    with serve("", tmp_path, rules={"r.yml": rules()}) as url:
        after = settled(url)
        expect(fleet, after, without_test=True)
        assert pytest.approx(entry.groups[0]["after"]["left"], abs=0.005) == after["tested"][2]
        with page(url, tmp_path) as site:
            assert f"Loaded {entry.samples} of {entry.samples} samples" in shown(site, entry)
            assert 303 == sent(site, "/correction", id=entry.id, action="undo", **signed).status_code
    with serve("", tmp_path, rules={"r.yml": rules()}) as url:
        undone = settled(url)
        expect(fleet, undone, without_test=False)
        assert pytest.approx(before["tested"][2], abs=0.005) == undone["tested"][2]


def evaluated(url: str, at: float) -> Budgets:
    """Return what the rules of the period would record."""
    [expression] = [
        rule["expr"]
        for group in yaml.safe_load(rules("vmalert"))["groups"]
        for rule in group["rules"]
        if rule.get("record") == names.sli_events("7d")
    ]
    values: dict[str, dict[str, float]] = {}
    with Prometheus(Access(url)) as prometheus:
        for sample in prometheus.instant(expression, at):
            values.setdefault(sample.labels["model"], {})[sample.labels[names.EVENT]] = (
                sample.value * 7 * 86_400
            )
    return {
        model: (amounts["error"], amounts["total"], 1 - amounts["error"] / amounts["total"] / (1 - TARGET))
        for model, amounts in values.items()
    }


class Interrupted(VictoriaMetrics):
    """Imports half of the samples and is gone."""

    def write(self, file: Path, text: str, entry_id: str) -> None:
        lines = text.splitlines()[:-1]
        super().write(file, "\n".join(lines[::2]), entry_id)
        raise KeyboardInterrupt


def test_a_correction_on_victoria_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same by the import API, by the rule's expression: what was imported twice would count twice."""
    fleet = RecordedFleet(recorded=True)
    trail = ["--trail", str(tmp_path / "trail")]
    stretch = ["--from", str(fleet.stretch[0]), "--to", str(fleet.stretch[1]), "--model", "tested"]
    signed = ["--reason", "load test", "--author", "anna"]
    with serve_victoria(openmetrics(fleet.series()), tmp_path) as url:
        expect(fleet, evaluated(url, fleet.end), without_test=False)
        with monkeypatch.context() as patch:
            patch.setattr(writers, "VictoriaMetrics", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                correct("apply", *stretch, *signed, *trail, "--import", url, "--prometheus", url)
        capsys.readouterr()
        correct("list", *trail, "--json")
        [entry] = map(json.loads, capsys.readouterr().out.splitlines())
        assert "incomplete" == entry["state"]
        correct("list", *trail, "--prometheus", url)
        assert re.search(r"  incomplete, \d+ of \d+ samples loaded  ", capsys.readouterr().out)
        correct("resume", entry["id"], *trail)
        correct("list", *trail, "--prometheus", url)
        assert "  written, loaded  " in capsys.readouterr().out
        expect(fleet, evaluated(url, fleet.end), without_test=True)
        correct("undo", entry["id"], *signed, *trail)
        expect(fleet, evaluated(url, fleet.end), without_test=False)
        correct("list", *trail)
        assert "undone" in capsys.readouterr().out


def test_history_is_added_and_corrected(tmp_path: Path) -> None:
    """Rules of yesterday: after a replay the budget is that of the whole week, and a correction of it works."""
    fleet = RecordedFleet(young=True)
    objectives = tmp_path / "objectives"
    objectives.mkdir()
    (objectives / "errors.yaml").write_text(yaml.safe_dump(OBJECTIVE.model_dump(exclude_unset=True)))
    chosen = ["--objectives", str(objectives), "--scrape-interval", "60s"]
    trail = ["--trail", str(tmp_path / "trail"), "--blocks", str(tmp_path / "data")]
    signed = ["--reason", "new", "--author", "anna"]
    stretch = ["--from", str(fleet.stretch[0]), "--to", str(fleet.stretch[1]), "--model", "tested"]
    with serve(openmetrics(fleet.series()), tmp_path, rules={"r.yml": rules()}) as url:
        young = settled(url)
        assert {True} == {every < 0.3 * fleet.truth(model)[1] for model, (_, every, _) in young.items()}
        assert 0 == main(["replay", "plan", *chosen, "--prometheus", url])
        assert 0 == main(["replay", "apply", *chosen, *signed, *trail, "--prometheus", url])
    with serve("", tmp_path, rules={"r.yml": rules()}) as url:
        expect(fleet, settled(url), without_test=False)
        correct("apply", *stretch, *signed, *trail, "--prometheus", url)
        assert 1 == main(["replay", "apply", *chosen, *signed, *trail, "--prometheus", url])
    with serve("", tmp_path, rules={"r.yml": rules()}) as url:
        expect(fleet, settled(url), without_test=True, shared=5 * 150)
