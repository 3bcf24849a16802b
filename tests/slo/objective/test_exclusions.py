"""Test excluded time: no event in it counts, hardly one beside it is lost, no alert fires, mistakes are found."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.tools import ROOT
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.backtest.history import History, to_csv
from triton_slo.backtest.replay import Replayed
from triton_slo.generate import artifacts
from triton_slo.objective.exclusion import DAYS, Exclusion, merged
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from triton_slo.prometheus import Sample
from triton_slo.status import group_statuses
from tritonwatch.cli import main


def objective(*spans: tuple[float, float], **more: object) -> Objective:
    """One that leaves out these seconds since 1970."""
    out = [{"reason": f"r{low}", "start": moment(low), "end": moment(high)} for low, high in spans]
    return Objective.model_validate(
        {"name": "o", "target": "99%", "window": "7d", "indicator": "errors", "exclusions": out, **more}
    )


def moment(seconds: float) -> str:
    """Return a time of the first days of 1970."""
    return str(np.datetime64(int(seconds), "s")) + "Z"


def problems(*exclusions: object, **more: object) -> list[str]:
    """Mistakes of an objective with these exclusions."""
    fields = {"name": "o", "target": "99%", "indicator": "errors", "exclusions": list(exclusions), **more}
    return [str(problem) for problem in read([("o.yaml", yaml.safe_dump(fields))]).problems]


ONCE = {"reason": "r", "start": "2026-12-24T20:00Z", "end": "2026-12-24T22:00Z"}
WEEKLY = {"reason": "r", "days": ["sunday"], "start": "02:00", "end": "04:00"}
PROMQL = {"reason": "r", "promql": "maintenance == 1"}


@pytest.mark.parametrize(
    ("exclusion", "reason"),
    [
        ({"reason": "r"}, "has both start and end, or promql"),
        ({**ONCE, "promql": "up"}, "either start and end, or promql"),
        ({**ONCE, "end": "2026-12-24T19:00Z"}, "ends after it starts"),
        ({**ONCE, "end": "2026-02-30T19:00Z"}, "day"),
        ({**ONCE, "start": "2026-12-24T20:00"}, "has no time zone: end it with Z"),
        ({**ONCE, "start": "20:00"}, "is a time of the day: add days"),
        ({**ONCE, "days": ["sunday"]}, "times of the day, such as 22:00"),
        ({**WEEKLY, "days": ["sun"]}, "is none of monday"),
        ({**WEEKLY, "days": []}, "must hold at least one"),
        ({**ONCE, "end": "2026-12-24T21:00+99:00"}, "2026-12-24T21:00+99:00 does not exist"),
        ({**ONCE, "start": "0001-01-01T00:00Z"}, "is not in the years 1970 to 2199"),
        ({**WEEKLY, "timezone": "Europe/Berlin"}, "timezone: unknown field"),
        ({**WEEKLY, "days": "all", "end": "02:00"}, "excludes the whole week"),
        # A query is judged without the brackets that a rule adds to it.
        ({**PROMQL, "promql": "a == 1) or (b == 1"}, "promql is not PromQL"),
        ({**PROMQL, "promql": "maintenance ==  # planned"}, "promql is not PromQL: invalid promql query"),
        (
            {**PROMQL, "promql": "time()"},
            "promql gives no series, but a number, a text or a range of samples",
        ),
        ({**PROMQL, "promql": "maintenance[5m]"}, "promql gives no series, but a number"),
        ({**WEEKLY, "start": "25:00"}, "not written as it must be (fix: write 22:00"),
        ({**WEEKLY, "start": 22, "end": 23}, "start: must be text, and is the number 22 (fix: write 22:00"),
        ({**WEEKLY, "start": 1320}, "start: must be text, and is the number 1320 (fix: write 22:00"),
    ],
    ids=str,
)
def test_a_mistake_in_an_exclusion_is_named(exclusion: dict[str, object], reason: str) -> None:
    """With its place, and how to fix it."""
    actual = problems(exclusion)

    assert any(reason in problem for problem in actual), actual
    assert all(problem.startswith("o.yaml:") for problem in actual)


def test_times_are_read_as_people_write_them() -> None:
    """YAML reads 22:00 as a number in base sixty and a moment as a date; both mean the time that people read."""
    text = "{name: o, target: 99%, indicator: errors, exclusions: ["
    text += "{reason: r, days: all, start: 22:00, end: 2:00}, "
    text += "{reason: s, start: 2026-12-24T20:00:00Z, end: 2026-12-24T21:00:00+00:00}]}"
    reading = read([("o.yaml", text)])

    assert () == reading.problems
    night, once = reading.objectives[0].exclusions
    assert (79_200, 4 * 3600) == (night.opens, night.duration)
    assert (1_798_142_400.0, 1_798_146_000.0) == once.span


def test_the_documented_exclusions_are_valid() -> None:
    """All forms that the reference shows are read as they stand there."""
    text = (ROOT / "docs" / "objectives.md").read_text()
    (block,) = [
        fence for fence in re.findall(r"```yaml\n(.*?)```", text, re.S) if fence.startswith("exclusions:")
    ]
    reading = read([("o.yaml", f"name: o\ntarget: 99%\nindicator: errors\n{block}")])

    assert () == reading.problems
    assert 4 == len(reading.objectives[0].exclusions)


TWICE = "overlaps with exclusions.0 (r)"


@pytest.mark.parametrize(
    ("exclusions", "code", "words"),
    [
        ([{**ONCE, "end": "2027-12-24T22:00Z"}], 1, "as long as the objective's window"),
        ([WEEKLY, {**WEEKLY, "reason": "s", "start": "03:30"}], 1, TWICE),
        ([ONCE, {**ONCE, "end": "2026-12-24T23:00Z"}], 1, TWICE),
        ([WEEKLY, {**ONCE, "start": "2026-12-27T02:30Z", "end": "2026-12-27T03:00Z"}], 1, TWICE),
        ([WEEKLY, ONCE, PROMQL, {**WEEKLY, "start": "04:00", "end": "05:00"}], 0, "0 mistakes"),
        ([{**ONCE, "start": "2020-12-24T20:00Z", "end": "2020-12-24T21:00Z"}], 0, "has ended; only backtest"),
    ],
    ids=["long", "two weekly", "two once", "within", "sound", "past"],
)
def test_check_warns_of_exclusions_without_effect(
    exclusions: list[object], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings: the same time twice, or all time excluded. A note: the exclusion has ended already."""
    file = tmp_path / "o.yaml"
    file.write_text(
        yaml.safe_dump({"name": "o", "target": "99%", "indicator": "errors", "exclusions": exclusions})
    )

    assert code == main(["check", str(file)])
    output = capsys.readouterr()
    assert words in output.err + output.out


def test_without_exclusions_nothing_is_different() -> None:
    """An objective without exclusions has no additional rule, condition or file."""
    plain = Objective.model_validate({"name": "o", "target": "99%", "indicator": "errors"})

    texts = {artifact.name: artifact.text for artifact in artifacts([plain], Options())}

    assert {"slo-causes.yml", "slo-o.yml"} == set(texts)
    assert not any(names.SLI_EXCLUDED in text for text in texts.values())


def test_spans_are_clipped_and_in_order() -> None:
    """A night that began before the time asked about counts from there."""
    night = Exclusion.model_validate({"reason": "r", "days": "all", "start": "22:00", "end": "02:00"})

    assert [(0, 7200), (79_200, 90_000)] == list(night.spans(0, 90_000))


@given(
    st.sets(st.sampled_from(DAYS), min_size=1, max_size=6),
    st.integers(0, 1439),
    st.integers(0, 1439),
    st.integers(1_767_225_600 // 60, 1_798_761_600 // 60),
    st.integers(1, 9 * 1440),
)
def test_spans_follow_the_clock(days: set[str], opens: int, closes: int, first: int, minutes: int) -> None:
    """Minute by minute, spans are what a person reads off a clock and a calendar."""
    exclusion = Exclusion.model_validate(
        {"reason": "r", "days": sorted(days)}
        | {"start": f"{opens // 60:02}:{opens % 60:02}", "end": f"{closes // 60:02}:{closes % 60:02}"}
    )
    length = (closes - opens) % 1440 or 1440

    def shown(minute: int) -> bool:
        since = datetime.fromtimestamp(minute * 60, UTC) - timedelta(minutes=opens)
        return DAYS[since.weekday()] in days and since.hour * 60 + since.minute < length

    held = list(exclusion.spans(first * 60, (first + minutes) * 60))

    assert held == merged(held)
    expected = [at for at in range(first, first + minutes) if shown(at)]
    assert expected == [at for low, high in held for at in range(int(low) // 60, int(high) // 60)]


def history(bad: slice, missing: slice = slice(0, 0)) -> History:
    """Six hours of ten requests a second in minutes, from 1970 on, all failed or unknown in some."""
    times = (np.arange(360) + 1) * 60.0
    total = np.full((1, 360), 600.0)
    failed = np.zeros((1, 360))
    failed[0, bad] = 600.0
    total[0, missing] = np.nan
    return History((("o", "m", "1"),), times, failed, total)


def test_a_replay_leaves_out_what_the_rules_leave_out() -> None:
    """An outage inside raises nothing, the same outage outside pages; before an exclusion is not inside."""
    outage = history(slice(180, 200))
    around, before = (180 * 60.0, 200 * 60.0), (100 * 60.0, 150 * 60.0)

    raised = {
        name: list(Replayed(objective(span), excluded=[span]).episodes(outage))
        for name, span in (("inside", around), ("outside", before))
    }

    assert [] == raised["inside"]
    assert "page_fast" in {episode.alert for episode in raised["outside"]}


def test_a_replay_ends_alerts_where_time_stops_counting() -> None:
    """Nobody is paged for what happened just before a planned break."""
    outage = history(slice(180, 200))
    span = (190 * 60.0, 300 * 60.0)
    (page, *_) = Replayed(objective(span), excluded=[span]).episodes(outage)

    assert ("page_fast", 190 * 60 + 60) == (page.alert, page.ended)


def test_backtest_of_a_file_honours_exclusions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the calendar; what only Prometheus knows is asked of none."""
    (tmp_path / "h.csv").write_text(to_csv(history(slice(180, 200))))
    texts = {
        "calendar": "[{reason: r, days: [thursday], start: 3:00, end: 3:20}]",
        "elsewhere": "[{reason: r, days: [friday], start: 3:00, end: 3:20}]",
        "promql": "[{reason: r, promql: up}]",
    }
    codes, printed = {}, {}
    for name, exclusions in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "o.yaml").write_text(
            f"{{name: o, target: 99%, indicator: errors, exclusions: {exclusions}}}"
        )
        words = ["--objectives", str(tmp_path / name), "--history", str(tmp_path / "h.csv")]
        codes[name] = main(["backtest", *words, "--json"])
        printed[name] = capsys.readouterr()

    assert {"calendar": 0, "elsewhere": 0, "promql": 1} == codes
    assert "page_fast" in printed["elsewhere"].out
    assert "page_fast" not in printed["calendar"].out
    assert "the exclusion 'r' is PromQL, which only Prometheus can answer" in printed["promql"].err


def test_recorded_exclusions_are_shown_for_every_group() -> None:
    """Exclusions of other objectives or clusters are not shown, and an exclusion is not a group."""

    def sample(name: str, slo: str, value: float = 1.0, **labels: str) -> Sample:
        return Sample({"__name__": name, names.SLO: slo, names.INDICATOR: "errors", **labels}, value, 1000.0)

    left = names.PERIOD_BUDGET_REMAINING
    rows = group_statuses(
        [
            sample(left, "a", 0.5, model="m", cluster="eu"),
            sample(left, "a", 0.5, model="m", cluster="us"),
            sample(left, "b", 0.5, model="m", cluster="eu"),
            sample(names.SLI_EXCLUDED, "a", reason="move", cluster="eu"),
            sample(names.SLI_EXCLUDED, "a", reason="again", cluster="eu"),
        ]
    )

    assert {("a", "eu"): "again, move", ("a", "us"): "", ("b", "eu"): ""} == {
        (row.slo, row.group["cluster"]): row.excluded for row in rows
    }
    assert ["excluded"] == [row.state for row in rows if row.excluded]


@pytest.mark.parametrize(
    ("promql", "printed"),
    [
        ("up", "has a result for as long as its series exist"),
        ("vector(1)", "has a result for as long as its series exist"),
        ("vector(1) == 1", "has a result for as long as its series exist"),
        ("maintenance_announced == bool 1", "has a result for as long as its series exist"),
        ("maintenance_announced == 1 or up", "has a result for as long as its series exist"),
        (f"{names.sli_error('5m')} > 0.5", "reads slo:sli_error:ratio_rate5m, which is made of objectives"),
        (f'{{__name__="{names.COUNTER}"}} > 1', "reads slo:sli_events:total, which is made of objectives"),
        ('ALERTS{alertname="TritonErrorsBudgetBurn"} == 1', "a circle"),
        ("maintenance_announced == 1", ""),
        ("maintenance_announced == 1  # set by the deployer, ) and all", ""),
        ("absent(heartbeat)", ""),
        ("hour() < 4 and on () day_of_week() == 0", ""),
        ("last_over_time((maintenance_announced > 0)[5m:])", ""),
        ('count(ALERTS{alertname="Maintenance"} == 1)', ""),
        ("up unless on (instance) in_service", ""),
    ],
)
def test_an_exclusion_that_is_always_on_or_a_circle_is_doubted(
    promql: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An objective that counts nothing appears perfect; a comment, or a condition of one's own, is no mistake."""
    fields = {"name": "a", "target": "99%", "indicator": "errors"}
    (tmp_path / "o.yaml").write_text(
        yaml.safe_dump({**fields, "exclusions": [{"reason": "r", "promql": promql}]})
    )

    assert bool(printed) == main(["check", str(tmp_path)])
    assert printed in capsys.readouterr().err


def test_a_long_sum_takes_no_time_and_memory(tmp_path: Path) -> None:
    """As long as a query may be: a thousand series took gigabytes, because each part was copied with all below it."""
    exclusion = {"reason": "r", "promql": "x" + "+x" * 1000 + " > 3"}
    objective = {"name": "o", "target": "99%", "indicator": "errors", "exclusions": [exclusion]}
    (tmp_path / "o.yaml").write_text(yaml.safe_dump(objective))
    checked = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from tritonwatch.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    words = [sys.executable, "-c", checked, "check", str(tmp_path / "o.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)

    assert 0 == done.returncode, done.stderr[-500:]
