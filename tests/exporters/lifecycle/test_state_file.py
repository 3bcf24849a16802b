"""Test the state file: histograms continue, or start at zero with a reason in the log."""

from __future__ import annotations

import itertools
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.distribution.test_distributions import REQUEST, M, body, shown
from support.exporter import exporting
from support.thorough import examples
from triton_exporter.catalogue import own
from triton_exporter.distribution.buckets import Buckets
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.estimate.estimator import Estimator
from triton_exporter.distribution.observations import RecentGain
from triton_exporter.distribution.state_file import (
    StateFile,
    StateFileInUseError,
    StoredModel,
    StoredState,
    decode_state,
    encode_state,
)
from triton_exporter.exposition.parse import parse
from tritonwatch.cli import main

TRITON = "http://127.0.0.1:8002/metrics"
COUNT, SUM = f"{REQUEST}_count{{{M}}}", f"{REQUEST}_sum{{{M}}}"
BUCKETS = Buckets(thresholds={"request": (0.25,), "queue": (0.1,)})


def distributions(buckets: Buckets = BUCKETS) -> Distributions:
    return Distributions(buckets, estimator=Estimator(buckets))


def restarted(before: Distributions, now: float, buckets: Buckets = BUCKETS) -> Distributions:
    """Another exporter that goes on from what this one stored."""
    stored = before.stored(now)
    assert stored is not None
    after = distributions(buckets)
    after.restore(decode_state(encode_state(StoredState(TRITON, "boot", False, list(stored)))).models, now)
    return after


def counted(*bodies: bytes, buckets: Buckets = BUCKETS) -> Distributions:
    made = distributions(buckets)
    for second, page in enumerate(bodies):
        made.observe(parse(page), float(second))
    return made


def test_requests_while_the_exporter_was_away_are_counted() -> None:
    """The first reading after a restart brings what Triton counted since the last one before it."""
    before = counted(body((M, 100, 5e6, 0)), body((M, 110, 6e6, 0)))

    after = restarted(before, 10)
    assert (10, 1) == (shown(after)[COUNT], shown(after)[SUM])
    after.observe(parse(body((M, 150, 8e6, 0))), 20)
    assert (50, 3) == (shown(after)[COUNT], shown(after)[SUM])


OTHER = ('model="n",version="1"', 1, 1, 1)
FIRST, SECOND = body((M, 100, 5e6, 0), OTHER), body((M, 110, 6e6, 0), OTHER)


@pytest.mark.parametrize(
    ("before", "after", "counted_in_all"),
    [
        pytest.param([FIRST, SECOND], [body((M, 7, 2e6, 0), OTHER)], (17, 3), id="Triton was restarted, too"),
        pytest.param(
            [FIRST, SECOND, body(OTHER)],
            [body((M, 120, 3e6, 0), OTHER)],
            (130, 4),
            id="it had dropped the model",
        ),
        pytest.param(
            [body((M, 100, 5e6, 0)), *[body((M, 100, 6e6, 0))] * 3],
            [body((M, 101, 6e6, 0))] * 2,
            (1, 1),
            id="time that waits for its request is stored",
        ),
    ],
)
def test_nothing_is_lost_or_counted_twice_at_a_restart(
    before: list[bytes], after: list[bytes], counted_in_all: tuple[float, float]
) -> None:
    """A counter below what was stored began at zero: its whole value is new."""
    exporter = restarted(counted(*before), 10)
    for second, page in enumerate(after, 20):
        exporter.observe(parse(page), second)

    assert counted_in_all == (shown(exporter)[COUNT], shown(exporter)[SUM])


def test_other_bounds_start_at_zero() -> None:
    """A histogram with other buckets cannot go on; the requests since the restart are in it."""
    after = restarted(counted(FIRST, SECOND), 10, Buckets(thresholds={"request": (0.3,)}))
    after.observe(parse(body((M, 115, 7e6, 0))), 20)

    assert (5, 1) == (shown(after)[COUNT], shown(after)[SUM])


def test_a_damaged_first_body_counts_nothing_twice() -> None:
    """A model that the first body after a restart lacks goes on from its stored counters later."""
    after = restarted(counted(FIRST, SECOND), 10)
    after.observe(parse(body(OTHER) + b"nv_inference_request_success{"), 20)
    again = restarted(after, 21)
    again.observe(parse(body((M, 111, 6.5e6, 0), OTHER)), 22)

    assert (11, 1.5) == (shown(again)[COUNT], shown(again)[SUM])


def after_three_minutes(gained: int, seconds: float) -> float:
    """Return the share of `gained` requests within 0.25 s; of 1,800 before, 1 of 20 took 0.4 s."""
    before = distributions()
    requests, micros = 0, 0.0
    for tenth in range(1801):
        before.observe(parse(body((M, requests, micros, 0))), tenth / 10)
        before.stored(tenth / 10)
        requests, micros = requests + 1, micros + (4e5 if tenth % 20 == 7 else 1e4)
    after = restarted(before, 181)
    known = shown(after)
    after.observe(parse(body((M, 1800 + gained, 1800 * 0.0295e6 + seconds * 1e6, 0))), 190)
    now = shown(after)
    le = f'{REQUEST}_bucket{{{M},le="0.25"}}'
    assert gained == now[COUNT] - known[COUNT]
    return (now[le] - known[le]) / gained


@pytest.mark.parametrize(
    ("gained", "mean", "share"),
    [
        pytest.param(400, 0.031, 0.95, id="like those before: with their tail"),
        pytest.param(400, 0.31, 0, id="Triton became ten times slower: by their mean"),
        pytest.param(1, 0.03, 1, id="a single one: what the sum proves"),
    ],
)
def test_requests_during_a_restart_are_spread(gained: int, mean: float, share: float) -> None:
    """Many requests in one sum, with the mean of the last minutes, have their tail too."""
    assert share == pytest.approx(after_three_minutes(gained, gained * mean), abs=0.005)


def test_what_moves_to_another_bucket_is_not_negative() -> None:
    """A request stored at its mean, while it waits, can enter another bucket later."""
    recent = RecentGain([0, 0], 0.0, [0, 0], 0.0)
    recent.gained([0, 5], 1.0, 0.0)
    recent.gained([0, 5], 1.0, 130.0)

    assert ((5, 0), 0.0) == recent.gained([5, 0], 1.0, 131.0)


def test_nothing_is_stored_before_triton_was_read() -> None:
    """Without a reading the next start could take all that Triton ever counted for new."""
    assert None is distributions().stored(0)


gains = st.tuples(
    st.integers(0, 40), st.floats(0.0001, 2), st.booleans(), st.sampled_from(["", "stop", "read"])
)


@given(st.lists(gains, min_size=1, max_size=60))
@examples(20, thorough=1000)
def test_requests_that_wait_at_a_restart_are_counted_once(steps: list[tuple[int, float, bool, str]]) -> None:
    """Restarts at any moment, torn readings and pending estimates: no request is lost, no series goes back."""
    now, requests, micros, queued = 100.0, 1000, 5e7, 1e6
    exporter = distributions()
    exporter.observe(parse(body((M, requests, micros, queued))), now)
    pages = [shown(exporter)]
    for gained, mean, torn, event in steps:
        now += 0.05
        requests += gained
        if torn:  # the count is there before its time
            exporter.sample(parse(body((M, requests, micros, queued))), now)
            now += 0.05
        micros += round(gained * mean * 1e6)
        queued += round(gained * mean * 1e5)
        if event == "stop":
            exporter = restarted(exporter, now)
        elif event == "read":
            exporter.observe(parse(body((M, requests, micros, queued))), now)
        else:
            exporter.sample(parse(body((M, requests, micros, queued))), now)
        pages.append(shown(exporter))
        stored = exporter.stored(now)
        assert stored is not None
        state = StoredState(TRITON, "boot", False, list(stored))
        assert state == decode_state(encode_state(state))
    # Time whose request was counted before waits for the next one.
    requests, micros = requests + 1, micros + 1000
    for _ in range(10):
        now += 1.0
        exporter.observe(parse(body((M, requests, micros, queued))), now)
        pages.append(shown(exporter))

    assert requests - 1000 == pages[-1][COUNT]
    assert (micros - 5e7) / 1e6 == pytest.approx(pages[-1][SUM])
    growing = [name for name in pages[0] if "duration_seconds" in name or "requests_within" in name]
    assert len(growing) > 40
    for earlier, later in itertools.pairwise(pages):
        assert [] == [name for name in growing if later[name] < earlier[name]]


def stored_models() -> list[StoredModel]:
    models = counted(body((M, 100, 5e6, 0)), body((M, 110, 6e6, 0))).stored(0)
    assert models is not None
    return list(models)


def path_with(tmp_path: Path, change: Any = None, ended: bool = False) -> Path:
    """Return a good file whose JSON or bytes `change` spoils."""
    path = tmp_path / "state.json"
    file = StateFile(path, TRITON)
    assert file.write(stored_models(), ended=ended)
    file.close()
    if change is not None:
        content = change(json.loads(path.read_bytes()))
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def with_model(**values: Any) -> Any:
    return lambda content: content | {"models": [content["models"][0] | values]}


def with_histogram(**values: Any) -> Any:
    def change(content: Any) -> Any:
        histograms = content["models"][0]["histograms"]
        return with_model(histograms=histograms | {"request": histograms["request"] | values})(content)

    return change


SPOILED = {
    "cut": (lambda content: json.dumps(content).encode()[:-40], "Invalid JSON"),
    "empty": (lambda _: b"", "Invalid JSON"),
    "garbage": (lambda _: os.urandom(500), "Invalid JSON"),
    "another JSON": (lambda _: [1, 2], "should be an object"),
    "of another version": (lambda content: content | {"format": 2}, "format: Input should be 1"),
    "of another Triton": (
        lambda content: content | {"triton": "http://other/metrics"},
        "http://other/metrics",
    ),
    "of the machine before it crashed": (lambda content: content | {"boot": "x"}, "machine was restarted"),
    "with a negative counter": (with_model(requests=-1.0), "requests: Input should be greater"),
    "with an endless sum": (with_histogram(sum=float("inf")), "sum: "),
    "with NaN": (with_histogram(sum=float("nan")), "sum: "),
    "with a huge count": (with_histogram(counts=[10**30] * 17), "counts.0: "),
    "with a missing bucket": (with_histogram(counts=[1] * 16, recent=[1] * 16), "16 counts for 16 bounds"),
    "with text for numbers": (with_histogram(held=["0", 0.0, 0.0]), "held.0: "),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_state_file_is_removed(
    spoiled: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The histograms start at zero, the log has the reason, and the file is deleted: its values never return."""
    change, reason = SPOILED[spoiled]
    path = path_with(tmp_path, change)

    assert None is StateFile(path, TRITON).load()
    assert 1 == len(caplog.records)
    assert reason in caplog.text
    assert "start at zero" in caplog.text
    assert not path.exists()


def test_a_good_file_is_used(tmp_path: Path) -> None:
    """What was written is what is read."""
    assert stored_models() == StateFile(path_with(tmp_path), TRITON).load()


def test_a_file_of_an_exporter_that_ended_survives_the_machine(tmp_path: Path) -> None:
    """Its end marks it as complete, on whatever machine it is read; it is used only once."""
    path = path_with(tmp_path, lambda content: content | {"boot": "x"}, ended=True)

    assert stored_models() == StateFile(path, TRITON).load()
    assert not json.loads(path.read_bytes())["ended"]


def test_only_its_user_can_read_the_state_file(tmp_path: Path) -> None:
    """Other users can neither read model names nor write counts."""
    umask = os.umask(0)
    try:
        path = path_with(tmp_path)
    finally:
        os.umask(umask)

    assert [0o600, 0o600] == [stat.S_IMODE(file.stat().st_mode) for file in (path, Path(f"{path}.lock"))]


def test_a_file_that_cannot_be_replaced_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each start would go on from the same old values, and Prometheus would count them again."""
    path = path_with(tmp_path)
    Path(f"{path}.new").mkdir()

    assert None is StateFile(path, TRITON).load()
    assert "cannot write" in caplog.text


def test_a_write_that_fails_leaves_no_old_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Old values are worse than none; one line in the log reports it, and another when writing works again."""
    caplog.set_level(logging.INFO)
    file = StateFile(path_with(tmp_path), TRITON)
    path = tmp_path / "state.json"
    assert file.load() is not None
    caplog.clear()
    Path(f"{path}.new").mkdir()

    assert [False, False] == [file.write([]), file.write(stored_models())]
    assert (False, False) == (path.exists(), file.is_usable)
    assert 1 == len(caplog.records)
    Path(f"{path}.new").rmdir()
    assert file.write([])
    assert (True, True) == (path.exists(), file.is_usable)
    assert "is written again" in caplog.text


@pytest.mark.parametrize(("name", "stored"), [(None, 0), ("state.json", 1), ("missing/state.json", 0)])
def test_a_series_shows_whether_a_restart_loses_requests(
    name: str | None, stored: int, tmp_path: Path
) -> None:
    """Without a file, or with one that cannot be written, the histograms begin at zero at the next start."""
    file = tmp_path / name if name else None
    with exporting("http://127.0.0.1:9", "http://127.0.0.1:9/metrics", state_file=file) as exporter:
        assert stored == exporter.scrape().value(own.STATE_STORED)


@pytest.mark.parametrize("name", ["folder", "missing/state.json", "state.json/in-a-file"])
def test_a_path_that_cannot_be_a_file(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The exporter continues without it, and its message names what to do."""
    (tmp_path / "folder").mkdir()
    path_with(tmp_path)
    file = StateFile(tmp_path / name, TRITON)

    assert (None, False) == (file.load(), file.write([]))
    assert 1 == len(caplog.records)
    assert "name a file in a folder that this user can write to" in caplog.text


def test_a_device_is_never_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """`--state-file /dev/null` is a mistake that must not cost the machine its /dev/null."""
    file = StateFile(Path("/dev/null"), TRITON)

    assert (None, False) == (file.load(), file.write([]))
    assert Path("/dev/null").is_char_device()
    assert "is not a file" in caplog.text


def test_a_link_beside_the_state_file_is_not_followed(tmp_path: Path) -> None:
    """A user who can write to the folder cannot make the exporter overwrite a file elsewhere."""
    victim = tmp_path / "victim"
    victim.write_text("safe")
    Path(f"{tmp_path / 'state.json'}.new").symlink_to(victim)

    assert not StateFile(tmp_path / "state.json", TRITON).write([])
    assert "safe" == victim.read_text()


def test_two_exporters_on_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second refuses to start, with what to change; after the first has ended it may."""
    path = path_with(tmp_path)
    first = StateFile(path, TRITON)
    argv = ["exporter", "--triton", "http://127.0.0.1:1", "--gpu", "none", "--state-file", str(path)]

    assert 1 == main(argv)
    assert f"{path} is in use by another exporter; give each its own --state-file" in capsys.readouterr().err
    first.close()
    StateFile(path, TRITON).close()
    with pytest.raises(StateFileInUseError):
        (StateFile(path, TRITON), StateFile(path, TRITON))
