"""Test the reader of Triton's log: failures that no API shows, through rotation, pipes and invalid lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.triton_log import (
    LoggedFailure,
    LogReader,
    LogTail,
    failed_request,
    logged_failure,
    standing_failures,
)
from triton_exporter.snapshot import IndexEntry, Snapshot

_FAILED = (
    "E1121 04:02:54.007260 21575 model_lifecycle.cc:642] \"failed to load 'bad' version 1: Internal: "
    'RuntimeError: weights missing\\n\\nAt:\\n  /models/bad/1/model.py(13): initialize\\n"'
)


@pytest.mark.parametrize(
    ("head", "text", "model", "version"),
    [
        (
            "E1121 model_lifecycle.cc:642] \"failed to load 'bad' version 1: ",
            "Internal: RuntimeError: no\n\nAt:\n",
            "bad",
            "1",
        ),
        (
            "E1121 model_repository_manager.cc:1460] \"Poll failed for model directory 'badcfg': ",
            "failed to read text proto from /models/badcfg/config.pbtxt",
            "badcfg",
            "",
        ),
        (
            "E1121 model_repository_manager.cc:724] \"failed to load model 'nover': ",
            "at least one version must be available under the version policy of model 'nover'",
            "nover",
            "",
        ),
        (
            'E1121 05:25:17.926730 29985 tritonserver.cc:2607] "',
            "Internal: failed to stat file /nosuch",
            "",
            "",
        ),
    ],
)
def test_lines_of_a_real_log_are_understood(head: str, text: str, model: str, version: str) -> None:
    """Each kind of failure line of Triton 2.51 gives the model, its version and Triton's text."""
    line = f'{head}{text}"'.replace("\n", r"\n")
    assert LoggedFailure(model, version, text) == logged_failure(line)


@pytest.mark.parametrize(
    "text",
    [
        "ensemble 'ens' depends on 'bad' which has no loaded version. Model 'bad' loading failed with error: version 1 is at UNAVAILABLE state: Internal: RuntimeError: weights missing",
        "ensemble ens contains models that are not available or ambiguous: nosuch",
        "in ensemble ens, ensemble tensor X: inconsistent data type: TYPE_INT32 is inferred from model ens ...",
        "ensemble ens allows maximum batch size 4, but it contains model b2 which only allows maximum batch size to be 2",
        "circular dependency between ensembles: ens -> ... -> other -> ens",
    ],
)
def test_lines_about_ensembles_are_understood(text: str) -> None:
    """Each way in which an ensemble does not fit its steps."""
    line = f'E1122 model_repository_manager.cc:703] "Invalid argument: {text}"'
    assert LoggedFailure("ens", "", text, of_ensemble=True) == logged_failure(line)


@pytest.mark.parametrize(("folder", "is_known"), [("/models/served", True), ("/tmp/folderq3xJ9a", False)])
def test_a_missing_file_is_of_the_model_whose_folder_it_is(folder: str, is_known: bool) -> None:
    """A folder that Triton made for files in a request has no name of a model."""
    text = f"Python model file not found in '{folder}/1/model.py'"
    failure = logged_failure(f"I1121 28202 pb_stub.cc:2105]  Failed to preinitialize Python stub: {text}")
    assert (LoggedFailure("served", "1", text) if is_known else None) == failure


@pytest.mark.parametrize(
    "line",
    [
        "I1121 21575 model_lifecycle.cc:777] \"failed to load 'a'\"",
        "I1121 \"successfully loaded 'echo'\"",
        "",
    ],
)
def test_other_lines_are_no_failures(line: str) -> None:
    """Neither what Triton writes of a load that follows, nor of a good one."""
    assert logged_failure(line) is None


@given(st.text())
def test_any_line_is_a_failure_or_none(line: str) -> None:
    """No line can raise."""
    failure = logged_failure(line)

    assert failure is None or failure.model or "server" in line


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(1, 7))
def test_lines_survive_any_way_of_arriving(pieces: list[bytes], chunk: int) -> None:
    """However the bytes of a pipe are cut, the lines are the same."""
    written = b"".join(pieces) + b"\n"
    read, write = os.pipe()
    os.set_blocking(read, False)
    path = Path(f"/dev/fd/{read}")
    tail = LogTail(path)
    try:
        lines = []
        for start in range(0, len(written), chunk):
            os.write(write, written[start : start + chunk])
            lines += tail.lines()
        assert [line.decode("utf-8", "replace") for line in written.split(b"\n")[:-1]] == lines
    finally:
        tail.close()
        os.close(read)
        os.close(write)


def test_an_old_log_is_not_counted_again(tmp_path: Path) -> None:
    """Lines from before the exporter started are not counted."""
    log = tmp_path / "triton.log"
    log.write_text("old\n")
    tail = LogTail(log)
    with log.open("a") as file:
        file.write("new\nhalf")
        file.flush()
        assert ["new"] == tail.lines()
        file.write(" and half\n")
        file.flush()
        assert ["half and half"] == tail.lines()
    tail.close()


def test_rotation_by_rename_and_by_truncation_is_survived(tmp_path: Path) -> None:
    """Lines written to the old file after its last read are not lost, nor those of the new one."""
    log = tmp_path / "triton.log"
    tail = LogTail(log)
    assert not tail.readable
    log.write_text("first\n")
    assert ["first"] == tail.lines()

    with log.open("a") as old:
        old.write("last words\n")
    log.rename(tmp_path / "triton.log.1")
    assert ["last words"] == tail.lines()
    assert [] == tail.lines()
    log.write_text("second file\n")
    assert ["second file"] == tail.lines()

    log.write_text("cut\n")
    assert ["cut"] == tail.lines()
    tail.close()


def test_the_first_line_after_a_rotation_within_an_endless_line_is_read(tmp_path: Path) -> None:
    """Neither the rest of an unfinished line nor the skipping of a long one carries over into the new file."""
    log = tmp_path / "triton.log"
    log.write_text("")
    tail = LogTail(log)
    for unfinished in ("x" * 100_000, "half"):
        with log.open("a") as old:
            old.write(unfinished)
        assert [] == tail.lines()
        log.rename(tmp_path / "triton.log.1")
        log.write_text(f"{_FAILED}\n")
        assert [_FAILED] == tail.lines()
    tail.close()


_LOADED = "I1121 model_lifecycle.cc:839] \"successfully loaded 'bad'\""
_UNLOADED = "I1121 model_lifecycle.cc:624] \"successfully unloaded 'ens' version 1\""
_STARTED = 'I1121 cuda_memory_manager.cc:117] "CUDA memory pool disabled"'
_ENSEMBLE = (
    "E1121 model_repository_manager.cc:703] \"Invalid argument: ensemble 'ens' depends on 'bad' which has no "
    "loaded version. Model 'bad' loading failed with error: "
)

_RUBBISH = ("", "p\ufffd", "\ufffdr\x04\ufffd\ufffd\x7f", "`\ufffd\x06\ufffd\ufffd\x7f")
"""What Triton 2.51 wrote where the error of a step belongs that it had not loaded again."""


@pytest.mark.parametrize(
    ("lines", "models"),
    [
        ([_FAILED], {"bad"}),
        ([_FAILED, _LOADED], set()),
        ([_LOADED, _FAILED], {"bad"}),
        ([_FAILED, _STARTED], set()),
        ([_STARTED, _FAILED], {"bad"}),
        ([_ENSEMBLE + 'no tokenizer;"', _UNLOADED], {"ens"}),
        ([], set()),
    ],
)
def test_old_failures_stand_until_a_load_or_a_restart(lines: list[str], models: set[str]) -> None:
    """What was loaded since is no longer a failure, and a server that was started again has begun anew."""
    assert models == {failure.model for failure in standing_failures(lines)}


@pytest.mark.parametrize("rest", _RUBBISH)
def test_a_repeated_line_does_not_hide_the_error_of_the_step(rest: str) -> None:
    """Triton repeats the line about an ensemble without the error, or with rubbish in its place."""
    (failure,) = standing_failures([_ENSEMBLE + 'no tokenizer;"', _ENSEMBLE + f'{rest}"'])

    assert failure.text.endswith("no tokenizer;")


def test_an_ensemble_is_counted_once_though_triton_repeats_its_line_with_rubbish(tmp_path: Path) -> None:
    """Each load of another model writes the line again, with other bytes of memory for the step's error."""
    log = tmp_path / "triton.log"
    log.write_text("")
    lifecycle = Lifecycle()
    reader = LogReader(LogTail(log), lifecycle)
    with log.open("a") as file:
        file.writelines(f'{_ENSEMBLE}{rest}"\n' for rest in ("no tokenizer;", *_RUBBISH, "no tokenizer;"))
    reader.poll(1.0)
    reader.observe_snapshot(Snapshot(1.0, live=True, index=(IndexEntry("ens"),)))
    reader.close()

    assert 1 == lifecycle.load_failures.counts.total()
    assert lifecycle.load_failures.last["ens"].text.endswith("no tokenizer;")


def test_an_ensemble_is_counted_once_though_the_index_is_older_than_the_log(tmp_path: Path) -> None:
    """Its steps were loaded and unloaded since the index was read; a step that is nowhere is a failure all the same."""
    log = tmp_path / "triton.log"
    log.write_text("")
    lifecycle = Lifecycle()
    reader = LogReader(LogTail(log), lifecycle)
    contains = '"Invalid argument: ensemble {} contains models that are not available or ambiguous: {}"\n'
    with log.open("a") as file:
        file.write(_ENSEMBLE + 'no tokenizer;"\n' + contains.format("ens", "fine"))
        file.write(contains.format("other", "nosuch"))
    reader.poll(1.0)
    there = (IndexEntry("fine", "1", "UNAVAILABLE", "unloaded"), IndexEntry("bad", "1", "UNAVAILABLE", "no"))
    for at, entries in ((1.0, ()), (2.0, there), (3.0, there)):
        snapshot = Snapshot(at, live=True, index=(IndexEntry("ens"), *entries))
        reader.observe_snapshot(snapshot)
        lifecycle.observe_snapshot(snapshot)
    reader.close()
    counted = {model for model, _ in lifecycle.load_failures.counts.elements()}

    assert {"ens", "other"} == counted
    assert 2 == lifecycle.load_failures.counts.total()
    assert lifecycle.load_failures.last["ens"].text.endswith("no tokenizer;")


def test_a_restart_of_the_exporter_keeps_the_reason_and_counts_nothing_again(tmp_path: Path) -> None:
    """A model that failed before is missing with Triton's text; a repeated line about it counts nothing either."""
    log = tmp_path / "triton.log"
    line = _ENSEMBLE + 'no tokenizer;"\n'
    log.write_text("x\n" * 1_000_000 + line)
    lifecycle = Lifecycle()
    reader = LogReader(LogTail(log), lifecycle)
    for at in (1.0, 2.0, 3.0):
        reader.poll(at)
        snapshot = Snapshot(at, live=True, index=(IndexEntry("ens"),))
        reader.observe_snapshot(snapshot)
        lifecycle.observe_snapshot(snapshot)
        with log.open("a") as file:
            file.write(line)
    (record,) = lifecycle.records.values()
    reader.close()

    assert ("missing", True) == (record.claim.state, record.claim.reason.endswith("no tokenizer;"))
    assert {"ens"} == lifecycle.expected_models()
    assert 0 == lifecycle.load_failures.counts.total()


def test_an_old_failure_of_a_model_that_is_gone_or_serves_is_not_missed(tmp_path: Path) -> None:
    """A removed folder is ignored; of a failed hot reload only the reason is stored."""
    log = tmp_path / "triton.log"
    log.write_text(_FAILED + "\n" + _FAILED.replace("'bad'", "'gone'") + "\n")
    lifecycle = Lifecycle()
    reader = LogReader(LogTail(log), lifecycle)
    for at in (1.0, 2.0):
        snapshot = Snapshot(at, live=True, index=(IndexEntry("bad", "1", "READY"),))
        reader.observe_snapshot(snapshot)
        lifecycle.observe_snapshot(snapshot)
    reader.close()

    assert {"bad"} == {key.model for key, record in lifecycle.records.items() if record.claim.ready}
    assert {"bad"} == lifecycle.load_failures.last.keys() == {key.model for key in lifecycle.records}


def test_a_named_pipe_is_read_without_waiting_for_its_writer(tmp_path: Path) -> None:
    """Opening and reading never block, and a writer may come, go and come again."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tail = LogTail(pipe)
    assert [] == tail.lines()
    for text in ("one", "two"):
        writer = os.open(pipe, os.O_WRONLY)
        os.write(writer, f"{text}\n".encode())
        assert [text] == tail.lines()
        os.close(writer)
        assert [] == tail.lines()
    tail.close()


def test_a_line_without_end_costs_no_memory(tmp_path: Path) -> None:
    """A line longer than 64 KiB is skipped, the next one is read."""
    log = tmp_path / "triton.log"
    log.write_text("")
    tail = LogTail(log)
    with log.open("a") as file:
        for _ in range(3):
            file.write("x" * 50_000)
            file.flush()
            assert [] == tail.lines()
        file.write("\nshort\n")
    assert ["short"] == tail.lines()
    tail.close()


def test_the_log_counts_what_the_index_cannot_show(tmp_path: Path) -> None:
    """A failed hot reload counts as both kinds, a failure that both show counts once."""
    log = tmp_path / "triton.log"
    log.write_text("")
    lifecycle = Lifecycle()
    reader = LogReader(LogTail(log), lifecycle)

    def poll(at: float, *entries: IndexEntry, lines: str = "") -> None:
        with log.open("a") as file:
            file.write(lines)
        reader.poll(at)
        snapshot = Snapshot(at, live=True, index=entries)
        reader.observe_snapshot(snapshot)
        lifecycle.observe_snapshot(snapshot)

    ready = IndexEntry("bad", "1", "READY")
    failed = IndexEntry("new", "1", "UNAVAILABLE", "Internal: RuntimeError: no")
    poll(1, ready)
    poll(2, ready, lines=_FAILED + "\n")
    assert {("bad", "python_error"): 1} == dict(lifecycle.load_failures.counts)
    assert {("bad", "python_error"): 1} == dict(lifecycle.load_failures.reloads)

    line = "\"failed to load 'new' version 1: Internal: RuntimeError: no\"\n"
    poll(3, ready, failed, lines=line)
    poll(4, ready, failed)
    poll(5, ready, failed, lines=line * 2)
    assert 3 == lifecycle.load_failures.counts["new", "python_error"]
    assert 0 == lifecycle.load_failures.reloads["new", "python_error"]
    reader.close()


def test_the_exception_of_a_failed_request_is_of_its_model() -> None:
    """As 2.51 writes it, quoted, and as 2.41 does; the instance's name has two numbers behind the model's."""
    line = "pb_stub.cc:714] \"Failed to process the request(s) for model 'ranker_2_0_1', message: OSError: x\\n\\nAt:\\n\""
    old = "pb_stub.cc:366] Failed to process the request(s) for model 'ranker_2_0_1', message: OSError: x"

    assert ("ranker_2", "OSError: x\n\nAt:") == failed_request(line)
    assert ("ranker_2", "OSError: x") == failed_request(old)
    assert failed_request(_FAILED) is None
