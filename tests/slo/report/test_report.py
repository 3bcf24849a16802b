"""Test `tritonwatch report` on a real Prometheus over a month whose events the test made."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import requests

from support import history, web_fleet
from support.bridge import body_of
from support.browser import DEVICES, page_on
from support.loopback import served
from support.recorded_period import AGE, DAY, END, FIRST, LAST, START, MadeGroup, MadeObjective, unix
from support.tools import ROOT
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.receiver import Instruments, Webhook, listen
from triton_slo import names
from triton_slo.objective.model import Period
from triton_slo.prometheus import Prometheus
from triton_slo.promql import Matchers
from triton_slo.report.documents import document, sections
from triton_slo.report.events import ReportedPeriod, _counted, parse_period
from triton_slo.report.outcome import recorded_report
from triton_slo.server_access import Access
from tritonwatch.cli import main
from tritonwatch.commands.init import PROJECT
from tritonwatch.web.sources import PrometheusReader, Sources

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = os.environ.get("TRITONWATCH_PICTURES")
"""A folder to which pictures of the page are written, if it is set."""
HOSTILE = '<script>alert(1)</script>|`evil`"\n\x1b[2J'
MAINTENANCE = (unix("2025-09-10T02:00"), unix("2025-09-10T08:00"))
PAUSE = (unix("2025-09-14"), unix("2025-09-16T12:00"))
SILENT = (unix("2025-09-21"), unix("2025-09-21T10:00"))
UNKNOWN_FIRES = {"alertname": names.UNKNOWN_ALERT, "alertstate": "firing"}
SOURCE = (names.SLI_SOURCE, {names.SOURCE: "decomposed"}, (FIRST, LAST), 1.0)
REMOVED = unix("2025-09-17T10:00")
CANARY = (unix("2025-09-13T01:00"), unix("2025-09-13T04:00"))
MADE = (
    MadeObjective(
        "answers",
        "search",
        (
            MadeGroup("good", 0.0005, 1),
            MadeGroup("bad", 0.002, 2),
            MadeGroup(HOSTILE, 0.002, 3),
            MadeGroup(
                "new", 0.0004, 4, alive=(unix("2025-09-17"), LAST), recorded=(unix("2025-09-17"), LAST)
            ),
            MadeGroup("idle", 0.0, 5, pace=0.0),
            # Unloaded, and not recorded any more a week later.
            MadeGroup(
                "gone", 0.001, 6, alive=(FIRST, unix("2025-09-05")), recorded=(FIRST, unix("2025-09-12"))
            ),
            # Removed with its sum, at once.
            MadeGroup("removed", 0.002, 16, alive=(FIRST, REMOVED), recorded=(FIRST, REMOVED + 1)),
            # A canary of three hours.
            MadeGroup("canary", 0.3, 17, alive=CANARY, recorded=(CANARY[0], CANARY[1] + 1)),
        ),
    ),
    MadeObjective("calendar", "search", (MadeGroup("good", 0.0005, 7),), "month, America/Havana"),
    MadeObjective(
        "maintained", "ads", (MadeGroup("good", 0.0005, 8),), excluded={"maintenance": MAINTENANCE}
    ),
    MadeObjective(
        "paused",
        "ads",
        (MadeGroup("good", 0.0005, 9),),
        recorded=((FIRST, PAUSE[0] + 1), (PAUSE[1], LAST + 1)),
    ),
    MadeObjective("short", "ads", (MadeGroup("good", 0.0, 10),), recorded=((unix("2025-09-12"), LAST + 1),)),
    MadeObjective("ended", "ads", (MadeGroup("good", 0.0, 11),), recorded=((FIRST, unix("2025-09-28") + 1),)),
    MadeObjective(
        "silent", "", (MadeGroup("good", 0.0005, 12, more=[(names.ALERTS, UNKNOWN_FIRES, SILENT, 1.0)]),)
    ),
    MadeObjective(
        "changed", "batch", (MadeGroup("good", 0.005, 18, target=0.99, changed=(unix("2025-09-20"), 0.999)),)
    ),
    MadeObjective(
        "guessed",
        "",
        (
            MadeGroup("near", 0.0009, 13, more=[SOURCE, (names.ESTIMATE_ERROR, {}, (FIRST, LAST), 0.001)]),
            MadeGroup("far", 0.0001, 14, more=[SOURCE, (names.ESTIMATE_ERROR, {}, (FIRST, LAST), 0.0002)]),
        ),
    ),
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    text = history.openmetrics(row for objective in MADE for row in objective.series())
    with history.serve(text, tmp_path_factory.mktemp("prometheus")) as url:
        yield url


@pytest.fixture(scope="module")
def objectives(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Objective -> what the report has of it."""
    out = tmp_path_factory.mktemp("report") / "report.json"
    words = ["report", "--prometheus", prometheus, "--period", "2025-09", "--format", "json"]

    assert 0 == main([*words, "--out", str(out)])

    return {
        objective["slo"]: {**objective, "owner": owner["owner"]}
        for owner in json.loads(out.read_text())["owners"]
        for objective in owner["objectives"]
    }


def about(events: tuple[int, int]) -> object:
    """Return these events as `increase()` has them, which estimates the part of a step at each end."""
    return pytest.approx(events, rel=0.015, abs=3)


def groups(objective: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {group["group"]["model"]: group for group in objective["groups"]}


def results(objective: Mapping[str, Any]) -> dict[str, str]:
    return {model: group["result"] for model, group in groups(objective).items()}


@pytest.mark.real
def test_events_are_those_that_happened(objectives: Mapping[str, Any]) -> None:
    """Of a whole month, of a month on another clock, of a model that came and of one that went."""
    span = {"calendar": (unix("2025-09-01", "America/Havana"), unix("2025-10-01", "America/Havana"))}
    for made in MADE:
        if made.slo in ("paused", "short", "ended"):
            continue
        actual = groups(objectives[made.slo])
        for group in made.groups:
            truth = group.truth(span.get(made.slo, (START, END)))

            assert about(truth) == (actual[group.model]["failed_events"], actual[group.model]["events"]), (
                group.model
            )


@pytest.mark.real
def test_the_target_of_the_end_of_the_period_is_judged(objectives: Mapping[str, Any]) -> None:
    """A record of another objective begins between the days on which all are read."""
    changed = objectives["changed"]

    assert [("met", 0.99, 0.999)] == [
        (group["result"], group["target"], group["target_before"]) for group in changed["groups"]
    ]


def test_the_sli_weighs_events_and_not_models(objectives: Mapping[str, Any]) -> None:
    """An objective's SLI is the share of good events of all of its models together."""
    error, total = map(sum, zip(*(group.truth((START, END)) for group in MADE[0].groups), strict=True))

    assert pytest.approx(1 - error / total, abs=1e-5) == objectives["answers"]["sli"]


@pytest.mark.real
def test_each_model_is_judged_and_an_objective_is_as_good_as_its_worst(objectives: Mapping[str, Any]) -> None:
    """Met, missed, without events; one that missed is enough for the objective to be missed."""
    assert {
        "good": "met",
        "bad": "missed",
        HOSTILE: "missed",
        "new": "met",
        "idle": "no events",
        "gone": "missed",
        "removed": "missed",
        "canary": "missed",
    } == results(objectives["answers"])
    assert "missed" == objectives["answers"]["result"]
    assert ("met", "met") == (objectives["calendar"]["result"], objectives["maintained"]["result"])
    spent = groups(objectives["answers"])["bad"]["budget_spent"]
    error, total = MADE[0].groups[1].truth((START, END))
    assert pytest.approx(error / total / 0.001, rel=0.005) == spent


@pytest.mark.real
@pytest.mark.parametrize(
    ("slo", "note"),
    [
        ("short", "recorded only from 2025-09-11 23:59"),
        ("ended", "recorded only until 2025-09-28 00:00"),
        ("paused", "not recorded for 2d 12h in between, the longest from 2025-09-14 00:00"),
    ],
)
def test_a_history_with_parts_missing_is_never_met(
    objectives: Mapping[str, Any], slo: str, note: str
) -> None:
    """What is recorded is good, and the rest is not known: the result is unknown, and the missing time is named."""
    assert "unknown" == objectives[slo]["result"]
    assert note in " ".join(objectives[slo]["notes"])
    assert objectives[slo]["sli"] > 0.999


@pytest.mark.real
def test_counters_that_began_again_after_a_pause_lose_nothing_that_was_recorded(
    objectives: Mapping[str, Any],
) -> None:
    """Events of before and after a pause of days are counted; those in it are missing."""
    (group,) = MADE[3].groups
    spans = ((START, PAUSE[0]), (PAUSE[1], END))
    error, total = map(sum, zip(*map(group.truth, spans), strict=True))
    (reported,) = objectives["paused"]["groups"]

    assert about((error, total)) == (reported["failed_events"], reported["events"])
    assert pytest.approx(PAUSE[1] - PAUSE[0], abs=600) == reported["missing_seconds"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("slo", "now", "notes"),
    [
        # The rules were loaded minutes ago: the first record is at the end.
        (
            "short",
            "2025-09-12T00:01",
            ["recorded only from 2025-09-11 23:59, and events are counted from then on"],
        ),
        (
            "paused",
            "2025-09-16T12:01",
            ["not recorded for 2d 12h in between, the longest from 2025-09-14 00:00 for 2d 12h"],
        ),
        ("ended", "2025-09-28T00:11", ["recorded only until 2025-09-28 00:00"]),
    ],
)
def test_a_record_at_the_end_is_not_missing(prometheus: str, slo: str, now: str, notes: list[str]) -> None:
    """While a period lasts: what has begun to be recorded has no end, least of all one before its beginning."""
    with Prometheus(Access(prometheus)) as client:
        report = recorded_report(client, ReportedPeriod("month", 2025, 9), unix(now))
    [outcome] = [objective for objective in report.objectives if objective.slo == slo]

    assert notes == list(outcome.notes)
    assert outcome.recorded is not None
    assert (slo == "ended") == (outcome.recorded.ends_early is not None)
    tables = [section for section in sections(report) if "Events" in section.columns]
    [shown] = [row for table in tables for row in table.rows if row[0] == slo]
    assert (slo == "short") == (("-", "-") == shown[3:5])


@pytest.mark.real
def test_events_before_the_second_record_are_not_counted_as_none(prometheus: str) -> None:
    """Minutes after the rules were loaded, while the model has requests: tables and JSON agree."""
    with Prometheus(Access(prometheus)) as client:
        report = recorded_report(client, ReportedPeriod("month", 2025, 9), unix("2025-09-12T00:01"))
    tables = [section for section in sections(report) if "Budget spent" in section.columns]
    [notes] = [row[-1] for table in tables for row in table.rows if row[0] == "short"]
    owners = document(report)["owners"]
    [objective] = [each for owner in owners for each in owner["objectives"] if each["slo"] == "short"]
    [group] = objective["groups"]

    reason = "recorded only from a time after the period began; not enough records to count events yet"
    assert f"{reason}; counted from 2025-09-11 23:59" == notes
    assert (reason, unix("2025-09-12") - AGE, notes) == (
        group["reason"],
        group["since"],
        "; ".join(group["restrictions"]),
    )
    for fields in (objective, group):
        assert [None, None, None] == [fields[name] for name in ("sli", "events", "failed_events")]


@pytest.mark.real
def test_the_events_of_the_last_minutes_are_read_once(tmp_path: Path) -> None:
    """Between two whole hours: those of a group that serves, and of one that was removed within the day."""
    now = unix("2025-09-17T11:06")
    groups = [group for group in MADE[0].groups if group.model in ("good", "removed")]
    text = history.openmetrics(MadeObjective("answers", "search", groups).series())
    with history.serve(text, tmp_path) as url, Prometheus(Access(url)) as client:
        before = web_fleet.queries(url)
        report = recorded_report(client, ReportedPeriod("month", 2025, 9), now)
        counted = web_fleet.queries(url) - before

    actual = {group.group["model"]: group.recorded for group in report.objectives[0].groups}
    for group in groups:
        assert about(group.truth((START, now))) == (actual[group.model].error, actual[group.model].total)
    assert 10 >= counted


@pytest.mark.real
def test_excluded_and_unknown_time_is_named(objectives: Mapping[str, Any]) -> None:
    """Excluded time does not count; unknown time counts against an objective as far as it could have failed."""
    assert {"maintenance": 6 * 3600} == objectives["maintained"]["excluded_seconds"]
    assert ["excluded for 6h: maintenance"] == objectives["maintained"]["notes"]
    (silent,) = objectives["silent"]["groups"]
    assert (36_000, "unknown") == (silent["unknown_seconds"], silent["result"])
    assert "nothing is known of 10h" == silent["reason"]


@pytest.mark.real
def test_an_estimate_is_marked_and_judged_with_its_error(objectives: Mapping[str, Any]) -> None:
    """Within its error of the target the result is unknown; further away it is decided, and marked."""
    assert {"near": "unknown (estimated, +-0.1 points)", "far": "met (estimated, +-0.02 points)"} == results(
        objectives["guessed"]
    )
    assert "unknown (estimated)" == objectives["guessed"]["result"]
    assert (
        "within the error of the estimate (+-0.1 points)" == groups(objectives["guessed"])["near"]["reason"]
    )


@pytest.mark.real
def test_on_the_first_day_this_month_is_reported_with_its_caveats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half an hour after the rules were loaded, without an option; nothing is recorded of the last month.

    It ended four to eight minutes before: of 689 failures it counted 393. The exporter has been silent for a minute.
    """
    began, now = unix("2025-09-12T10:20"), unix("2025-09-12T10:54")
    more = [
        (names.SLI_SOURCE, {names.SOURCE: "backend_counters"}, (began, now), 1.0),
        (names.ESTIMATE_ERROR, {}, (began, now), 0.001),
    ]
    group = MadeGroup("good", 0.01, 19, more=more)
    young = MadeObjective("young", "ads", (group,), recorded=((began, now),))
    failed, events = group.truth((began, now + 60))
    labels = {names.SLO: "young", names.INDICATOR: "errors", "model": "good", "version": "1"}
    newer = [
        (names.COUNTER, {**labels, names.EVENT: event}, [(now - 90, float(value))])
        for event, value in ((names.ERROR, failed), (names.TOTAL, events))
    ]
    monkeypatch.setattr(time, "time", lambda: now)
    with history.serve(
        history.openmetrics([*young.series(), *newer]), tmp_path, flags=["--query.lookback-delta=1m"]
    ) as url:
        assert 0 == main(["report", "--prometheus", url])
        printed = capsys.readouterr().out
        assert 1 == main(["report", "--prometheus", url, "--period", "last-month"])
        assert "no record of any objective in 2025-08" in capsys.readouterr().err
        with web_fleet.pages(url) as (site, _):
            page, last = (
                web_fleet.text_of(requests.get(f"{site}/report?at={now:.0f}{period}", timeout=30).text)
                for period in ("", "&period=last-month")
            )

    assert "Objectives of 2025-09 so far" in page
    assert "unknown (failures may be hidden)" in page
    assert "no record of any objective in 2025-08" in last
    assert "# Objectives of 2025-09 so far" in printed
    assert re.search(
        rf"\| young \| unknown \(failures may be hidden\) \| [0-9.]+% \| {events:,} \| {failed:,} \|", printed
    ), printed


@pytest.mark.real
def test_owners_are_summed_up_and_chosen(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each owner has a line with how many objectives were met; `--owner` leaves the others out."""
    words = ["report", "--prometheus", prometheus, "--period", "2025-09"]
    assert 0 == main(words)
    lines = capsys.readouterr().out.splitlines()
    assert "| search | 2 | 1 | 1 | 0 | 0 |" in lines
    assert "| ads | 4 | 1 | 0 | 3 | 0 |" in lines
    assert "| no owner | 2 | 0 | 0 | 2 | 0 |" in lines

    assert 0 == main([*words, "--owner", "ads"])
    only = capsys.readouterr().out
    assert "search" not in only
    assert "| maintained | met |" in only

    assert 1 == main([*words, "--owner", "asd"])
    assert "'asd'; did you mean ads?" in capsys.readouterr().err


@pytest.mark.real
def test_a_hostile_name_is_only_text(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No name of a model becomes markup, a cell of a table or a command to a terminal; nothing is loaded."""
    assert 0 == main(["report", "--prometheus", prometheus, "--period", "2025-09"])
    text = capsys.readouterr().out

    assert "<script" not in text.replace(r"\<script", "")
    assert "\x1b" not in text
    assert "alert(1)" in text
    assert not any(word in text for word in ("http://", "https://", "src=", "href="))
    assert r"\|\`evil\`" in text


@pytest.mark.real
def test_an_objective_that_was_never_recorded_is_named(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An objective of the files of which Prometheus has nothing is unknown, not left out."""
    (tmp_path / "one.yaml").write_text("name: forgotten\nowner: ads\ntarget: 99%\nindicator: errors\n")
    words = ["report", "--prometheus", prometheus, "--period", "2025-09", "--objectives", str(tmp_path)]
    assert 0 == main(words)
    assert "| forgotten | unknown | - | 0 | 0 | 0 of 0 met | nothing was recorded in this period |" in (
        capsys.readouterr().out
    )


@pytest.mark.real
def test_a_quarter_is_the_sum_of_its_months(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A history that begins in the last days of August does not show that the third quarter was met."""
    words = ["report", "--prometheus", prometheus, "--period", "2025-Q3", "--format", "json"]
    assert 0 == main(words)
    owners = json.loads(capsys.readouterr().out)["owners"]
    actual = {objective["slo"]: objective for owner in owners for objective in owner["objectives"]}

    assert "unknown" == actual["maintained"]["result"]
    error, total = MADE[2].groups[0].truth((FIRST, END))
    (group,) = actual["maintained"]["groups"]
    assert pytest.approx((error, total), abs=1_000) == (group["failed_events"], group["events"])


@pytest.mark.parametrize(
    ("words", "now", "name"),
    [
        ("2026-10", "2030-01-01", "2026-10"),
        ("2026-Q3", "2030-01-01", "2026-Q3"),
        ("last-month", "2026-01-31", "2025-12"),
        ("this-month", "2026-01-31", "2026-01"),
        ("last-quarter", "2026-02-01", "2025-Q4"),
        ("this-quarter", "2026-12-31", "2026-Q4"),
    ],
)
def test_a_period_is_named(words: str, now: str, name: str) -> None:
    """By its number, or by how far it is from now."""
    assert name == parse_period(words, unix(now)).name


def test_a_month_begins_on_the_clocks_of_its_zone() -> None:
    """This includes a first hour that occurs twice, and the end of summer time within the month."""
    november = ReportedPeriod("month", 2026, 11).in_zone("America/Havana")
    october = ReportedPeriod("month", 2026, 10).in_zone("Europe/Berlin")

    assert unix("2026-11-01T00:00", "America/Havana") == november.start
    assert 31 * DAY + 3600 == october.end - october.start


@pytest.mark.parametrize("words", ["2026-13", "2026-Q5", "october", "2026", "2999-01", ""])
def test_another_period_is_wrong_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt period, and one that has not begun."""
    assert 2 == main(["report", "--prometheus", "http://127.0.0.1:9", "--period", words])
    assert "--period" in capsys.readouterr().err


def recorded_by_a_bridge(folder: Path) -> None:
    """Three pages: of August, of September, and one of September that another owner has and nobody ended."""
    store = Store(folder / DATABASE_FILE, lambda _severity: "#alerts")
    moments = (("bert", "2025-08-20", "ads", 600.0), ("resnet", "2025-09-11", "ads", 600.0))
    for model, day, owner, seconds in (*moments, ("whisper", "2025-09-20", "search", None)):
        start = unix(day)
        for end in (None, seconds):
            ended = {model: (start, start + end)} if end else {}
            body = json.loads(body_of(model, {} if end else {model: start}, ended))
            for alert in body["alerts"]:
                alert["labels"]["owner"] = owner
            store.receive(parse(json.dumps(body).encode()), start + 30 + (end or 0))
            if seconds is None:
                break
    store.close()


@pytest.mark.real
def test_incidents_of_the_period_are_listed(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that were open in it, of all owners or of one; a note states what the bridge has deleted by then."""
    recorded_by_a_bridge(tmp_path)
    words = ["report", "--prometheus", prometheus, "--period", "2025-09", "--bridge-data", str(tmp_path)]

    assert 0 == main(words)
    page = capsys.readouterr().out
    assert 0 == main([*words, "--owner", "ads", "--format", "json"])
    only = json.loads(capsys.readouterr().out)

    assert "2 incidents, of which 2 pages." in page
    assert "The bridge no longer has incidents that ended before 20" in page
    assert "bert" not in page
    (line,) = [line for line in page.splitlines() if "resnet" in line]
    assert ["2025-09-11 00:00", "10m", "critical", "no", "ads"] == [
        cell.strip() for cell in line.split("|")[2:7]
    ]
    (line,) = [line for line in page.splitlines() if "whisper" in line]
    assert "| still open | critical | no | search |" in line
    assert ["critical"] == [incident["severity"] for incident in only["incidents"]]
    assert only["incidents_known_from"] > END


@pytest.mark.real
def test_incidents_are_read_from_the_folder_of_the_project(
    prometheus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that `init` writes names the URL of the bridge without a token, and its folder."""
    project = tmp_path / "project"
    (project / "objectives").mkdir(parents=True)
    shutil.copy(ROOT / "slo" / "objectives" / "errors.yaml", project / "objectives")
    (project / "bridge").mkdir()
    recorded_by_a_bridge(project / "bridge")
    (project / "tritonwatch.yaml").write_text(
        PROJECT.format(
            prometheus=prometheus, tritons="- exporter:9401=http://triton:8000", objectives="objectives"
        )
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ["report", "--period", "2025-09"]

    monkeypatch.chdir(project)
    assert 0 == main(words)
    assert "2 incidents, of which 2 pages." in capsys.readouterr().out
    monkeypatch.chdir(elsewhere)
    assert 0 == main([*words, "--project", str(project / "tritonwatch.yaml")])
    assert "2 incidents, of which 2 pages." in capsys.readouterr().out
    shutil.rmtree(project / "bridge")
    assert 0 == main([*words, "--project", str(project / "tritonwatch.yaml")])
    assert "2 incidents" not in capsys.readouterr().out


@pytest.mark.real
def test_incidents_of_a_bridge_on_another_machine_are_listed(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At its address and with its token, as the web page reads them; without the token nothing is asked."""
    recorded_by_a_bridge(tmp_path)
    token = tmp_path / "token"
    token.write_text("secret")
    store = Store(tmp_path / DATABASE_FILE, lambda _severity: "#alerts")
    webhook = Webhook(store, Instruments(store, time.time), time.time, lambda: None, lambda: "secret")
    with served(listen(("127.0.0.1", 0), webhook)) as receiver:
        address = f"http://127.0.0.1:{receiver.server_address[1]}"
        words = ["report", "--prometheus", prometheus, "--period", "2025-09"]
        assert 0 == main([*words, "--bridge-data", str(tmp_path)])
        local = capsys.readouterr().out
        assert 0 == main([*words, "--bridge-url", address, "--bridge-token-file", str(token)])
        remote = capsys.readouterr().out
        assert 2 == main([*words, "--bridge-url", address])
    store.close()

    assert "2 incidents, of which 2 pages." in remote
    without_times = [
        [line for line in text.splitlines() if "made " not in line and "no longer" not in line]
        for text in (local, remote)
    ]
    assert without_times[0] == without_times[1]
    assert "--bridge-url: needs --bridge-token-file" in capsys.readouterr().err


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bridge")
    recorded_by_a_bridge(folder)
    return folder


@pytest.fixture(scope="module")
def site(prometheus: str, bridge: Path) -> Iterator[str]:
    with (
        Prometheus(Access(prometheus)) as client,
        web_fleet.served(Sources(PrometheusReader(client, 15.0), bridge_data=bridge)) as url,
    ):
        yield url


def shown(site: str, path: str = "/report", code: int = 200, /, **parameters: str) -> str:
    response = requests.get(site + path, params=parameters, timeout=20)

    assert code == response.status_code, response.text
    return response.text


@pytest.mark.real
@pytest.mark.parametrize("owner", ["", "ads"])
def test_the_page_and_its_files_are_the_report(
    site: str, prometheus: str, bridge: Path, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page, Markdown and JSON have the sections, rows and values of `tritonwatch report`; only its time differs."""
    words = ["report", "--prometheus", prometheus, "--period", "2025-09", "--bridge-data", str(bridge)]
    chosen = {"period": "2025-09", "owner": owner}
    words += ["--owner", owner] if owner else []
    assert 0 == main([*words, "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert 0 == main(words)
    printed = capsys.readouterr().out

    from_page = json.loads(shown(site, "/api/report", **chosen))
    ignored = {"at": 0, "incidents_known_from": 0}
    assert document | ignored == from_page | ignored
    without_time = "made |The bridge no longer"
    lines = [
        [line for line in text.splitlines() if not any(word in line for word in without_time.split("|"))]
        for text in (printed, shown(site, "/report.md", **chosen))
    ]
    assert lines[0] == lines[1]
    markup = shown(site, **chosen)
    page = web_fleet.text_of(markup)
    for heading in ("Summary", "Objectives of ads", "Groups that missed their target", "Incidents"):
        assert heading in page
    assert "maintained ✓ met 99.9" in page
    assert bool(owner) == ('href="/?slo=calendar"' not in markup)
    for text in ("3 ✓ met", "1 ✖ missed") if not owner else ("1 ✓ met", "0 ✖ missed"):
        assert text in page


@pytest.mark.real
def test_further_viewers_of_a_report_cost_prometheus_nothing(prometheus: str) -> None:
    """Another owner and another form send no query; the first costs a dozen, and more for pauses and time zones."""
    with (
        Prometheus(Access(prometheus)) as client,
        web_fleet.served(Sources(PrometheusReader(client, 15.0))) as url,
    ):
        counts = []
        for path, owner in (("/report", ""), ("/report", "ads"), ("/report.md", ""), ("/api/report", "")):
            before = web_fleet.queries(prometheus)
            shown(url, path, period="2025-09", owner=owner)
            counts.append(web_fleet.queries(prometheus) - before)

    assert 0 < counts[0] <= 25
    assert [0, 0, 0] == counts[1:]


@pytest.mark.real
def test_a_month_without_records_is_a_page_with_a_link_to_the_current_one(site: str) -> None:
    """The menu leads to last month, in which the rules may not have been loaded yet; the API responds 404."""
    before = {"period": "2025-05", "at": "2025-09-20T00:00Z"}
    page = shown(site, **before)

    assert "no record of any objective in 2025-05" in web_fleet.text_of(page)
    link = re.search('<a href="([^"]*)">Show 2025-09, the current month</a>', page)
    assert link is not None
    assert "Summary" in shown(site + html.unescape(link[1]), "")
    assert "no record" in shown(site, "/api/report", 404, **before)
    for path in ("/report", "/api/report"):
        misspelt = shown(site, path, 404, period="2025-09", owner="asd")
        assert "did you mean ads?" in web_fleet.text_of(misspelt)


@pytest.mark.real
def test_a_report_that_was_read_before_prometheus_went_has_its_age(tmp_path: Path) -> None:
    """The report is read once in ten minutes; the page and both files state at once that Prometheus is down."""
    chosen = {"period": "2025-09"}
    server = ExitStack()
    text = history.openmetrics(MadeObjective("answers", "search", MADE[0].groups[:1]).series())
    prometheus = server.enter_context(history.serve(text, tmp_path))
    with server, web_fleet.pages(prometheus, every=0.01) as (url, _):
        before = shown(url, **chosen)
        server.close()
        page = web_fleet.text_of(shown(url, **chosen))
        document = json.loads(shown(url, "/api/report", **chosen))
        markdown = shown(url, "/report.md", **chosen)

    assert "last known state" not in before
    assert "met" in page
    for answer in (page, document["warnings"][0], markdown):
        assert re.search(r"is not reachable.*the last known state, \d+s old \(of 20", answer)


@pytest.mark.real
def test_everybody_can_read_the_report(browser: Browser, site: str) -> None:
    """axe-core finds nothing serious, nothing is wider than the window, and a hostile name is text."""
    address = f"{site}/report?period=2025-09"
    for device in DEVICES if PICTURES else ():
        with page_on(browser, device) as seen:
            name = f"web-report-{device}.png".replace("-light", "")
            seen.open(address).screenshot(path=Path(str(PICTURES)) / name)
    with page_on(browser) as seen:
        seen.open(address)

        assert [] == seen.unusable()


@pytest.mark.real
def test_the_report_is_chosen_and_printed_without_javascript(browser: Browser, site: str) -> None:
    """The form has months, quarters and owners; on paper there are the tables, and nothing to click."""
    with page_on(browser, java_script_enabled=False) as seen:
        page = seen.open(f"{site}/report?{urlencode({'period': '2025-09', 'at': '2025-11-02T00:00Z'})}")
        page.get_by_label("Owner").select_option("search")
        page.get_by_label("Period").select_option("2025-Q3")
        page.get_by_role("button", name="Show").click()

        assert "Objectives of 2025-Q3" == page.locator("h1").inner_text()
        assert ["calendar", "answers"] == page.locator(
            "h2:has-text('search') + table tbody th"
        ).all_inner_texts()[::-1]
        page.emulate_media(media="print")
        assert [False, False, False] == [
            page.locator(element).first.is_visible() for element in ("form", "header nav", ".downloads")
        ]
        assert page.locator("table").first.is_visible()
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / "web-report-print.png")


def test_what_fails_before_the_end_of_a_period_is_of_that_period_alone(tmp_path: Path) -> None:
    """The counter says it at once, the copy of the counter up to four minutes later."""
    middle = 1_760_000_400 // 240 * 240 - 3480
    labels = {names.SLO: "errors", names.INDICATOR: "errors", "model": "m", names.EVENT: names.ERROR}

    def counted(step: int) -> list[tuple[float, float]]:
        times = range((middle - 7200) // 240 * 240, middle + 3600, step)
        return [(float(at), 150.0 if at >= middle - 60 else 100.0) for at in times]

    series = [(names.COUNTER, labels, counted(15)), (names.COPY, labels, counted(240))]
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        prometheus = Prometheus(Access(url))
        found = [
            [
                round(events.get(names.ERROR, 0))
                for events in _counted(prometheus, period, Matchers()).values()
            ]
            for period in (Period(middle - 3600, middle), Period(middle, middle + 3480))
        ]

    assert [[50], [0]] == found
