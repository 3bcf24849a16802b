"""Test `tritonwatch gate` on a real Prometheus: verdicts, their reasons, and failures that do not promote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support import history
from support.history import END, Series
from support.recorded_group import group_labels, recorded_group
from support.tools import newest, prometheuses
from triton_exporter.catalogue import EXPORTER_JOB, own, state
from triton_slo import names
from triton_slo.gate import (
    Ages,
    Firing,
    GateLimits,
    Judgement,
    failure_evidence,
    hold_if_incomplete,
    judge,
    worst,
)
from triton_slo.group_status import GroupStatus
from triton_slo.indicators import BURN_ALERTS
from tritonwatch.cli import main

LATER = END - 5 * 86400
STOPPED = LATER - 1800
"""When objective `errors` was recorded for the last time, half an hour before the gate runs."""

PROMOTE, CANNOT_TELL, WRONG, HOLD, ROLLBACK = 0, 1, 2, 3, 4


SECOND = {"job": EXPORTER_JOB, "instance": "b:9401"}
ELSEWHERE = {"job": EXPORTER_JOB, "instance": "a:9401", "cluster": "other"}
"""A server of another cluster with the name of one here."""
HOSTILE = 'a"b\\c{}\n\x1b[2J\u202e\U0001f600'


LATELY = (END - 60, END)


def recorded(model: str, version: str, left: float, target: float = 0.99) -> Iterator[Series]:
    labels = group_labels("latency", model, version)
    yield from recorded_group(labels, LATELY, target=target, burn=0.5, spent=1 - left, left=left, seen=True)
    exporter = {"job": EXPORTER_JOB, "instance": "a:9401"}
    yield str(state.MODEL_READY), {**exporter, "model": model, "version": version}, lately(1)


def events(model: str, version: str, per_second: float, bad: float) -> Iterator[Series]:
    """Yield recorded rates over the last two hours."""
    times = range(END - 7200, END + 1, 60)
    rates = (per_second * bad, per_second)
    yield from recorded_group(group_labels("latency", model, version), times, events=rates)


def estimated(model: str, version: str, error: float) -> Iterator[Series]:
    """Yield a source that states how far it may be off, and 50 requests/s of 500 ms at most."""
    labels = group_labels("latency", model, version)
    yield from recorded_group(
        labels, LATELY, source="decomposed", estimate_error=error, threshold=0.5, events=(7, 50)
    )


def lately(value: float) -> list[tuple[float, float]]:
    return [(at, value) for at in LATELY]


def last_poll(seconds_ago: float) -> Series:
    labels = {"job": EXPORTER_JOB, "instance": "a:9401"}
    return str(own.LAST_SUCCESS), labels, lately(END - seconds_ago)


def alert(model: str, severity: str, tier: str) -> Series:
    labels = {"alertname": BURN_ALERTS["latency"], "alertstate": "firing", names.COMPONENT: "slo"}
    about = {names.SLO: "latency", "model": model, "version": "1", names.SEVERITY: severity, names.TIER: tier}
    return "ALERTS", labels | about, lately(1)


@pytest.fixture(scope="module", params=newest(prometheuses()), ids=str)
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Models in every state, and a canary that is as good, one that is worse, and one that is new."""
    info = group_labels("errors")
    rows: list[Series] = [
        (names.INFO, info, [(STOPPED - 60, 1.0), (STOPPED, 1.0)]),
        *[
            (name, labels, [(float(LATER), value) for _, value in points[-1:]])
            for name, labels, points in recorded("good", "1", 0.8)
        ],
        (*last_poll(5)[:2], [(LATER, LATER - 5)]),
        last_poll(5),
        *recorded("good", "1", 0.8),
        *recorded("estimated", "1", 0.8),
        *recorded_group(group_labels("latency", "estimated"), LATELY, source="sampled_mean"),
        *recorded("means", "1", 0.8),
        *recorded_group(group_labels("latency", "means"), LATELY, source="sampled_mean"),
        *recorded("estimated-canary", "1", 0.8),
        *recorded("estimated-canary", "2", 0.8),
        *events("estimated-canary", "1", 10, 0.0),
        *events("estimated-canary", "2", 10, 0.0),
        *recorded_group(group_labels("latency", "estimated-canary", "2"), LATELY, source="summary"),
        *recorded("sure", "1", 0.8),
        *estimated("sure", "1", 0.001),
        *recorded("singles", "1", 0.8),
        *estimated("singles", "1", 0.0),
        *recorded("unsure", "1", 0.8),
        *estimated("unsure", "1", 0.012),
        *[row for version in "123" for row in recorded("estimated-versions", version, 0.9)],
        *[row for version in "123" for row in events("estimated-versions", version, 10, 0.0)],
        *estimated("estimated-versions", "1", 0.004),
        *estimated("estimated-versions", "2", 0.003),
        *estimated("estimated-versions", "3", 0.009),
        *[
            (name, {"instance": "triton-0:8002", **labels}, points)
            for name, labels, points in recorded("by-server", "1", 0.9)
        ],
        *recorded("spent", "1", -0.2),
        *recorded("young", "1", 0.8),
        *recorded_group(
            group_labels("new", "young"),
            LATELY,
            target=0.99,
            burn=0.5,
            left=0.8,
            seen=True,
            since=END - 3600,
            days=30.0,
        ),
        *recorded_group(
            group_labels("readiness", "two-versions", ""), LATELY, target=0.999, left=0.9, seen=True
        ),
        *[
            (
                str(state.MODEL_READY),
                {"job": EXPORTER_JOB, "instance": server, "model": "two-versions", "version": version},
                lately(ready),
            )
            for server, version, ready in (
                ("a:9401", "1", 1),
                ("b:9401", "1", 1),
                ("a:9401", "2", 1),
                ("b:9401", "3", 0),
            )
        ],
        *recorded("two-servers", "1", 0.9),
        (str(state.MODEL_READY), {**SECOND, "model": "two-servers", "version": "1"}, lately(1)),
        (str(own.LAST_SUCCESS), SECOND, lately(END - 200)),
        *recorded("elsewhere", "1", 0.9),
        (str(state.MODEL_READY), {**ELSEWHERE, "model": "elsewhere", "version": "1"}, lately(1)),
        (str(own.LAST_SUCCESS), ELSEWHERE, lately(END - 200)),
        *recorded("paging", "1", 0.6),
        alert("paging", "critical", "page_fast"),
        *recorded("burning", "1", 0.7),
        alert("burning", "warning", "ticket_slow"),
        *[row for row in recorded("ageless", "1", 0.9) if row[0] != str(state.MODEL_READY)],
        *[row for version in "123456" for row in recorded("canary", version, 0.9)],
        *events("canary", "1", 10, 0.002),
        *events("canary", "2", 10, 0.002),
        *events("canary", "3", 10, 0.03),
        *events("canary", "4", 0.005, 0.0),
        *events("canary", "6", 0.1, 0.0),
        *[row for version in "12" for row in recorded(HOSTILE, version, 0.9)],
        *events(HOSTILE, "1", 10, 0.0),
        *events(HOSTILE, "2", 10, 0.0),
    ]
    whole: dict[object, Series] = {}
    for row in rows:  # a model whose events are given has one counter all the same, with the samples of both
        counter = row[0] in (names.COUNTER, names.COPY)
        key = (row[0], *sorted(row[1].items())) if counter else len(whole)
        shorter, longer = sorted((whole.get(key, row)[2], row[2]), key=len)
        whole[key] = (*row[:2], sorted({**dict(shorter), **dict(longer)}.items()))
    with history.serve(
        history.openmetrics(whole.values()), tmp_path_factory.mktemp("prometheus"), server=request.param
    ) as url:
        yield url


def gate(prometheus: str, *words: object, at: float = END) -> int:
    return main(["gate", "--prometheus", prometheus, "--at", str(at), *map(str, words)])


@pytest.mark.real
@pytest.mark.parametrize(
    ("model", "code", "printed"),
    [
        (
            "good",
            PROMOTE,
            "promote  latency good version 1: budget left: 80.0%, burn rate over 5m 0.5x (data 5 s old)",
        ),
        ("by-server", PROMOTE, "latency by-server instance=triton-0:8002 version 1: budget left: 90.0%"),
        ("spent", HOLD, "budget left: 1.2x spent; more than 0.0% is required (--min-budget)"),
        ("paging", ROLLBACK, "a page fires: page_fast"),
        ("burning", HOLD, "the error budget burns: ticket_slow"),
        ("ageless", HOLD, "the age of the data is unknown: the exporter exports no series of this model"),
        ("nobody", HOLD, "no recorded objective matches"),
    ],
)
def test_each_state_has_its_verdict_and_reason(
    prometheus: str, model: str, code: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is the verdict, the line has the reason; only known, fresh, unspent and quiet promotes."""
    assert code == gate(prometheus, "--model", model)
    output = capsys.readouterr()
    assert printed in output.out + output.err


@pytest.mark.real
def test_the_history_is_measured_in_the_time_of_the_rules(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour is a whole period where a month is 43 minutes."""
    assert PROMOTE == gate(prometheus, "--objective", "new")
    assert "budget left: not known yet" in capsys.readouterr().out

    assert PROMOTE == gate(prometheus, "--objective", "new", "--time-scale", "1/1000")
    assert "budget left: 80.0%, burn rate over 5m" in capsys.readouterr().out


@pytest.mark.real
def test_a_name_that_is_nearly_one_of_prometheus_is_asked_back(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip of the pen gives `hold`, and the message names the objective or model that may be meant."""
    assert HOLD == gate(prometheus, "--objective", "latncy", "--model", "goood")
    message = capsys.readouterr().err
    at = "at 2025-10-09 09:00:00 UTC"
    assert f"Prometheus has no data of objective latncy {at}; did you mean latency?" in message
    assert f"Prometheus has no data of model goood {at}; did you mean good?" in message


@pytest.mark.real
@pytest.mark.parametrize(
    "words",
    [
        ("--canary", "9", "--baseline", "1"),
        ("--canary", "2", "--baseline", "9"),
        ("--canary", "9", "--baseline", "8"),
        ("--version", "9"),
    ],
)
def test_a_version_that_does_not_exist_is_named_with_those_that_do(
    prometheus: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """A slip in a version gives `hold`, and the message lists the versions of the model."""
    assert HOLD == gate(prometheus, "--model", "estimated-versions", *words)
    message = capsys.readouterr().err
    at = "at 2025-10-09 09:00:00 UTC"
    assert f"9: no objective has data of this version {at}; versions with data: 1, 2, 3" in message


@pytest.mark.real
def test_a_doubt_about_many_groups_is_explained_once(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The explanation stands at the first of them; the others refer to it. In JSON each has its own.

    The worst verdict counts.
    """
    assert ROLLBACK == gate(prometheus)
    lines = [line for line in capsys.readouterr().out.splitlines() if "but estimated (sampled_mean)" in line]
    explained = [line for line in lines if "slow requests may be missed" in line]
    assert 1 == len(explained) < len(lines)
    assert all(", but estimated (sampled_mean), as above" in line for line in lines if line not in explained)

    gate(prometheus, "--json")
    judged = json.loads(capsys.readouterr().out)["judgements"]
    doubted = [
        judgement["reason"] for judgement in judged if "but estimated (sampled_mean)" in judgement["reason"]
    ]
    assert all("slow requests may be missed" in reason for reason in doubted)


@pytest.mark.real
def test_an_estimate_promotes_nothing_unless_it_is_trusted(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sampled mean hides a slow tail: `hold`, with what settles it; --trust accepts that source only."""
    assert HOLD == gate(prometheus, "--model", "estimated")
    line = capsys.readouterr().out
    assert (
        "budget left: 80.0%, burn rate over 5m 0.5x, but estimated (sampled_mean): a few slow requests"
        in line
    )
    assert "(more: tritonwatch check --prometheus)" in line
    assert "or accept this source with --trust sampled_mean" in line
    assert HOLD == gate(prometheus, "--model", "estimated", "--trust", "summary")
    assert PROMOTE == gate(
        prometheus, "--model", "estimated", "--trust", "summary", "--trust", "sampled_mean"
    )
    assert WRONG == gate(prometheus, "--model", "estimated", "--trust", "histogram")


@pytest.mark.real
def test_an_estimate_promotes_where_its_error_changes_nothing(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The remaining budget must cover the error too; else the reason names what would settle it."""
    assert PROMOTE == gate(prometheus, "--model", "sure")
    assert (
        "budget left: 80.0%, burn rate over 5m 0.5x, and 70.0% at the largest error of the estimate (+-0.1 points)"
        in capsys.readouterr().out
    )

    assert PROMOTE == gate(prometheus, "--model", "singles")
    assert "budget left: 80.0%, burn rate over 5m 0.5x (data" in capsys.readouterr().out

    assert HOLD == gate(prometheus, "--model", "unsure")
    line = capsys.readouterr().out
    assert (
        "budget left: 80.0%, burn rate over 5m 0.5x, but estimated (decomposed, +-1.2 points): at the largest "
        "error of the estimate, the budget left is 1.4x spent; "
        "to fix this, " in line
    )
    assert "Triton 26.01 or later: --metrics-config histogram_latencies=true, with a bucket at 500ms" in line
    assert (
        "on an older Triton: let Triton trace 595 requests (exporter --otlp-listen; `tritonwatch doctor` gives Triton's flags "
        "and a rate)" in line
    )
    assert "; or accept this source with --trust decomposed" in line
    assert PROMOTE == gate(prometheus, "--model", "unsure", "--trust", "decomposed")
    assert HOLD == gate(prometheus, "--model", "sure", "--min-budget", "75%")


@pytest.mark.real
def test_canaries_are_compared_with_the_errors_of_both_estimates(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promoted where canary and baseline may both be wrong by their errors, and the difference still fits."""
    words = ("--model", "estimated-versions", "--baseline", "1", "--canary")

    assert PROMOTE == gate(prometheus, *words, "2")
    assert "also at the largest error of the estimates (+-0.7 points)" in capsys.readouterr().out
    assert HOLD == gate(prometheus, *words, "3")
    assert "but estimated (decomposed, +-1.3 points)" in capsys.readouterr().out


@pytest.mark.real
def test_a_canary_is_not_promoted_on_an_estimate(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two versions compared by numbers that miss a tail miss it in both."""
    words = ("--model", "estimated-canary", "--canary", "2", "--baseline", "1")

    assert HOLD == gate(prometheus, *words)
    assert "but estimated (summary)" in capsys.readouterr().out
    assert PROMOTE == gate(prometheus, *words, "--trust", "summary")


@pytest.mark.parametrize(
    ("source", "word"),
    [("backend_counters", "failures may be hidden"), ("untraced_queue", "rejections may be hidden")],
)
def test_hidden_failures_promote_nothing_unless_another_objective_sees_them(source: str, word: str) -> None:
    """A probe or a count of the clients that is promoted itself lifts the doubt; one that is not is named."""
    group = {"model": "m", "version": "1"}
    hidden = GroupStatus("errors", "errors", group, burn_now=0.0, budget_left=1.0, sources=(source,))
    probe, failing = (
        GroupStatus("probe", "probe", group, target=0.99, burn_now=0.0, budget_left=left, sources=("prober",))
        for left in (1.0, -1.0)
    )
    clients = GroupStatus(
        "gateway", "custom", {"model": "m"}, target=0.99, burn_now=0.0, budget_left=1.0, sources=("clients",)
    )
    own = GroupStatus("own", "custom", group, burn_now=0.0, budget_left=1.0, sources=("custom",))

    def verdict(*others: GroupStatus, events: float = 1000.0) -> tuple[str, str]:
        seen = failure_evidence(others, lambda *_: 1.0, [], GateLimits(), lambda _: events)
        [judgement] = judge([hidden], lambda *_: 1.0, [], GateLimits(), seen)
        return judgement.verdict, judgement.reason

    assert "promote" == verdict(probe)[0] == verdict(clients)[0]
    assert "hold" == verdict()[0] == verdict(own)[0] == verdict(failing)[0] == verdict(probe, failing)[0]
    assert f"but {word} ({source})" in verdict()[1]
    assert f"or accept this source with --trust {source}" in verdict()[1]
    assert "to fix this, see objective probe, hold: budget left: 2x spent" in verdict(failing)[1]
    # Four answered probes are not evidence about one request in five that fails.
    assert ("promote", "hold") == (verdict(probe, events=299)[0], verdict(probe, events=298)[0])
    # The probe's own verdict is promote: the reason must not say that it is another.
    waiting = verdict(probe, events=4)[1]
    assert (
        "to fix this, wait until objective probe has counted 299 requests within 3 days (4 so far)" in waiting
    )
    assert "hold" not in waiting


@pytest.mark.real
def test_limits_are_those_asked_for(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A higher minimum of budget, or a lower age, turns promote into `hold`; an unknown objective gives `hold`."""
    assert HOLD == gate(prometheus, "--model", "good", "--min-budget", "80%")
    assert HOLD == gate(prometheus, "--model", "good", "--max-age", "4s")
    assert "the data is 5 s old, and at most 4 s are allowed (--max-age)" in capsys.readouterr().out
    assert HOLD == gate(prometheus, "--model", "good", "--objective", "latency", "--objective", "latencey")
    assert "hold     latencey good: unknown: no data" in capsys.readouterr().out


@pytest.mark.real
@pytest.mark.parametrize("model", ["two-servers", "elsewhere"])
def test_the_server_with_the_oldest_reading_decides(
    prometheus: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two servers that is not seen any more makes the data old, however fresh the other is."""
    assert PROMOTE == gate(prometheus, "--model", model)
    assert HOLD == gate(prometheus, "--model", model, "--max-age", "100s")
    assert "the data is 200 s old" in capsys.readouterr().out


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "code", "printed"),
    [
        ("2", PROMOTE, "sure that the canary is at most 1.000% worse (0.200% bad against 0.200%)"),
        ("3", ROLLBACK, "sure that the canary is worse (3.000% bad against 0.200%)"),
        ("4", HOLD, "the canary has 18 events, 50 are needed"),
        ("5", HOLD, "the canary has 0 events, 50 are needed"),
        ("7", HOLD, "latency canary version 7: unknown: no data"),
    ],
)
def test_a_canary_is_compared_with_its_baseline(
    prometheus: str, version: str, code: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As good promotes, worse rolls back, too few events or none give `hold`."""
    assert code == gate(prometheus, "--model", "canary", "--canary", version, "--baseline", "1")
    assert printed in capsys.readouterr().out


@pytest.mark.real
def test_a_canary_has_a_line_about_its_own_readiness(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The readiness objective is of the model; the line tells the servers of both versions apart."""
    words = ("--model", "two-versions", "--baseline", "1", "--objective", "readiness", "--canary")

    assert PROMOTE == gate(prometheus, *words, "2")
    said = "ready on 1 of 1 servers that have it (version 1: on 2 of 2)"
    assert f"promote  readiness two-versions version 2: {said}" in capsys.readouterr().out
    assert HOLD == gate(prometheus, *words, "3")
    said = "ready on 0 of 1 servers that have it (version 1: on 2 of 2)"
    assert f"hold     readiness two-versions version 3: {said}" in capsys.readouterr().out
    assert HOLD == gate(prometheus, *words, "4")
    assert "readiness two-versions version 4: " in capsys.readouterr().out


@pytest.mark.real
def test_more_confidence_needs_more_events(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """360 events without a failure are 95 % sure to be within 2 %, and not 99.99 % sure to be within 1 %."""
    words = ("--model", "canary", "--canary", "6", "--baseline", "1")

    assert PROMOTE == gate(prometheus, *words, "--margin", "2%")
    assert HOLD == gate(prometheus, *words, "--margin", "1%", "--confidence", "99.99%")
    assert "not sure enough" in capsys.readouterr().out


@pytest.mark.real
def test_any_model_name_can_be_compared_by_the_gate(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any character of a model's name reaches Prometheus as it is, and none steers the terminal."""
    assert PROMOTE == gate(prometheus, "--model", HOSTILE, "--canary", "2", "--baseline", "1")
    output = capsys.readouterr().out
    assert r"\x1b[2J\u202e" in output
    assert all(line.isprintable() for line in output.split("\n"))


@pytest.mark.real
def test_json_contains_the_numbers(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline can read verdict, age and the comparison."""
    assert ROLLBACK == gate(prometheus, "--model", "canary", "--canary", "3", "--baseline", "1", "--json")

    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    [judgement] = answer["judgements"]
    assert ("rollback", "rollback", 5.0) == (
        answer["verdict"],
        judgement["verdict"],
        judgement["data_age_seconds"],
    )
    assert pytest.approx(36000) == judgement["comparison"]["canary"]["total"]
    assert judgement["comparison"]["worse"] > 0.999


@pytest.mark.real
def test_what_cannot_be_asked_never_promotes(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No Prometheus and no series are exit 1, wrong usage is exit 2."""
    assert CANNOT_TELL == gate("http://127.0.0.1:1")
    assert CANNOT_TELL == gate(prometheus, at=END - 86400)
    assert WRONG == gate(prometheus, "--canary", "2")
    assert WRONG == gate(prometheus, "--canary", "2", "--baseline", "1")
    assert WRONG == gate(prometheus, "--model", "m", "--canary", "2", "--baseline", "2")
    assert WRONG == gate(prometheus, "--max-age", "soon")
    assert WRONG == gate(prometheus, "--confidence", "40%")
    assert "--confidence must be between 50% and 100%" in capsys.readouterr().err


def test_a_fast_burn_is_written_as_a_plain_number() -> None:
    """A total outage burns 1000 times too fast, not 1e+03 times."""
    gone = GroupStatus("errors", "errors", {"model": "m", "version": "1"}, burn_now=1000.0, budget_left=-9.0)
    page = Firing("critical", "page_fast", group_labels("errors", "m", "1"))

    [paged] = judge([gone], lambda *_: 1.0, [page], GateLimits())
    assert "a page fires: page_fast, burn rate over 5m 1000x" == paged.reason


def test_a_budget_of_two_minutes_is_called_one() -> None:
    """A fresh Prometheus promotes on what it knows, and the reason states how little that is.

    A budget that would be spent at the rate of these minutes holds, without the number; so does one that an estimate
    does not exclude.
    """
    young = GroupStatus("errors", "errors", {"model": "m", "version": "1"}, burn_now=0.0, budget_left=1.0)
    known = replace(young, history_seconds=120.0, period_days=30.0)
    spent = replace(known, budget_left=-9.0)
    sure = replace(known, target=0.99, sources=("decomposed",), estimate_error=0.001)
    blurred = replace(sure, estimate_error=0.1)

    [short], [whole], [held], [good], [doubted] = (
        judge([group], lambda *_: 1.0, (), GateLimits()) for group in (known, young, spent, sure, blurred)
    )

    assert ("promote", "promote") == (short.verdict, whole.verdict)
    assert "budget left: not known yet: 2m of data, of 30d, burn rate over 5m 0x" == short.reason
    assert ("hold", True) == (held.verdict, "at the rate of this time too much" in held.reason)
    assert "budget left: 100.0%, burn rate over 5m 0x" == whole.reason
    assert ("promote", "hold") == (good.verdict, doubted.verdict)
    assert f"{short.reason}, also at the largest error of the estimate (+-0.1 points)" == good.reason
    assert (
        "at the largest error of the estimate, too much of the budget is spent at the rate of this"
        in doubted.reason
    )


def test_a_group_without_a_version_is_as_old_as_its_oldest_version() -> None:
    """A gateway counts by model; its objective is judged on fresh data of the model, not at `hold` for ever."""
    ages = Ages({("m", "1"): 5.0, ("m", "2"): 90.0, ("other", "1"): 400.0}, 400.0)

    assert (90.0, 5.0, 400.0) == (ages.of("m", ""), ages.of("m", "1"), ages.of("", ""))
    assert (None, None) == (ages.of("nobody", ""), ages.of("m", "3"))


def test_a_gateway_needs_no_exporter_and_is_judged_by_its_own_age() -> None:
    """The older of the exporter's data and the objective's own series decides; at a gateway the latter can."""
    at_gateway = GroupStatus("e", "errors", {"model": "m"}, budget_left=1.0, sources=("clients",))
    of_triton = replace(at_gateway, sources=("counters",))

    def verdict(row: GroupStatus, exporter: float | None) -> str:
        return judge([row], lambda *_: exporter, [], GateLimits())[0].verdict

    assert "promote" == verdict(replace(at_gateway, seen_seconds_ago=10.0), None)
    assert "hold" == verdict(replace(at_gateway, seen_seconds_ago=400.0), 10.0)
    assert "hold" == verdict(replace(of_triton, seen_seconds_ago=10.0), None)
    assert "hold" == verdict(replace(of_triton, seen_seconds_ago=400.0), 10.0)
    assert "hold" == verdict(at_gateway, None)


def test_old_data_of_an_unloaded_model_is_not_blamed_on_the_exporter() -> None:
    """A model that was unloaded on purpose or replaced has old data although the exporter reads Triton well."""
    gone = GroupStatus("e", "errors", {"model": "m", "version": "1"}, budget_left=1.0, seen_seconds_ago=386.0)

    def reason(row: GroupStatus, exporter: float | None) -> str:
        [judgement] = judge([row], lambda *_: exporter, [], GateLimits())
        assert "hold" == judgement.verdict
        return judgement.reason

    unloaded = "the model was unloaded or replaced; load it again, or judge other groups"
    for exporter in (1.0, None):
        assert reason(replace(gone, retired=True), exporter).startswith(unloaded)
    assert "the data is 386 s old" in reason(gone, 1.0)
    assert "check that the exporter is scraped" in reason(gone, None)


def test_a_page_rolls_back_even_without_data() -> None:
    """The verdict is not merely `hold` when a model's page fires while its series vanish."""
    gone = GroupStatus("latency", "latency", {"model": "m", "version": "1"}, unknown_reasons=("vanished",))
    page = Firing("critical", "page_fast", group_labels("latency", "m", "1"))

    [paged] = judge([gone], lambda *_: None, [page], GateLimits())
    [quiet] = judge([gone], lambda *_: None, [], GateLimits())
    assert ("rollback", "hold") == (paged.verdict, quiet.verdict)


def test_a_page_rolls_back_only_the_group_that_it_is_about() -> None:
    """A page of one tenant stops no release of another."""
    tenants = [GroupStatus("errors", "custom", {"tenant": each}, budget_left=1.0) for each in ("a", "b")]
    page = Firing("critical", "page_fast", {names.SLO: "errors", "tenant": "a", names.TIER: "page_fast"})

    assert ["rollback", "promote"] == [
        judged.verdict for judged in judge(tenants, lambda *_: 1.0, [page], GateLimits())
    ]


def test_a_partial_answer_promotes_nothing() -> None:
    """A response that Prometheus calls incomplete may lack the very series that would give `hold`."""
    good, bad = Judgement("promote", "fine", "a"), Judgement("rollback", "pages", "b")

    assert ("hold", "Prometheus warns: no store b") == (
        hold_if_incomplete([good], ["no store b"])[0].verdict,
        hold_if_incomplete([good], ["no store b"])[0].reason,
    )
    assert (bad,) == hold_if_incomplete([bad], ["no store b"])
    assert (good, bad) == hold_if_incomplete([good, bad], [])


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        pytest.param([], HOLD, "hold     errors: unknown: not recorded any more", id="half an hour"),
        pytest.param(["--objective", "latency"], PROMOTE, "verdict: promote", id="not asked for"),
        pytest.param(
            ["--canary", "1", "--baseline", "2"], HOLD, "errors: unknown: not recorded any more", id="canary"
        ),
    ],
)
def test_an_objective_that_is_not_recorded_any_more_promotes_nothing(
    prometheus: str, words: list[str], code: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rule group that stopped leaves no row behind that could be judged."""
    assert code == gate(prometheus, "--model", "good", *words, at=LATER)
    assert printed in capsys.readouterr().out


def test_nothing_to_judge_promotes_nothing() -> None:
    """An empty list of verdicts does not permit anything."""
    good, bad = Judgement("promote", "", "a"), Judgement("hold", "", "b")

    assert "hold" == worst([])
    assert ("promote", "hold") == (worst([good]), worst([good, bad]))
