"""Test `status` and `gate` on a real Prometheus that has not loaded the rules of some or all objectives."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import history
from support.recorded_group import group_labels, recorded_group
from support.tools import newest, prometheuses
from triton_exporter.catalogue import EXPORTER_JOB, own, state
from triton_exporter.common.moments import utc_text
from triton_slo import names
from triton_slo.indicators import BURN_ALERTS
from tritonwatch.cli import main

NOW = int(time.time())
TIMES = range(NOW - 60, NOW + 3600, 60)
"""Moments with samples, also while the tests run: only without --at is a message about the present."""
EARLIER = NOW - 86_400
"""A moment at which Prometheus scraped the exporter and recorded nothing."""
EXPORTER = {"job": EXPORTER_JOB, "instance": "a:9401"}
CANNOT_TELL = 1


@pytest.fixture(scope="module", params=newest(prometheuses()), ids=str)
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Now the rules of `latency` are loaded: model good has budget left, and a page fires for model bad."""
    rows: list[history.Series] = [
        (str(state.UP), EXPORTER, [(at, 1.0) for at in (EARLIER, *TIMES)]),
        (str(own.LAST_SUCCESS), EXPORTER, [(at, at - 5.0) for at in TIMES]),
    ]
    for model in ("good", "bad"):
        group = group_labels("latency", model)
        rows += recorded_group(group, TIMES, target=0.99, threshold=1.0, burn=0.5, spent=0.2, seen=True)
        ready = {**EXPORTER, "model": model, "version": "1"}
        rows.append((str(state.MODEL_READY), ready, [(at, 1.0) for at in TIMES]))
    alert = {"alertname": BURN_ALERTS["latency"], "alertstate": "firing", names.COMPONENT: "slo"}
    about = {
        names.SLO: "latency",
        "model": "bad",
        "version": "1",
        names.SEVERITY: "critical",
        names.TIER: "page_fast",
    }
    rows.append(("ALERTS", alert | about, [(at, 1.0) for at in TIMES]))
    with history.serve(
        history.openmetrics(rows), tmp_path_factory.mktemp("prometheus"), server=request.param
    ) as url:
        yield url


@pytest.fixture(scope="module")
def without_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a Prometheus that scrapes the exporter and has no rules."""
    up = [(str(state.UP), EXPORTER, [(at, 1.0) for at in TIMES])]
    with history.serve(history.openmetrics(up), tmp_path_factory.mktemp("without")) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two objectives, in a folder whose name needs quotes in a shell."""
    folder = tmp_path / "our objectives"
    folder.mkdir()
    (folder / "errors.yaml").write_text("{name: errors, target: 99.9%, indicator: errors}")
    (folder / "latency.yaml").write_text(
        "{name: latency, target: 99%, indicator: {kind: latency, threshold: 1s}}"
    )
    return folder


def run(verb: str, prometheus: str, *words: object) -> int:
    return main([verb, "--prometheus", prometheus, *map(str, words)])


@pytest.mark.real
@pytest.mark.parametrize("verb", ["status", "gate"])
def test_a_prometheus_without_any_rules_gets_the_commands_that_load_them(
    without_rules: str,
    folder: Path,
    verb: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message names the objectives, the Prometheus, and commands that work as they stand."""
    monkeypatch.chdir(folder.parent)

    assert CANNOT_TELL == run(verb, without_rules, "--objectives", folder)
    first, load, write, example = capsys.readouterr().err.splitlines()
    place = f"are not loaded in Prometheus at {without_rules}"
    assert first.startswith(f"tritonwatch {verb}: the rules of objectives errors, latency {place}")
    arguments = ["--objectives", str(folder), "--out", "generated"]
    assert ["tritonwatch", "reload", *arguments, "--prometheus", without_rules] == command(load)
    assert ["tritonwatch", "generate", *arguments] == command(write)
    assert "`generated` is an example" in example
    assert 0 == main(command(write)[1:])
    assert (folder.parent / "generated" / "rules" / "slo-errors.yml").is_file()


def command(line: str) -> list[str]:
    """Return the words of a command behind the colon that introduces it."""
    return shlex.split(line.partition(": ")[2])


@pytest.mark.real
@pytest.mark.parametrize("verb", ["status", "gate"])
def test_without_a_folder_of_objectives_the_commands_have_a_placeholder(
    without_rules: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No folder was given, so the message is about the rules of any objective."""
    assert CANNOT_TELL == run(verb, without_rules)

    first, load, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith(
        f"tritonwatch {verb}: no objective's rules are loaded in Prometheus at {without_rules}"
    )
    assert ["tritonwatch", "reload", "--objectives", "DIR"] == command(load)[:4]


@pytest.mark.real
@pytest.mark.parametrize("verb", ["status", "gate"])
def test_a_past_time_without_records_is_named_and_no_command_of_the_present(
    prometheus: str, folder: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rules are loaded now, and to load them again gives the past no records."""
    place = f"Prometheus at {prometheus} has no record of"

    assert CANNOT_TELL == run(verb, prometheus, "--objectives", folder, "--at", EARLIER)
    message = capsys.readouterr().err
    assert f"{place} objectives errors, latency at {utc_text(EARLIER)}\n" in message
    assert "reload" not in message
    assert CANNOT_TELL == run(verb, prometheus, "--at", EARLIER)
    assert f"{place} any objective at {utc_text(EARLIER)}\n" in capsys.readouterr().err


@pytest.mark.real
def test_status_shows_the_objectives_whose_rules_are_loaded(
    prometheus: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table and the JSON have the loaded objective, the message names the other, and the exit code is 1."""
    assert CANNOT_TELL == run("status", prometheus, "--objectives", folder)
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert "the rules of objective errors are not loaded" in shown.err

    assert CANNOT_TELL == run("status", prometheus, "--objectives", folder, "--json")
    assert {"latency"} == {row["slo"] for row in json.loads(capsys.readouterr().out)["group_statuses"]}


@pytest.mark.real
def test_gate_promotes_nothing_while_rules_are_missing_and_still_rolls_back(
    prometheus: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page is a reason to roll back, even if all else is unknown."""
    words = ("--objectives", folder, "--model")

    assert CANNOT_TELL == run("gate", prometheus, *words, "good")
    shown = capsys.readouterr()
    assert ["promote  latency good version 1", "verdict"] == [
        line.split(":")[0] for line in shown.out.splitlines()
    ]
    assert shown.out.endswith("verdict: cannot tell\n")
    assert "the rules of objective errors are not loaded" in shown.err
    assert CANNOT_TELL == run("gate", prometheus, *words, "good", "--json")
    assert "cannot tell" == json.loads(capsys.readouterr().out)["verdict"]
    assert 4 == run("gate", prometheus, *words, "bad")


@pytest.mark.real
@pytest.mark.parametrize("verb", ["status", "gate"])
def test_rules_of_objectives_that_were_not_asked_for_may_be_missing(
    prometheus: str, folder: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--objective latency` needs the rules of latency only."""
    words = ("--objectives", folder, "--model", "good", "--objective")

    assert 0 == run(verb, prometheus, *words, "latency")
    assert "" == capsys.readouterr().err
    assert CANNOT_TELL == run(verb, prometheus, *words, "errors")
    assert "the rules of objective errors are not loaded" in capsys.readouterr().err


@pytest.mark.real
def test_the_shown_command_logs_in_the_same_way_and_shows_no_secret(
    without_rules: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are named; the value of a header, which may be a secret, is left out."""
    (tmp_path / "token").write_text("s3cret")
    words = ("--token-file", tmp_path / "token", "--timeout", 20, "--header", "X-Scope-OrgID: s3cret")

    assert CANNOT_TELL == run("status", without_rules, "--objectives", folder, *words)
    message = capsys.readouterr().err
    assert "s3cret" not in message
    access = ["--timeout", "20", "--token-file", str(tmp_path / "token"), "--header", "X-Scope-OrgID: ..."]
    assert access == command(message.splitlines()[1])[-6:]


@pytest.mark.real
@pytest.mark.parametrize("verb", ["status", "gate"])
def test_a_target_that_is_edited_and_not_loaded_is_named(
    prometheus: str, folder: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both values are in the message, with the models of an override and the command that loads the files."""
    (folder / "errors.yaml").unlink()
    assert 0 == run("status", prometheus, "--objectives", folder)
    capsys.readouterr()

    (folder / "latency.yaml").write_text(
        "{name: latency, target: 99%, indicator: {kind: latency, threshold: 1s}, "
        "overrides: [{models: [good], target: 99.5%}]}"
    )
    assert CANNOT_TELL == run(verb, prometheus, "--objectives", folder, "--model", "good")
    shown = capsys.readouterr()
    first, second, load, *_ = shown.err.splitlines()
    assert first == (
        f"tritonwatch {verb}: Prometheus at {prometheus} still uses other values than the files in {folder}:"
    )
    assert "  latency good version 1: target 99.00% is loaded, 99.50% is in the files" == second
    assert "reload" == command(load)[1]
    assert CANNOT_TELL == run(verb, prometheus, "--objectives", folder, "--model", "good", "--at", NOW)
    message = capsys.readouterr().err
    assert f"used other values at {utc_text(NOW)} than the files in {folder}:" in message
    assert "target 99.00% was loaded, 99.50% is in the files" in message
    assert "reload" not in message
    assert 4 == run("gate", prometheus, "--objectives", folder, "--model", "bad")
