"""Test the demo's progress: it counts a step only when a user could have seen it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tritonwatch.demo.steps import (
    AFTER_REPAIR,
    BEFORE_REPAIR,
    STEPS,
    MessageLog,
    ModelRow,
    Notice,
    Observation,
    without_links,
)

SERVING = [
    ModelRow(model, version, ready=1, requests_per_second=5)
    for model, version in (
        ("embedder", "1"),
        ("classifier", "1"),
        ("classifier", "2"),
        ("pipeline", "1"),
        ("saturated", "1"),
    )
]
LOAD_FAILED = Notice("firing", "TritonModelLoadFailed", "broken", "No such file or directory: weights.txt")
NOT_READY = Notice("firing", "TritonModelDownEverywhere", "broken", "not ready for 12 s")
BURN = Notice("firing", "TritonQueueBudgetBurn", "saturated", "burning")
RESOLVED = [
    Notice("resolved", "TritonModelLoadFailed", "broken", "loaded"),
    Notice("resolved", "TritonModelDownEverywhere", "broken", "ready"),
]


def _happened(
    rows: Sequence[ModelRow] = SERVING, notices: Sequence[Notice] = (), repaired: bool = False
) -> set[str]:
    seen = Observation(rows, notices, repaired)
    return {name for name, happened in STEPS.items() if happened(seen)}


def test_the_repair_waits_for_the_steps_before_it() -> None:
    """All that is to be seen of the fault is seen before it, and the recovery after it."""
    fault = [LOAD_FAILED, NOT_READY, BURN]

    assert not BEFORE_REPAIR.keys() <= _happened(notices=[LOAD_FAILED, NOT_READY])
    assert BEFORE_REPAIR.keys() == _happened(notices=fault)
    repaired = [*SERVING, ModelRow("broken", "1", ready=1)]
    assert STEPS.keys() == _happened(repaired, [*fault, *RESOLVED], repaired=True)


def test_a_failed_load_without_tritons_reason_does_not_count() -> None:
    """The person on call must get the cause, not just a name."""
    silent = Notice("firing", "TritonModelLoadFailed", "broken", "something is wrong")

    assert list(BEFORE_REPAIR)[1] not in _happened(notices=[silent])


def test_traffic_needs_every_model() -> None:
    """A model without requests, or a version that is missing, is seen."""
    idle = [*SERVING[:-1], ModelRow("saturated", "1", ready=1, requests_per_second=0)]

    for rows in (SERVING[:-1], idle, []):
        assert set() == _happened(rows)


def test_a_resolve_before_the_repair_does_not_count() -> None:
    """A flap of the alert is not a recovery."""
    assert not AFTER_REPAIR.keys() & _happened(notices=RESOLVED)


def test_each_message_is_returned_once_when_it_is_appended(tmp_path: Path) -> None:
    """Two messages of one second are both returned, and one that was read half written is returned again."""
    path = tmp_path / "bridge.log"
    path.touch()
    log = MessageLog(path)
    new = []
    for appended in ("", "\nfirst\n", "", "\nsecond\n\nthi", "rd \u2713\n", "\nfourth\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write(appended)
        new.append(log.new_messages())

    assert [[], ["first"], [], ["second", "thi"], ["third \u2713"], ["fourth"]] == new
    assert "fourth" == log.newest


def test_what_the_bridge_wrote_before_is_not_read_again(tmp_path: Path) -> None:
    """Only the bytes after the last read are read; the demo polls every second, for days if nobody stops it."""
    path = tmp_path / "bridge.log"
    path.write_text("\nfirst\n")
    log = MessageLog(path)
    log.new_messages()
    path.write_text("\n?????\n\nsecond\n")

    assert ["second"] == log.new_messages()


def test_a_message_is_printed_without_its_links() -> None:
    """An address of 900 characters hid the text of a page."""
    query = f"│ Query:        http://127.0.0.1:19404/graph?g0.expr={'%28' * 300}\n"
    silences = "".join(
        f"│ Silence {n} of 2: http://127.0.0.1:19405/#/silences/new?filter=x\n" for n in (1, 2)
    )
    text = "│ Affected:     broken on http://127.0.0.1:19400: weights.txt is missing\n│ incident 36bd7ba9\n"

    assert text == without_links(f"│ Runbook:      https://example.org/runbook.md\n{query}{silences}{text}")
