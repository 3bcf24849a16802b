"""Test `tritonwatch status` on a real Prometheus with recorded objectives."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from support import history
from support.history import END
from support.recorded_group import group_labels, recorded_group
from support.tools import newest, prometheuses
from triton_exporter.catalogue.state import MODEL_EXPECTED
from triton_slo import names
from triton_slo.group_status import GroupStatus, overviews
from triton_slo.prometheus import Prometheus, Remarks, Sample
from triton_slo.server_access import Access
from triton_slo.sources import CAVEATS
from triton_slo.status import PERIOD_START, UNKNOWN_SECONDS, group_statuses, read_status
from tritonwatch.cli import main
from tritonwatch.status_table import caveats, document, state, tables

GOOD = group_labels("latency", "embedder")
SPENT = group_labels("latency", 'evil"[red]\n\x1b[2J\u202e')
GONE = group_labels("errors", "classifier", "2")


def recorded() -> Iterator[history.Series]:
    """Yield what our rules record for a healthy, an exhausted and a vanished model, and an empty objective."""
    lately = [(END - 60, 1.0), (END, 1.0)]
    group = partial(recorded_group, times=(END - 60, END), seen=True)
    served = partial(group, target=0.99, days=30, source="histogram")
    yield from served(GOOD, threshold=0.5, burn=0, spent=0.25, errors={"1h": 0.005})
    yield from served(SPENT, threshold=0.1, burn=20, spent=1.5, errors={"1h": 0.1})
    yield from recorded_group(GONE, (END - 60, END), target=0.999, left=1)
    yield from recorded_group(GONE, [END - 1800 + 60 * i for i in range(31)], unknown="vanished")
    yield from recorded_group(group_labels("errors"), (END - 60, END), days=30)
    cause = {"indicator": "latency", "model": SPENT["model"], "version": "1"}
    for name, share in (("queue", 0.82), ("compute_infer", 0.18)):
        yield names.CAUSE_SHARE, {**cause, names.CAUSE: name}, [(at, share) for at, _ in lately]
    yield names.INFO, {**group_labels("probe"), "owner": "x"}, lately


@pytest.fixture(scope="module", params=newest(prometheuses()), ids=str)
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with history.serve(
        history.openmetrics(recorded()), tmp_path_factory.mktemp("prometheus"), server=request.param
    ) as url:
        yield url


@pytest.mark.real
def test_each_objective_is_read_with_its_budget_pace_and_causes(prometheus: str) -> None:
    """SLI, burn rates, budget left, how long it lasts, unknown time and causes are those of the series."""
    with Prometheus(Access(prometheus)) as client:
        gone, empty, spent, good = read_status(client, END)

    assert ("unknown", "no data since 08:30 UTC", 1800.0) == (gone.state, gone.unknown, gone.unknown_seconds)
    assert (2100.0, None) == (gone.unknown_in_period_seconds, good.unknown_in_period_seconds)
    assert ("probe", {}, "unknown", None) == (empty.slo, empty.group, empty.state, empty.budget_left)
    assert ("exhausted", -0.5, 0.0) == (spent.state, spent.budget_left, spent.exhausted_in_seconds)
    assert (("queue", 0.82), ("compute_infer", 0.18)) == spent.causes
    assert pytest.approx(0.985) == spent.sli
    assert pytest.approx(10) == spent.burn["1h"]
    assert ("ok", 0.75, ("histogram",)) == (good.state, good.budget_left, good.sources)
    # A quarter is spent; at half the pace that would spend all in 30 days, 45 days are left.
    assert pytest.approx(45 * 86400) == good.exhausted_in_seconds


@pytest.mark.real
def test_the_table_shows_every_row_and_hostile_names_as_they_are(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Table cells are text, never markup, none steers the terminal, and unknown is never written as a percentage."""
    assert 0 == main(["status", "--prometheus", prometheus, "--at", str(END)])

    lines = capsys.readouterr().out.split("\n")
    assert all(line.isprintable() for line in lines)
    summary, gone = [line for line in lines if "classifier" in line]
    assert ["errors", "1", "1", "0", "0", "classifier", "2", "unknown", "100.0%"] == summary.split()[:9]
    assert "unknown: no data since 08:30 UTC" in gone
    assert "35m" == gone.split()[-1]
    _, spent = [line for line in lines if r'evil"[red]\n\x1b[2J\u202e' in line]
    assert ["98.50%", "99.00%", "20x", "10x", "1.5x spent", "queue 82%,"] == [
        word for word in ("98.50%", "99.00%", "20x", "10x", "1.5x spent", "queue 82%,") if word in spent
    ]


@pytest.mark.real
@pytest.mark.parametrize(
    ("state", "others", "code"),
    [
        ("exhausted", [], 1),
        ("burning", [], 1),
        ("unknown", [], 1),
        ("exhausted", ["--model", "embedder"], 0),
        ("burning", ["--model", "embedder"], 0),
        ("unknown", ["--model", "embedder"], 0),
        ("exhausted", ["--top", "1"], 1),
    ],
)
def test_the_exit_code_fails_on_the_chosen_states(
    prometheus: str, state: str, others: list[str], code: int
) -> None:
    """What `--fail-on` names fails, also in rows that --top cuts; the embedder is fine."""
    assert code == main(["status", "--prometheus", prometheus, "--at", str(END), "--fail-on", state, *others])


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_a_narrow_terminal_loses_the_least_important_columns(columns: int) -> None:
    """What a row is about, its state and its budget stay; the columns left out are named."""
    model = "llama-3.1-70b-instruct"
    row = GroupStatus(
        "readiness",
        "readiness",
        {"model": model, "version": "12"},
        target=0.999,
        budget_left=-9.99,
        exhausted_in_seconds=0.0,
        lasts="exhausted",
        burn_now=14.4,
        causes=(("unavailable", 0.93),),
        sources=("decomposed",),
        estimate_error=0.012,
    )
    drawn = io.StringIO()
    Console(width=columns, file=drawn).print(tables([row]))

    lines = drawn.getvalue().splitlines()
    heading = next(line for line in lines if line.startswith(" objective"))
    [shown] = [line for line in lines if model in line and line.startswith(" readiness")]
    assert all(len(line) <= columns for line in lines)
    assert ["readiness", model, "12", "exhausted"] == shown.split()[:4]
    assert "11x spent" in shown
    below = " ".join(" ".join(lines).split())
    for name in ("burn 5m", "SLI", "target", "cause", "time unknown"):
        assert (name in heading) != (name in below.partition("not shown in")[2].partition(";")[0])


def test_eighty_columns_have_the_share_and_the_target() -> None:
    """With names of usual length, the SLI and its target stay beside the budget, also on the first day."""
    row = GroupStatus(
        "readiness",
        "readiness",
        {"model": "no_such_model", "version": "1"},
        target=0.99,
        sli=0.997,
        budget_left=0.7,
    )
    first_day = replace(
        row,
        history_seconds=180.0,
        period_days=30.0,
        burn_now=5.0,
        sources=("sampled_mean",),
        estimate_error=0.0,
    )
    for each in (row, first_day):
        drawn = io.StringIO()
        Console(width=80, file=drawn).print(tables([each]))

        assert ["99.70%", "99.00%"] == [word for word in drawn.getvalue().split() if word.startswith("99.")]


@pytest.mark.real
def test_each_row_has_the_target_and_threshold_in_force_for_its_model(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An override's threshold is shown for the models it covers, in the table and in JSON."""
    words = ["status", "--prometheus", prometheus, "--at", str(END)]
    assert 0 == main(words)
    rows = capsys.readouterr().out.splitlines()
    assert 0 == main([*words, "--json"])
    actual = json.loads(capsys.readouterr().out)["group_statuses"]

    [good] = [line for line in rows if "embedder" in line]
    _, spent = [line for line in rows if "evil" in line]
    assert ("99.00%", "500ms") == tuple(good.split()[5:7])
    assert " 99.00%      100ms " in spent
    assert {0.1, 0.5, None} == {row["threshold_seconds"] for row in actual}
    assert {0.99, 0.999, None} == {row["target"] for row in actual}


@pytest.mark.real
def test_json_has_rows_and_the_worst_of_each_objective(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON form is standard JSON (no NaN, no infinity) with null for unknown."""
    assert 0 == main(["status", "--prometheus", prometheus, "--at", str(END), "--json"])

    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    latency = next(objective for objective in answer["objectives"] if objective["slo"] == "latency")
    assert (2, 1, 0, 0) == tuple(latency[key] for key in ("groups", "exhausted", "burning", "unknown"))
    assert {"model": SPENT["model"], "version": "1"} == latency["worst"]
    assert [None] == [row["sli"] for row in answer["group_statuses"] if row["slo"] == "probe"]
    assert "no data since 08:30 UTC" in [row["unknown"] for row in answer["group_statuses"]]


@pytest.mark.real
def test_rows_are_chosen_and_an_empty_choice_is_not_success(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt model must not appear as a model without a fault; the last of two objectives would hide the other."""
    words = ["status", "--prometheus", prometheus, "--at", str(END), "--json"]

    assert 0 == main([*words, "--objective", "errors", "--objective", "latency"])
    answer = json.loads(capsys.readouterr().out)
    assert {"errors", "latency"} == {objective["slo"] for objective in answer["objectives"]}
    assert 0 == main([*words, "--model", "embedder"])
    assert ["embedder"] == [
        row["group"]["model"] for row in json.loads(capsys.readouterr().out)["group_statuses"]
    ]
    assert 1 == main([*words, "--model", "embeder"])
    at = "at 2025-10-09 09:00:00 UTC"
    assert f"Prometheus has no data of model embeder {at}; did you mean embedder?" in capsys.readouterr().err
    assert 1 == main([*words, "--objective", "latencyy", "--model", "embedder"])
    assert f"no data of objective latencyy {at}; did you mean latency?" in capsys.readouterr().err


@pytest.mark.real
def test_missing_series_are_named(
    prometheus: str, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """No series is exit 1 with the reason, not an empty table."""
    assert 1 == main(["status", "--prometheus", prometheus])
    assert "does it scrape job triton-exporter" in capsys.readouterr().err
    assert 1 == main(["status", "--prometheus", prometheus, "--at", str(END - 86400)])
    assert "no series of the exporter at 2025-10-08 09:00:00 UTC: did it scrape job triton-exporter then" in (
        capsys.readouterr().err
    )


SERIES = [
    Sample({"__name__": name, **labels}, points[-1][1], float(END))
    for name, labels, points in recorded()
    if not name.startswith(names.ALERTS)
]


@given(st.sets(st.sampled_from(range(len(SERIES)))))
def test_missing_series_are_unknown_never_full(present: set[int]) -> None:
    """Whichever series are missing, status shows no budget that the present series do not give."""
    samples = [SERIES[i] for i in sorted(present)]
    rows = group_statuses(samples)

    shown = {(row.slo, row.model) for row in rows if row.budget_left is not None or row.sli is not None}
    source = {
        (s.labels[names.SLO], s.labels["model"])
        for s in samples
        if s.labels["__name__"] == names.PERIOD_BUDGET_REMAINING
    }
    assert source == shown
    # What burns is known before its budget is.
    known = {"unknown", "idle", "burning"}
    assert all(row.state in known for row in rows if (row.slo, row.model) not in source)
    seen = {
        (s.labels[names.SLO], s.labels["model"]) for s in samples if s.labels["__name__"] == names.COUNTER
    }
    assert all((row.slo, row.model) in seen and row.burn_now is None for row in rows if row.idle)
    assert {s.labels[names.SLO] for s in samples if names.SLO in s.labels} == {row.slo for row in rows}


def test_idle_is_not_unknown() -> None:
    """A model without requests has no ratio and no fault; one that is neither counted nor had events has no row."""
    counted = {"__name__": names.COUNTER, **GOOD, names.EVENT: names.TOTAL}
    target = Sample({"__name__": names.OBJECTIVE_RATIO, **GOOD}, 0.99, END)

    [asleep] = group_statuses([Sample(counted, 100, END), target])
    assert ("idle", "") == (asleep.state, asleep.unknown)
    assert [{}] == [row.group for row in group_statuses([target])] or not group_statuses([target])


def test_a_model_that_was_unloaded_on_purpose_is_not_unknown() -> None:
    """Its counter ended, and no alert says that it should be served: it is shown with what is left of its
    budget."""
    left = Sample({"__name__": names.PERIOD_BUDGET_REMAINING, **GOOD}, 0.8, END)

    [row] = group_statuses([left])
    assert ("idle", True, "") == (row.state, row.retired, row.unknown)


def test_a_model_that_vanished_is_unknown_in_all_of_its_objectives() -> None:
    """The alert is about the model alone; another model of the objective is not concerned."""
    gone = Sample(
        {"__name__": UNKNOWN_SECONDS, "alertname": names.UNKNOWN_ALERT, "model": GOOD["model"]}, 720, END
    )
    rows = [
        Sample({"__name__": names.PERIOD_BUDGET_REMAINING, **group}, 0.8, END)
        for group in (GOOD, SPENT, {**GOOD, names.SLO: "errors"})
    ]

    states = {(row.slo, row.model): (row.state, row.unknown_seconds) for row in group_statuses([gone, *rows])}
    assert {
        ("latency", GOOD["model"]): ("unknown", 720),
        ("errors", GOOD["model"]): ("unknown", 720),
        ("latency", SPENT["model"]): ("idle", None),
    } == states


SPLITS = (
    ("latency", "queue"),
    ("queue", "failure:QUEUE_FULL"),
    ("probe", "failure:timeout"),
    ("errors", "failure:BACKEND"),
)


@pytest.mark.parametrize(
    ("indicator", "cause"),
    [("latency", "queue"), ("queue", "failure:QUEUE_FULL"), ("probe", "failure:timeout"), ("custom", None)],
)
def test_each_indicator_has_the_split_that_explains_it(indicator: str, cause: str | None) -> None:
    """Where requests spend their time does not explain probes, and own queries have no split."""
    about = {"model": "m", "version": "1"}
    shares = [
        Sample({"__name__": names.CAUSE_SHARE, names.INDICATOR: of, names.CAUSE: name, **about}, 1.0, END)
        for of, name in SPLITS
    ]
    objective = {names.SLO: "o", names.INDICATOR: indicator, **about}

    left = Sample({"__name__": names.PERIOD_BUDGET_REMAINING, **objective}, 0.99, END)
    [row] = group_statuses([*shares, left])
    assert (() if cause is None else ((cause, 1.0),)) == row.causes


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name", [names.sli_error("5m"), names.OBJECTIVE_RATIO, names.PERIOD_DAYS, names.PERIOD_BUDGET_REMAINING]
)
def test_a_group_with_a_value_that_is_not_finite_is_unknown(name: str, value: float) -> None:
    """One such value is enough: without it the group would seem idle, or to have a burn rate of infinity."""
    values = {
        names.OBJECTIVE_RATIO: 0.99,
        names.PERIOD_DAYS: 30.0,
        names.PERIOD_BUDGET_REMAINING: 0.5,
        names.sli_error("5m"): 0.001,
        names.COUNTER: 100.0,
        name: value,
    }
    objective = {names.SLO: "latency", names.INDICATOR: "latency"}
    [row] = group_statuses(
        Sample({"__name__": each, **(objective if each == names.PERIOD_DAYS else GOOD)}, number, END)
        for each, number in values.items()
    )

    assert ("unknown", f"{name} is not a finite number") == (row.state, row.unknown)
    json.dumps(document([row], END, Remarks()), allow_nan=False)


def test_a_total_failure_has_no_rounding_error() -> None:
    """When everything failed the SLI is zero, not a tiny negative number."""
    labels = {"__name__": names.PERIOD_BUDGET_REMAINING, **GOOD}
    target = {"__name__": names.OBJECTIVE_RATIO, **GOOD}

    [row] = group_statuses([Sample(labels, 1 - 1 / (1 - 0.999), END), Sample(target, 0.999, END)])
    assert "0.0" == str(row.sli)


def test_overviews_name_the_worst_group() -> None:
    """Each objective is summed up by its most urgent group."""
    rows = [
        GroupStatus("a", "errors", {"model": "x"}, budget_left=0.5, burn_now=0.0),
        GroupStatus("a", "errors", {"model": "y"}, budget_left=0.2, burn_now=3.0),
        GroupStatus("b", "errors", {"model": "z"}),
    ]

    unknown, both = overviews(rows)
    assert ("b", 1, 1, "z") == (unknown.slo, unknown.groups, unknown.unknown, unknown.worst.model)
    assert ("a", 2, 1, "y") == (both.slo, both.groups, both.burning, both.worst.model)


@pytest.mark.parametrize(
    ("sources", "printed"),
    [
        ((), []),
        (("histogram",), []),
        (
            ("summary",),
            ["estimated (summary), too uncertain for the target: latency m version 1: interpolated"],
        ),
        (
            ("histogram", "sampled_mean"),
            [
                "estimated (sampled_mean), too uncertain for the target: latency m version 1: a few slow requests"
            ],
        ),
    ],
)
def test_an_estimate_is_called_one_below_the_table(sources: tuple[str, ...], printed: list[str]) -> None:
    """A number that comes from means is distinguished from one that saw every request, with what it misses."""
    row = GroupStatus("latency", "latency", {"model": "m", "version": "1"}, sources=sources)

    actual = caveats([row])
    assert len(printed) == len(actual)
    assert all(len(line.split()) < 25 for line in actual)  # `check` has the long form
    assert all(line.startswith(start) for line, start in zip(actual, printed, strict=True))


@pytest.mark.parametrize(
    ("sources", "left", "error", "shown", "off"),
    [
        (("trace",), 0.9, None, "ok", ""),
        (("sampled_mean", "trace"), 0.9, None, "ok (estimated)", ""),
        (("decomposed", "summary"), -0.1, None, "exhausted (estimated)", ""),
        (("backend_counters",), 0.9, None, "ok (failures may be hidden)", ""),
        (("decomposed", "untraced_queue"), 0.9, None, "ok (estimated, rejections may be hidden)", ""),
        (("summary",), None, None, "unknown", ""),
        (("decomposed",), 0.9, 0.0123, "ok (estimated)", ", +-1.2 points"),
        (("decomposed",), 0.9, 0.00034, "ok (estimated)", ", +-0.034 points"),
        (("decomposed",), 0.9, 0.000001, "ok (estimated)", ", +-<0.01 points"),
        (("decomposed",), 0.9, 0.0, "ok (estimated)", ", +-0 points"),
        (("decomposed",), 0.9, 0.335, "ok (estimated)", ", +-33.5 points"),
    ],
)
def test_a_state_shows_the_caveats_of_its_source_and_how_far_it_may_be_off(
    sources: tuple[str, ...], left: float | None, error: float | None, shown: str, off: str
) -> None:
    """In JSON too, so that no program takes an estimate for certain; there the error is a number of its own."""
    group = {"model": "m"}
    row = GroupStatus(
        "o", "latency", group, burn_now=0.5, budget_left=left, sources=sources, estimate_error=error
    )

    [plain] = json.loads(json.dumps(document([row], END, Remarks())))["group_statuses"]
    assert shown.replace("estimated", f"estimated{off}") == row.shown_state
    assert (shown, error) == (plain["state"], plain["estimate_error"])
    assert set(row.caveats) == set(plain["caveats"]) == {source for source in sources if source in CAVEATS}


@pytest.mark.real
def test_a_burning_objective_says_that_its_model_is_ready_again(tmp_path: Path) -> None:
    """It was "burning 300x" for minutes after its model was back; not so where one server, or every one, lacks it."""
    expected = {"back": (0, 2), "half": (1, 2), "unloaded": (0, 0)}
    series = [
        each
        for model, servers in expected.items()
        for labels in [group_labels("readiness", model, "")]
        for each in (
            *recorded_group(labels, (END - 30, END), target=0.99, burn=20.0, events=(0.1, 2.0)),
            *(
                (names.SERVERS_NOW, {**labels, names.EVENT: event}, [(END, float(many))])
                for event, many in zip((names.ERROR, names.TOTAL), servers, strict=True)
            ),
        )
    ]
    with history.serve(history.openmetrics(series), tmp_path) as url, Prometheus(Access(url)) as client:
        told = {row.model: state(row) for row in read_status(client, END)}

    assert {"back": "burning, ready again", "half": "burning", "unloaded": "burning"} == told


@pytest.mark.real
def test_a_group_is_unknown_while_its_data_are_away(tmp_path: Path) -> None:
    """From a minute after the last data of its only server until they are back; the alert is minutes later, either way."""
    died, back = END - 893, END - 593  # 08:45:07
    every = range(END - 1793, END + 1, 15)
    here = [at for at in every if not died < at < back]
    alert = {"alertname": names.UNKNOWN_ALERT, "model": GOOD["model"]}
    series = [
        *recorded_group(GOOD, every, target=0.99, left=0.9, burn=0.5),
        *recorded_group(GOOD, here, events=(0.0, 1.0)),
        *(
            (name, {"instance": "a", "model": GOOD["model"]}, [(at, 1.0) for at in here[::each]])
            for name, each in ((MODEL_EXPECTED.name, 1), (names.MODEL_EXPECTED_COPY, 16))
        ),
        (
            f"{names.ALERTS}_FOR_STATE",
            alert,
            [(at, died + 200.0) for at in range(died + 200, back + 200, 10)],
        ),
    ]
    # What is not in a scrape is not there any more: here, after 20 s.
    flags = ["--query.lookback-delta=20s"]
    with (
        history.serve(history.openmetrics(series), tmp_path, flags=flags) as url,
        Prometheus(Access(url)) as client,
    ):
        told = [
            state(row)
            for at in (died, died + 40, died + 75, back - 15, back + 15, END)
            for row in read_status(client, at)
        ]

    gone = "unknown: no data since 08:45 UTC"
    assert ["ok", "ok", gone, gone, "ok", "ok"] == told


def test_data_end_at_the_latest_now() -> None:
    """At 09:00:39, of data that have just gone: "no data since 09:01 UTC"."""
    samples = [Sample({**GOOD, "__name__": UNKNOWN_SECONDS}, 0.0, END + 39)]

    assert ["no data since 09:00 UTC"] == [row.unknown for row in group_statuses(samples)]


def test_causes_are_in_words() -> None:
    """The names of recorded causes are for rules: `state:unknown` is that Triton does not answer."""
    split = (("state:unknown", 0.6), ("failure:BACKEND", 0.3), ("compute_infer", 0.1))
    row = GroupStatus("a", "readiness", {"model": "m", "version": "1"}, causes=split)
    out = io.StringIO()

    Console(file=out, width=220).print(tables([row]))

    assert "Triton does not answer 60%, error in the model 30%, executing the model 10%" in " ".join(
        out.getvalue().split()
    )


def test_the_windows_of_a_demo_are_known_in_its_own_time() -> None:
    """An hour is ten seconds there: twelve minutes are three days, and a tenth of a month."""
    series = {
        names.OBJECTIVE_RATIO: 0.999,
        names.PERIOD_DAYS: 30.0,
        names.PERIOD_BUDGET_REMAINING: 0.5,
        names.sli_error("5m"): 0.001,
        names.sli_error("3d"): 0.001,
        names.COUNTER_SINCE: END - 720.0,
    }
    samples = [Sample({**GOOD, "__name__": name}, value, END) for name, value in series.items()]

    real, demo = (group_statuses(samples, scale)[0] for scale in (1, 1 / 360))
    assert ([], "not known yet: 12m of data, of 30d") == (list(real.burn), real.budget_words)
    assert (["3d"], "50.0%") == (list(demo.burn), demo.budget_words)


@pytest.mark.parametrize(
    ("reaches_back", "period_began", "shown"),
    [
        (
            120.0,
            None,
            "short history: less than the period is recorded for 1 of 1 group (the shortest: 2m); ",
        ),
        (86400.0 * 30, None, ""),
        (120.0, 3600.0, "short history: less than the period is recorded for 1 of 1 group"),
        (120.0, 120.0, "short history: less than the period is recorded for 1 of 1 group"),
        (86400.0 * 4, 86400.0 * 4, ""),
        # Since when it is counted is recorded some minutes later.
        (None, None, "short history: less than the period is recorded for 1 of 1 group (the shortest: 0s); "),
    ],
)
def test_a_window_of_which_little_is_recorded_is_not_known_yet(
    reaches_back: float | None, period_began: float | None, shown: str
) -> None:
    """Two minutes of failures are no budget of a month: nothing calls it exhausted, and the table states why.

    Nor are they the burn rate of an hour, nor is the error of their estimate that of one.
    """
    series = {
        names.OBJECTIVE_RATIO: 0.999,
        names.PERIOD_DAYS: 30.0,
        names.PERIOD_BUDGET_REMAINING: -999.0,
        names.sli_error("5m"): 1.0,
        names.sli_error("1h"): 1.0,
        names.ESTIMATE_ERROR: 0.0,
        names.COUNTER: 120.0,
        **({} if reaches_back is None else {names.COUNTER_SINCE: END - reaches_back}),
        **({} if period_began is None else {PERIOD_START: END - period_began}),
    }
    samples = [Sample({**GOOD, "__name__": name}, value, END) for name, value in series.items()]

    [row] = group_statuses(samples)
    lines = [line for line in caveats([row]) if line.startswith("short history")]
    young = {None: "0s", 120.0: "2m"}.get(reaches_back, "")

    assert ("unknown" if young else "exhausted") == row.lasts
    assert (f"not known yet: {young} of data, of 30d" if young else "1000x spent") == row.budget_words
    assert ("burning" if young else "exhausted") == row.state
    assert ((not young) * ["1h"], None if young else 0.0) == (list(row.burn), row.estimate_error)

    assert [bool(shown)] == [bool(lines)]
    assert "".join(lines).startswith(shown)


def test_a_budget_beside_a_burn_rate_is_older() -> None:
    """In the first minutes of an outage all of the budget seems to be left."""
    row = GroupStatus("errors", "errors", {"model": "m"}, target=0.99, burn_now=100.0, budget_left=1.0)
    assert ["budgets left are up to four minutes older than burn rates"] == caveats([row])
    assert [] == caveats([replace(row, burn_now=0.0)])


@pytest.mark.parametrize("external", [{}, {"cluster": "eu"}])
def test_labels_of_all_series_leave_an_objective_its_period(external: dict[str, str]) -> None:
    """External labels of a Prometheus, or those of a selector: a group has its period, and no row is added."""
    objective = {names.SLO: "errors", names.INDICATOR: "errors", **external}
    idle = {**objective, names.SLO: "idle"}
    series = [
        ({**objective, "model": "m", "version": "1"}, name, value)
        for name, value in (
            (names.OBJECTIVE_RATIO, 0.99),
            (names.PERIOD_BUDGET_REMAINING, 0.5),
            (names.sli_error("5m"), 0.005),
            (names.COUNTER_SINCE, END - 4 * 86400),
        )
    ]
    series += [(labels, names.PERIOD_DAYS, 30.0) for labels in (objective, idle)]
    series += [({**labels, "window": "30d"}, names.INFO, 1.0) for labels in (objective, idle)]

    empty, row = group_statuses(Sample({**labels, "__name__": name}, at, END) for labels, name, at in series)

    assert ("idle", external, "unknown") == (empty.slo, empty.group, empty.state)
    assert {"model": "m", "version": "1", **external} == row.group
    assert ("estimated", 4 * 86400.0) == (row.lasts, row.history_seconds)
    assert pytest.approx(30 * 86400) == row.exhausted_in_seconds


def test_every_group_whose_source_cannot_carry_its_objective_is_named() -> None:
    """Of those whose error is within the budget three are named and the others counted."""
    rows = [
        GroupStatus(
            "queue",
            "queue",
            {"model": f"{name}{i}"},
            target=0.99,
            sources=("decomposed",),
            estimate_error=error,
        )
        for i in range(13)
        for name, error in (("sure", 0.009), ("blurred", 0.034))
    ]

    idle = GroupStatus("queue", "queue", {"model": "idle"}, idle=True, sources=("sampled_mean",))
    sure, blurred = caveats([*rows, idle])
    assert sure.startswith("estimated (decomposed): queue sure0, queue sure1, queue sure2 and 10 more: ")
    assert blurred.startswith(
        "estimated (decomposed), too uncertain for the target: "
        "queue blurred0 (error +-3.4 points; the target allows 1 % to fail), queue b"
    )
    assert all(f"queue blurred{i} (error +-" in blurred for i in range(13))
