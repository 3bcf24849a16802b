"""Test `tritonwatch backtest` on a real Prometheus and on files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from support import history, web_fleet
from support.history import END
from support.recorded_group import group_labels, recorded_group
from support.tools import newest, prometheuses
from triton_exporter.catalogue import state, triton
from triton_slo import rules
from triton_slo.artifact import Options
from triton_slo.backtest.history import COLUMNS, History, fetch, to_csv
from triton_slo.backtest.replay import Episode, Replayed
from triton_slo.backtest.report import INCIDENT_COLUMNS, Report, Score, backtest
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus, query_ranges
from triton_slo.server_access import Access
from tritonwatch.cli import main
from tritonwatch.commands import backtest as command
from tritonwatch.objective_files import load

DAYS, STEP = 2, 60
START = END - DAYS * 86400
INCIDENT = (END - 6 * 3600, END - 6 * 3600 + 1800)
"""Half an hour in which a tenth of the requests of model m failed."""


def increments(rate: float, bad: float) -> list[tuple[float, float]]:
    """Return a counter's samples every 15 s; during the incident it grows by `bad` per second, else by `rate`."""
    times = np.arange(START, END + 15, 15.0)
    growth = np.where((times > INCIDENT[0]) & (times <= INCIDENT[1]), bad, rate) * 15
    return list(zip(times.tolist(), np.cumsum(growth).tolist(), strict=True))


@pytest.fixture(scope="module", params=newest(prometheuses()), ids=str)
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    good, success, failure = (
        {"model": "ok", "version": "1"},
        str(triton.REQUEST_SUCCESS),
        str(triton.REQUEST_FAILURE),
    )
    bad = {"model": "m", "version": "1"}
    rows = [
        (success, good, increments(10, 10)),
        (success, bad, increments(10, 9)),
        (failure, {**good, "reason": "BACKEND"}, increments(0, 0)),
        (failure, {**bad, "reason": "BACKEND"}, increments(0, 1)),
        (failure, {**bad, "reason": "CANCELED"}, increments(5, 5)),
        (str(state.MODEL_EXPECTED), {"model": "m"}, increments(0, 0)),
    ]
    with history.serve(
        history.openmetrics(rows), tmp_path_factory.mktemp("prometheus"), server=request.param
    ) as url:
        yield url


def objectives(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "errors.yaml").write_text("{name: errors, target: 99.9%, indicator: errors, owner: me}\n")
    return directory


def incidents(path: Path, *rows: tuple[object, ...]) -> Path:
    lines = [",".join(INCIDENT_COLUMNS), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.real
def test_pages_of_a_real_prometheus_are_scored(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One incident in two days: one page, in time, which ends within minutes."""
    labels = incidents(tmp_path / "incidents.csv", (*INCIDENT, "errors", "m", "1", "page"))
    words = ["--objectives", objectives(tmp_path / "o"), "--last", "2d", "--at", END, "--incidents", labels]

    assert 0 == main(["backtest", "--prometheus", prometheus, *map(str, words), "--json"])
    report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (2, DAYS * 1440, float(STEP)) == (report["series"], report["steps"], report["step_seconds"])
    score = report["score"]
    assert (1.0, 1.0, 1, 0) == (score["precision"], score["recall"], score["pages"], score["false_pages"])
    assert score["detection_worst"] <= 600
    # The page ends within minutes; tickets stay until their short window of six hours is good.
    assert score["reset_worst"] <= 7 * 3600
    [page] = [episode for episode in report["episodes"] if episode["severity"] == "page"]
    assert page["ended"] - INCIDENT[1] <= 720
    assert ["errors", "m", "1"] == page["key"]
    assert INCIDENT[0] < page["started"] <= INCIDENT[0] + 600
    # Of the 30 days of its budget less than a tenth is in the history.
    assert page["budget_left"] is None


@pytest.mark.real
@pytest.mark.parametrize("last", ["9999d", "36500d"])
def test_a_history_begins_where_records_do(
    prometheus: str, last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Decades before the first record cost a few cheap queries; where the replay begins is stated."""
    where = ["--prometheus", prometheus, "--objectives", str(objectives(tmp_path / "o")), "--at", str(END)]
    before = web_fleet.queries(prometheus)
    assert 0 == main(["backtest", *where, "--last", last, "--json"])
    counted = web_fleet.queries(prometheus) - before
    printed = capsys.readouterr()
    assert 0 == main(["backtest", *where, "--last", f"{DAYS}d", "--json"])
    exact = json.loads(capsys.readouterr().out)

    # An hour at a time, 10,000 hours a query; two more read the events.
    assert counted <= 55
    document = json.loads(printed.out)
    assert 0 < START - document["start"] <= 2 * 3600
    assert exact["data_from"] == pytest.approx(document["data_from"])
    assert len(exact["episodes"]) == len(document["episodes"])
    assert f"warning: --last {last}: Prometheus has no data of these objectives before 20" in printed.err


@pytest.mark.real
def test_a_history_without_any_series_is_an_error_that_names_what_to_check(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first record there are no events, which is not the same as no alerts."""
    where = ["--prometheus", prometheus, "--objectives", str(objectives(tmp_path / "o"))]

    assert 1 == main(["backtest", *where, "--at", str(START - 2 * 86_400), "--last", "1d"])
    err = capsys.readouterr().err
    assert (
        "Prometheus has no events of these objectives in the last 1d: their models had no requests, or it did not "
        "scrape the exporter (fix: check its targets, and which models" in err
    )


@pytest.mark.real
def test_records_of_the_last_minutes_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The records are between two of the moments at which records are searched."""
    end = END - 120
    ok = [(end - 900 + 15.0 * i, 10.0 * i) for i in range(50)]
    series = [
        (str(triton.REQUEST_SUCCESS), {"model": "ok", "version": "1"}, ok),
        (
            str(triton.REQUEST_FAILURE),
            {"model": "ok", "version": "1", "reason": "BACKEND"},
            [(at, 0.0) for at, _ in ok],
        ),
        (str(state.MODEL_EXPECTED), {"model": "ok"}, [(at, 1.0) for at, _ in ok]),
    ]
    with history.serve(history.openmetrics(series), tmp_path) as url:
        where = ["--prometheus", url, "--objectives", str(objectives(tmp_path / "o")), "--at", str(end)]
        assert 0 == main(["backtest", *where, "--last", "365d", "--json"])

    assert 1 == json.loads(capsys.readouterr().out)["series"]


@pytest.mark.real
def test_an_objective_that_shows_no_events_is_named(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In steps shorter than two scrapes no counter grows: what is not replayed is not silent."""
    folder = objectives(tmp_path / "o")
    words = ["--objectives", str(folder), "--at", str(END - 5), "--last", "10m", "--json"]

    assert 0 == main(["backtest", "--prometheus", prometheus, *words])
    assert "" == capsys.readouterr().err
    (folder / "other.yaml").write_text("{name: other, target: 99%, indicator: errors, models: [nobody]}\n")
    assert 0 == main(["backtest", "--prometheus", prometheus, *words])
    assert "warning: not replayed, because there are no events: other (fix: " in capsys.readouterr().err


@pytest.mark.real
def test_the_history_has_the_events_that_happened(prometheus: str) -> None:
    """Events per step are those of the counters; what the client cancelled is not a failure."""
    plan = Plan(Objective(name="errors", target=0.999, indicator="errors"), Options())
    with Prometheus(Access(prometheus)) as client:
        actual = fetch(client, [plan], END - 86400, END, STEP)

    rows = {key[1]: row for row, key in enumerate(actual.keys)}
    inside = (actual.times > INCIDENT[0] + STEP) & (actual.times <= INCIDENT[1])
    # Prometheus extrapolates a counter that begins at 0 to no less than 0.
    assert pytest.approx(600.0, abs=0.01) == actual.total[rows["m"]].mean()
    assert pytest.approx(60.0) == actual.bad[rows["m"], inside].mean()
    assert pytest.approx(0.0) == actual.bad[rows["m"], actual.times > INCIDENT[1] + STEP].max()
    assert pytest.approx(0.0) == actual.bad[rows["ok"]].max()


@pytest.mark.real
def test_an_alert_that_can_never_fire_is_a_warning(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The replay counts no page for it, and prints the warning of `tritonwatch check`."""
    folder = objectives(tmp_path / "o")
    (folder / "errors.yaml").write_text("{name: errors, target: 90%, indicator: errors}\n")
    words = ["--prometheus", prometheus, "--objectives", str(folder), "--at", str(END), "--last", "1h"]

    assert 0 == main(["backtest", *words])
    assert (
        "errors: alerting: tier page_fast can never fire at a target of 90%: it needs 144% of events to fail"
        in capsys.readouterr().err
    )


@pytest.mark.real
@pytest.mark.parametrize("scrape", [15, 30])
def test_every_event_is_in_one_step(scrape: int, tmp_path: Path) -> None:
    """The increase between the last sample of a step and the first of the next counts, too."""
    random = np.random.default_rng(19)
    times = np.arange(END - 7200 - 7, END, scrape, dtype=float)
    bad = random.choice([0, 0, 0, 40], len(times))
    success, failure = (
        list(zip(times.tolist(), np.cumsum(each).tolist(), strict=True)) for each in (100 - bad, bad)
    )
    labels = {"model": "m", "version": "1"}
    rows = [
        (str(triton.REQUEST_SUCCESS), labels, success),
        (str(triton.REQUEST_FAILURE), {**labels, "reason": "BACKEND"}, failure),
    ]
    options = Options(scrape_interval_seconds=scrape)
    plan = Plan(Objective(name="errors", target=0.999, indicator="errors"), options)

    with history.serve(history.openmetrics(rows), tmp_path / "p") as url, Prometheus(Access(url)) as client:
        fetched = fetch(client, [plan], END - 3600, END, STEP)
    hour = bad[times > END - 3600 - 7].reshape(-1, STEP // scrape).sum(axis=1)
    assert 10 < (hour > 0).sum()
    assert pytest.approx(hour.tolist()) == fetched.bad[0].tolist()
    assert pytest.approx(100 * STEP / scrape) == fetched.total[0].mean()


@pytest.mark.real
@pytest.mark.parametrize(("since", "failed"), [(START, 90.0), (END - 3600, 0.0)])
def test_recorded_events_are_read_where_they_reach_back(since: float, failed: float, tmp_path: Path) -> None:
    """Recorded counters replace those of the servers, unless they began too late."""
    labels = {"model": "m", "version": "1"}
    times = np.arange(since, END + 1, 60.0).tolist()
    rows = [
        *recorded_group(group_labels("errors", "m"), times, events=(0.3, 10.0)),
        # The counters give another result, which shows which source was queried.
        (str(triton.REQUEST_SUCCESS), labels, increments(1, 1)),
        (str(triton.REQUEST_FAILURE), {**labels, "reason": "BACKEND"}, increments(0, 0)),
    ]
    plan = Plan(Objective(name="errors", target=0.999, indicator="errors"), Options())

    with history.serve(history.openmetrics(rows), tmp_path / "p") as url, Prometheus(Access(url)) as client:
        actual = fetch(client, [plan], END - 86400, END, 300)
    assert (("errors", "m", "1"),) == actual.keys
    assert pytest.approx(failed) == actual.bad[0].max()


@pytest.mark.real
def test_recorded_time_without_data_is_unknown_and_not_idle(tmp_path: Path) -> None:
    """The counter of a model ends with its series, and goes on where there are no requests."""
    times = np.arange(END - 86400, END + 1, 60.0).tolist()
    left = END - 7200
    rows: list[history.Series] = []
    for model in ("gone", "idle"):
        seen = times if model == "idle" else [at for at in times if at <= left]
        rate = (0.0, lambda at: 10.0 if at <= left else 0.0)
        rows += recorded_group(group_labels("errors", model), seen, events=rate)
    plan = Plan(Objective(name="errors", target=0.999, indicator="errors"), Options())

    with history.serve(history.openmetrics(rows), tmp_path / "p") as url, Prometheus(Access(url)) as client:
        actual = fetch(client, [plan], END - 43200, END, 300)
    late = actual.times >= left + 600
    unknown = {key[1]: bool(np.isnan(actual.total[row, late]).all()) for row, key in enumerate(actual.keys)}
    assert {"gone": True, "idle": False} == unknown
    assert not np.isnan(actual.total[:, ~late]).any()


@pytest.mark.real
def test_a_saved_history_replays_the_same(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What --save keeps, --history replays to the same alerts, without Prometheus."""
    common = ["--objectives", str(objectives(tmp_path / "o")), "--json"]
    window = ["--last", "12h", "--at", str(END), "--save", str(tmp_path / "kept.csv")]

    assert 0 == main(["backtest", "--prometheus", prometheus, *window, *common])
    first = json.loads(capsys.readouterr().out)
    assert 0 == main(["backtest", "--history", str(tmp_path / "kept.csv"), *common])
    again = json.loads(capsys.readouterr().out)
    assert first["episodes"] == again["episodes"]


@pytest.mark.real
def test_an_incident_within_the_stated_error_pages_only_where_none_was_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1.7 % of the requests are slow where 0.1 % may be, give or take 2 points: the rules do not page for that."""
    rows = []
    for model, stated in (("sure", None), ("unsure", 0.02)):
        labels = {"model": model, "version": "1"}
        for suffix, more, rate in (("_count", {}, 20.0), ("_bucket", {"le": "0.05"}, 19.66)):
            series = str(state.REQUEST_DURATION) + suffix
            rows.append((series, labels | more, history.counter(END - 43200, END, 30, rate)))
        if stated is not None:
            points = [(float(at), stated) for at in range(END - 43200, END + 1, 30)]
            labels |= {"signal": "request", "le": "0.05"}
            rows.append((str(state.DISTRIBUTION_ERROR), labels, points))
    folder = tmp_path / "objectives"
    folder.mkdir()
    indicator = "{kind: latency, threshold: 50ms}"
    (folder / "latency.yaml").write_text(f"{{name: latency, target: 99.9%, indicator: {indicator}}}\n")
    words = ["--objectives", str(folder), "--json"]

    def paged(*more: str) -> set[str]:
        assert 0 == main(["backtest", *words, *more])
        episodes = json.loads(capsys.readouterr().out)["episodes"]
        return {episode["key"][1] for episode in episodes if episode["severity"] == "page"}

    with history.serve(history.openmetrics(rows), tmp_path / "p") as url:
        asked = ["--prometheus", url, "--last", "8h", "--at", str(END)]
        assert {"sure"} == paged(*asked, "--save", str(tmp_path / "kept.csv"))
        assert {"sure"} == paged("--history", str(tmp_path / "kept.csv"))


GAP = "[red]gap\x1b[2J"


def write_history(path: Path) -> Path:
    """Return a day in which model m failed wholly for five minutes, another was idle, and a third had gaps."""
    times = 60.0 * np.arange(1, 1441)
    total = np.full((3, 1440), 600.0)
    bad = np.zeros_like(total)
    bad[0, 600:605] = 600.0
    total[1] = 0.0
    total[2, 700:760] = np.nan
    keys = (("errors", "m", "1"), ("errors", "idle", "1"), ("errors", GAP, "1"))
    path.write_text(to_csv(History(keys, times, np.where(np.isnan(total), np.nan, bad), total)))
    return path


def test_tables_name_alerts_scores_and_unknown_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """People see when what fired, its score, and how much was unknown; times in milliseconds scored nothing."""
    labels = incidents(tmp_path / "i.csv", (36000, 36300, "", "m", "", ""))
    words = ["--history", str(write_history(tmp_path / "h.csv")), "--incidents", str(labels)]

    assert 0 == main(["backtest", *words, "--objectives", str(objectives(tmp_path / "o"))])
    text = capsys.readouterr().out
    assert "There is data of" not in text
    assert (
        "3 series from 1970-01-01 00:00:00 UTC to 1970-01-02 00:00:00 UTC, every 1m; unknown 1.39% of the time"
        in text
    )
    [fast] = [line for line in text.splitlines() if "page_fast" in line]
    assert ["1970-01-01", "10:01", "page", "page_fast", "errors", "m", "1"] == fast.split()[:7]
    assert fast.endswith(" not known yet")  # of a month, ten hours are recorded
    assert all(line.isprintable() for line in text.split("\n"))
    [score] = [line.split() for line in text.splitlines() if "100.0%" in line]
    assert ["1", "2", "100.0%", "100.0%", "0"] == score[:5]
    incidents(labels, (36_000_000_000_000, 36_300_000_000_000, "", "m", "", ""))
    assert 1 == main(["backtest", *words])
    refused = "line 2: 36000000000000 is not in the years 1970 to 2199; Unix times are in seconds"
    assert f"--incidents {labels}: {refused}" in capsys.readouterr().err


def test_a_narrow_terminal_shows_whole_dates(tmp_path: Path) -> None:
    """Of 80 columns less important ones are left out and named; a date is neither cut nor broken."""
    day = 86_400.0
    raised = Episode(("readiness", "resnet50_onnx_fp16", "1"), "page_fast", "page", 10 * day, None, -999.0)
    score = Score(1, 1, 1, 1.0, 1.0, 60.0, 60.0, day, day, 1.0, 0)
    report = Report(1, 1440, 60.0, 0.0, 20 * day, 0.0, {"readiness": 0.0}, 1, (raised,), score)
    out = io.StringIO()

    Console(file=out, width=80).print(command.tables(report, 40))

    lines = out.getvalue().splitlines()
    assert "1970-01-11 00:00" in next(line for line in lines if "page_fast" in line)
    assert [True, True] == [any(word in line for line in lines) for word in ("false pages", "precision")]
    assert "an alert of less than 2m may be missed" in " ".join(out.getvalue().split())
    assert "not shown in 80 columns" in out.getvalue()
    assert "…" not in out.getvalue()


def test_a_history_shorter_than_asked_for_is_stated_before_the_verdict(tmp_path: Path) -> None:
    """Of ten days there is data of one: the verdict is for that day, and an objective may have less."""
    folder = objectives(tmp_path / "o")
    (folder / "late.yaml").write_text("{name: late, target: 99%, indicator: errors}\n")
    times = 3600.0 * np.arange(1, 241)
    total = np.full((2, 240), np.nan)
    total[0, -24:], total[1, -6:] = 600.0, 600.0
    keys = (("errors", "m", "1"), ("late", "m", "1"))
    replayed = {objective.name: Replayed(objective, Options()) for objective in load(folder)}
    report = backtest(History(keys, times, total * 0.0, total), replayed)
    out = io.StringIO()

    Console(file=out, width=120).print(command.tables(report, 40))

    heading = out.getvalue().split("Pages and tickets")[0]
    assert (
        "Data covers only the last 1d of 10d (10%), since 1970-01-10 00:00:00 UTC: the results below are for "
        "this time only, and failures before it are not in the budgets." in " ".join(heading.split())
    )
    assert "late: data of the last 6h (2.5%)" in heading
    assert {"errors": 9 * 86400.0, "late": 9.75 * 86400} == report.data_from


NOBODY = ("--prometheus", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        ([], 2, "--history: give this or --prometheus, and not both"),
        ([*NOBODY, "--history", "x.csv"], 2, "and not both"),
        ([*NOBODY], 1, "is not reachable: Connection refused"),
        ([*NOBODY, "--last", "10s"], 2, "--last: must be at least twice --step"),
        (["--history", "/no/such.csv"], 2, "/no/such.csv: No such file or directory"),
        (["--history", "/dev/null"], 1, "line 1: the header must be time,slo,model"),
        (["--history", "/dev/null", "--objectives", "/no/such"], 2, "--objectives /no/such: is not a folder"),
        (["--history", "FILE"], 2, "FILE:1: not UTF-8 text (byte 3) (fix: save the file as UTF-8)"),
        (["--history", "FILE", "--incidents", "FILE"], 2, "FILE:1: not UTF-8 text"),
        ([*NOBODY, "--at", "nan"], 2, "nan is not in the years 1970 to 2199"),
        ([*NOBODY, "--at", "2199-01-01"], 2, "2199-01-01 is in the future"),
        ([*NOBODY, "--at", "soon"], 2, "'soon' is not a time; write 2026-05-01T09:30Z"),
        ([*NOBODY, "--timeout", "x"], 2, "--timeout: 'x' is not a duration"),
        ([*NOBODY, "--top", "-3"], 2, "--top: -3 is not a whole number of 0 or more"),
    ],
)
def test_what_cannot_be_replayed_is_reported(
    words: list[str], code: int, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake is one line with its place: what it was, and what it should be."""
    (tmp_path / "FILE").write_bytes(b"caf\xe9")

    assert code == main(["backtest", *(word.replace("FILE", f"{tmp_path}/FILE") for word in words)])
    assert printed.replace("FILE", f"{tmp_path}/FILE") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("precious.yaml", "precious.yaml: already exists and is not overwritten"),
        ("old.csv", "old.csv: already exists and is not overwritten (fix: choose another file)"),
        ("link.csv", "link.csv: already exists and is not overwritten"),
        ("folder.csv", "folder.csv: is a folder (fix: name a file in this folder)"),
        ("no/such.csv", "no is not a folder (fix: create it, or choose another)"),
    ],
)
def test_a_file_that_save_must_not_write_is_refused_before_any_query(
    name: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens at this address: an error about it would have the exit code 1."""
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "elsewhere.csv")
    for file in ("precious.yaml", "old.csv"):
        (tmp_path / file).write_text("precious")
    save = str(tmp_path / name)

    assert 2 == main(["backtest", "--prometheus", "http://127.0.0.1:1", "--save", save])
    assert printed in capsys.readouterr().err
    assert ["precious"] * 2 == [(tmp_path / file).read_text() for file in ("precious.yaml", "old.csv")]
    assert 4 == len(list(tmp_path.iterdir()))


def test_a_history_of_an_unknown_objective_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its objective a series has no target: nothing is guessed."""
    (tmp_path / "h.csv").write_text(f"{','.join(COLUMNS)}\n60,mine,m,1,0,1\n120,mine,m,1,0,1\n")

    assert 1 == main(["backtest", "--history", str(tmp_path / "h.csv")])
    assert "the history contains objectives without a file: mine" in capsys.readouterr().err


@given(st.integers(1, 60), st.integers(1, 50_000))
def test_long_ranges_are_asked_in_parts(step: int, steps: int) -> None:
    """The parts are on one grid, contain each step once, and none is longer than Prometheus allows."""
    parts = list(query_ranges(0, (steps - 1) * step, step))

    assert 0 == parts[0][0]
    assert (steps - 1) * step == parts[-1][1]
    assert all(after[0] - before[1] == step for before, after in pairwise(parts))
    assert all((last - first) / step + 1 <= 11_000 for first, last in parts)


def test_overrides_reach_the_replay() -> None:
    """A model's own target decides about its alerts, and a ticket tier that cannot fire is left out."""
    objective = Objective(
        name="errors", target=0.9, indicator="errors",
        overrides=[{"models": "strict", "target": 0.999}, {"models": {"regex": "st.*"}, "target": 0.99}],
    )  # fmt: skip
    actual = Replayed(objective)

    assert (0.999, 0.99, 0.9) == tuple(actual.target_of(name, "1") for name in ("strict", "stub", "other"))
    loose = Plan(Objective(name="errors", target=0.9, indicator="errors"), Options())
    assert ["page_slow", "ticket_fast", "ticket_slow"] == [tier.name for tier in rules.tiers(loose)]
