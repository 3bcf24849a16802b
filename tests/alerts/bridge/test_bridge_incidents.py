"""Test the verb `incidents`: it lists what a bridge has recorded."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.bridge import CHANNEL, body_of
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.incident import Event, Evidence, Fault, Incident, Mark, key_of
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_exporter.common.moments import rfc3339
from tritonwatch.cli import main

MINUTE, HOUR = 60.0, 3600.0
SATURDAY = datetime(2026, 11, 21, 0, 37, tzinfo=UTC).timestamp()
MONDAY = datetime(2026, 11, 23, 9, 0, tzinfo=UTC).timestamp()
OPENED_LATER = 30.0
"""Seconds from the start of an alert to its notification."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / DATABASE_FILE, lambda _severity: CHANNEL)
    yield made
    made.close()


def fire(store: Store, model: str, at: float, severity: str = "critical", alert: str = "") -> None:
    alert = alert or f"{model}1"
    body = body_of(model, {alert: at}, {}, severity, group=f"{model} {severity}")
    store.receive(parse(body), at + OPENED_LATER)


def resolve(store: Store, model: str, start: float, end: float, severity: str = "critical") -> None:
    body = body_of(model, {}, {f"{model}1": (start, end)}, severity, group=f"{model} {severity}")
    store.receive(parse(body), end + 10)


def acknowledge(store: Store, name: str, at: float, by: str = "U0ALICE") -> None:
    def change(before: Incident) -> tuple[Incident, tuple[Event, ...]]:
        after = before.model_copy(update={"acknowledged": Mark(by=by, at=at)})
        return after, (Event(at=at, kind="acknowledged", by=by),)

    number = store.incidents.find(name)
    assert number is not None
    store.change(number, change)


def a_week(store: Store) -> list[str]:
    """Record a page that was acknowledged, a ticket that became a page, and a ticket; return their names."""
    fire(store, "broken", SATURDAY)
    first = list_incidents(store.database.path.parent)[0].incident.name
    acknowledge(store, first, SATURDAY + OPENED_LATER + 3 * MINUTE)
    resolve(store, "broken", SATURDAY, SATURDAY + 15 * MINUTE)
    monday = MONDAY - 7 * 24 * HOUR + 2 * HOUR
    fire(store, "resnet", monday, "warning")
    fire(store, "resnet", monday + HOUR, alert="resnet2")
    fire(store, "bert", monday, "warning")
    return [recorded.incident.name for recorded in list_incidents(store.database.path.parent)]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run the verb; return what it printed."""
    code = main(["incidents", *words])
    shown = capsys.readouterr()
    assert 0 == code, shown.err
    return shown.out


def test_the_morning_after_an_incident_is_read_beside_the_running_bridge(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who acknowledged the incident, how long acknowledgement and recovery took, and its events with times."""
    name, *_ = a_week(store)
    page = printed(capsys, "show", name[:5], "--data", str(tmp_path))

    assert "began           2026-11-21 00:37:00" in page
    assert "recovered       2026-11-21 00:52:00" in page
    assert "lasted          15m" in page
    assert "acknowledged    by @U0ALICE in 3m" in page
    assert [
        "00:37:30  firing (page)",
        "00:40:30  👀 @U0ALICE acknowledged the incident",
        "00:52:10  🟢 Recovered after",
    ] == [
        re.sub(r": .*| after .*", lambda match: " after" if "after" in match[0] else "", line.strip())
        for line in page.splitlines()
        if re.match(r"  \d\d:", line)
    ]


def test_a_list_of_incidents_fits_a_narrow_terminal(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line an incident and what was wrong below, the oldest first: when, how urgent, how long, who."""
    recorded = a_week(store)
    lines = printed(capsys, "--data", str(tmp_path), "--last", "3650d").splitlines()

    assert recorded == [line[:8] for line in lines if not line.startswith(" ")]
    assert "          Model broken" in lines[1]
    assert f"{recorded[0]}  2026-11-21 00:37:00 UTC  page    took 15m, acknowledged in 3m" == lines[0]
    assert [] == [line for line in lines if len(line) > 80]


@pytest.mark.parametrize("before", [[], ["--last", "3650d"]])
def test_list_is_a_word_like_show(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], before: list[str]
) -> None:
    """`incidents list` lists, wherever the options stand."""
    a_week(store)
    plain = printed(capsys, "--data", str(tmp_path), "--last", "3650d")

    after = [] if before else ["--last", "3650d"]
    assert plain == printed(capsys, *before, "list", "--data", str(tmp_path), *after)


def test_a_page_that_has_ended_is_not_called_firing(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the page of an incident has ended, its ticket fires on."""
    alerts = {"slow": SATURDAY, "fast": SATURDAY}
    body = json.loads(body_of("m", alerts, {}, "critical", group="m"))
    body["alerts"][0]["labels"]["severity"] = "warning"
    store.receive(parse(json.dumps(body).encode()), SATURDAY + MINUTE)
    data = ("--data", str(tmp_path))
    [recorded] = list_incidents(tmp_path)
    name = recorded.incident.name
    assert f"incident {name}, page, firing\n" in printed(capsys, "show", name, *data)

    body["alerts"][1] |= {"status": "resolved", "endsAt": rfc3339(SATURDAY + 5 * MINUTE)}
    store.receive(parse(json.dumps(body).encode()), SATURDAY + 6 * MINUTE)

    assert f"incident {name}, page over, ticket still firing\n" in printed(capsys, "show", name, *data)
    assert "ticket still firing for " in printed(capsys, *data)

    over = Fault(over="now within the target", since=SATURDAY + 7 * MINUTE)
    faults = {key_of(member.labels): over for member in recorded.incident.members.values()}
    evidence = Evidence(at=SATURDAY + 8 * MINUTE, faults=faults)
    store.change(1, lambda before: (before.model_copy(update={"evidence": evidence}), ()))

    shown = printed(capsys, "show", name, *data)
    assert "over since 2026-11-21 00:" in printed(capsys, *data)
    assert "over since      2026-11-21 00:" in shown
    assert "firing for" not in shown


@pytest.mark.parametrize(("largest", "words"), [("loading", "loading"), ("", "not known")])
def test_a_cause_that_the_message_named_is_known_the_morning_after(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], largest: str, words: str
) -> None:
    """A burn alert has its cause in its evidence: in `show`."""
    body = json.loads(body_of("m", {"m1": SATURDAY}, {}, "critical", group="m"))
    body["alerts"][0]["annotations"].pop("cause", None)
    body["alerts"][0]["labels"]["alertname"] = "TritonReadinessBudgetBurn"
    store.receive(parse(json.dumps(body).encode()), SATURDAY + OPENED_LATER)
    [recorded] = list_incidents(tmp_path)
    number = store.incidents.find(recorded.incident.name)
    assert number is not None
    evidence = Evidence(at=SATURDAY, largest_cause=largest)
    store.change(number, lambda before: (before.model_copy(update={"evidence": evidence}), ()))

    page = printed(capsys, "show", recorded.incident.name, "--data", str(tmp_path))

    assert f"cause           {words}\n" in page


def test_the_json_of_an_incident_has_its_times_and_its_timeline(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object a line; a ticket that became a page counts from then on."""
    a_week(store)
    lines = printed(capsys, "--data", str(tmp_path), "--last", "3650d", "--json").splitlines()
    page, raised, ticket = map(json.loads, lines)

    assert (180.0, 900.0) == (page["seconds_to_acknowledge"], page["seconds_to_recover"])
    assert {"by": "U0ALICE", "at": "2026-11-21T00:40:30Z"} == page["acknowledged"]
    assert ["fired", "acknowledged", "closed"] == [event["kind"] for event in page["timeline"]]
    assert ("critical", "2026-11-16T12:00:30Z") == (raised["severity"], raised["paged_at"])
    assert ("warning", None) == (ticket["severity"], ticket["paged_at"])


def test_incidents_of_a_bridge_with_another_schema_are_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says whose file it is."""
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as old:
        old.execute("PRAGMA user_version = 1")
    code = main(["incidents", "--data", str(tmp_path)])
    line = capsys.readouterr().err

    assert 1 == code
    assert "use the tritonwatch of the bridge" in line


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        ([], 2, "give --data DIR"),
        (["--data", "/nonexistent"], 2, "is not a folder"),
        (["show", "abc", "--data", "."], 1, "incident abc: not found"),
        (["abcd", "--data", "."], 1, "incident abcd: not found"),
    ],
)
def test_a_mistake_in_reading_incidents_is_named(
    words: list[str],
    code: int,
    output: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line, with what to do."""
    monkeypatch.chdir(tmp_path)

    assert code == main(["incidents", *words])
    assert output in capsys.readouterr().err
