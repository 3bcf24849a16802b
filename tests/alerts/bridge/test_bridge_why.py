"""Test facts from a real Prometheus: the last change of a model, its GPUs and its recorded budget."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from slo.advise.made import Made, poisson, series, varying
from support import history
from support.history import Series
from support.recorded_group import group_labels, recorded_group
from triton_alerts.bridge.deliver.messages import Style, headline, links, reply, root
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.evidence.facts import counted_cause, gpu_state, overload, ready_text
from triton_alerts.bridge.evidence.facts import latest_changes as last_changes
from triton_alerts.bridge.evidence.facts import objective_budget as from_prometheus
from triton_alerts.bridge.evidence.facts import servers as serving
from triton_alerts.bridge.evidence.objective import OVER, Counts
from triton_alerts.bridge.incidents.incident import (
    LAST_CHANGE,
    LOAD_FAILED,
    Event,
    Evidence,
    Fault,
    Incident,
    SourceFacts,
    key_of,
)
from triton_alerts.bridge.incidents.merging import judge
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.broken import QUEUE_BACKLOG, broken_now, served_lines
from triton_alerts.catalogue import ALERTS
from triton_alerts.rules import texts
from triton_exporter.catalogue import gpu, models, state, triton
from triton_slo import names
from triton_slo.advise.measured import Configuration
from triton_slo.alert_settings import AlertSetting, Tuning
from triton_slo.artifact import Options
from triton_slo.indicators import Errors, Latency, Readiness
from triton_slo.prometheus import Prometheus, Sample
from triton_slo.rules import action
from triton_slo.server_access import Access

pytestmark = pytest.mark.real

STEP = 15
HOURS = 3600.0
GIB = 1024.0**3
DAY = r"(?:\d\d [A-Z][a-z]{2} )?"
"""Where midnight is between two times of day."""
REPAIRED = {"instance": "a", "model": "repaired"}


def about(now: float, **labels: str) -> Incident:
    """Return an incident of one alert, ten minutes old."""
    member = Member(labels=labels, starts_at=now - 600)
    return Incident(name="n", key="k", receiver="r", opened_at=now - 590, members={"a": member})


class At(Prometheus):
    """Prometheus at a moment of the past."""

    def __init__(self, access: Access, at: float) -> None:
        super().__init__(access)
        self.at = at

    def instant(self, query: str, at: float | None = None) -> tuple[Sample, ...]:
        return super().instant(query, self.at if at is None else at)


def judged(incident: Incident, known: SourceFacts, at: float) -> Incident:
    """Return the incident once the sources have said what they know."""
    asked = {key_of(member.labels) for member in incident.members.values()}
    return judge(asked, Evidence.of(known, at, about=incident.led_by), incident)[0]


def over_since(incident: Incident, at: float | None, over: str = "now within the target") -> dict[str, Fault]:
    """Return that the fault of the lead is over since then."""
    return {key_of(incident.lead.labels): Fault(over=over, since=at)}


def flat(now: float, value: float, start: float = -2 * HOURS, end: float = 0.0) -> list[tuple[float, float]]:
    """Return the same value from `start` to `end`, seconds from now."""
    return [(now + at, value) for at in range(int(start), int(end) + 1, STEP)]


def states(
    now: float, instance: str, model: str, version: str, *changes: tuple[float, str]
) -> Iterator[Series]:
    """One series a state, as the exporter writes them; `changes` are (seconds from now, state), ended by ''."""
    ends = [at for at, _ in changes[1:]] + [0.0]
    spans = [(at, end, name) for (at, name), end in zip(changes, ends, strict=True) if name]
    for state_name in dict.fromkeys(name for _, _, name in spans):
        points = [
            (at, float(state_name == name))
            for begin, end, name in spans
            for at, _ in flat(now, 0, begin, end - (STEP if end else 0))
        ]
        labels = {"instance": instance, "model": model, "version": version, "state": state_name}
        yield state.MODEL_STATE.name, labels, points


def made(now: float) -> Iterator[Series]:
    """Three models that have changed, and three GPUs, two of them without errors."""
    yield from states(now, "a", "ranker", "2", (-2 * HOURS, "ready"), (-840, "unloading"), (-780, "unloaded"))
    yield from states(now, "a", "ranker", "3", (-900, "loading"), (-720, "unavailable"))
    since = {"instance": "a", "model": "ranker", "version": "3"}
    yield state.MODEL_NOT_READY_SINCE.name, since, flat(now, now - 733, -720)
    # Backfilled series have no stale marker: one that ended is seen for five minutes more.
    for instance in "ab":
        yield from states(now, instance, "wide", "1", (-2 * HOURS, "ready"), (-300, "unloaded"))
        yield from states(now, instance, "wide", "2", (-2 * HOURS, "ready"), (-1200, ""))
    yield from states(now, "a", "calm", "1", (-2 * HOURS, "ready"))
    yield from states(now, "a", "old", "1", (-50 * HOURS, "loading"), (-30 * HOURS, "ready"))
    reloads = flat(now, 0, end=-1215) + flat(now, 1, start=-1200)
    labels = {"instance": "a", "model": "hot", "reason": "bad_config"}
    yield state.MODEL_RELOAD_FAILURES.name, labels, reloads
    yield from states(now, "a", "hot", "1", (-2 * HOURS, "ready"))
    yield from states(now, "a", "repaired", "1", (-2 * HOURS, "unavailable"), (-STEP, "loading"))
    yield state.MODEL_STATE.name, {**REPAIRED, "version": "1", "state": "ready"}, [(now - 2, 1.0)]
    yield state.MODEL_STATE.name, {**REPAIRED, "version": "1", "state": "loading"}, [(now - 2, 0.0)]
    for instance, version, value in (("a", "2", 0), ("a", "3", 0), ("b", "2", 1), ("c", "2", 1)):
        labels = {"instance": instance, "model": "ranker", "version": version}
        yield state.MODEL_READY.name, labels, flat(now, value)
    for model, end in (("dead", 0.0), ("gone", -900.0)):
        labels = {"instance": "a", "model": model, "version": "1"}
        yield state.MODEL_READY.name, labels, flat(now, 0, end=end)
    for instance in "ab":
        yield state.SERVER_LIVE.name, {"job": "pods", "instance": instance}, flat(now, 0)
    yield state.SERVER_LIVE.name, {"job": "one", "instance": "c"}, flat(now, 1)
    yield state.SERVER_LIVE.name, {"job": "one", "instance": "removed"}, flat(now, 0, end=-900.0)
    yield from gpus(now)


def gpus(now: float) -> Iterator[Series]:
    for number, uuid in enumerate(("GPU-0000aaaa-1", "GPU-1111bbbb-1", "GPU-2222cccc-1")):
        board = {"instance": "a", "gpu_uuid": uuid}
        yield gpu.INFO.name, board | {"name": "NVIDIA H200"}, flat(now, 1)
        yield gpu.UTILIZATION.name, board, flat(now, 0.25 * number)
        yield gpu.MEMORY_USED.name, board, flat(now, 100 * GIB)
        yield gpu.MEMORY_TOTAL.name, board, flat(now, 140 * GIB)
        yield gpu.TEMPERATURE.name, board, flat(now, 60 + number)
        yield gpu.THROTTLE_REASON.name, board | {"reason": "hw_thermal"}, flat(now, float(number == 1))
        yield gpu.THROTTLE_REASON.name, board | {"reason": "idle"}, flat(now, 1)
        yield gpu.XID_ERRORS.name, board | {"xid": "79", "class": "hardware"}, flat(now, 0)
    board = {"instance": "a", "gpu_uuid": "GPU-1111bbbb-1"}
    yield gpu.XID_ERRORS.name, board | {"xid": "999", "class": "unknown"}, flat(now, 1, start=-600)
    for uuid in ("GPU-0000aaaa-1", "GPU-1111bbbb-1"):
        runs = {"instance": "a", "gpu_uuid": uuid, "model": "ranker", "version": "3", "source": "config"}
        yield gpu.MODEL_GPU_INFO.name, runs | {"confidence": "certain"}, flat(now, 1)
    part = {"instance": "m", "gpu_uuid": "GPU-3333dddd-1"}
    yield gpu.TEMPERATURE.name, part, flat(now, 55)
    for instance in ("1", "2"):
        yield gpu.UTILIZATION.name, part | {"gpu_instance_id": instance}, flat(now, 0.5)
    runs = part | {"gpu_instance_id": "2", "model": "small", "version": "1"}
    yield gpu.MODEL_GPU_INFO.name, runs | {"source": "all_visible", "confidence": "guess"}, flat(now, 1)


@pytest.fixture(scope="module")
def made_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, float]]:
    now = time.time() // 60 * 60
    with history.serve(history.openmetrics(made(now)), tmp_path_factory.mktemp("why") / "p") as url:
        yield Prometheus(Access(url)), now


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC"


def change(where: tuple[Prometheus, float], **labels: str) -> list[str]:
    prometheus, now = where
    evidence = last_changes(prometheus, lambda: now)(about(now, **labels))
    return dict(evidence.facts).get(LAST_CHANGE, "").splitlines()


def test_a_failed_rollout_is_described_by_version(
    made_prometheus: tuple[Prometheus, float],
) -> None:
    """Version 3 failed, version 2 was unloaded, and when; passing states are left out. It was said a minute late."""
    _, now = made_prometheus
    expected = [
        f"version 3 failed to load at {clock(now - 733)}",
        f"version 2 unloaded at {clock(now - 780)}",
    ]
    shown = change(made_prometheus, model="ranker", version="3", instance="a")

    assert expected == shown[:2]


def test_that_a_model_was_unloaded_is_why_nothing_serves_it(
    made_prometheus: tuple[Prometheus, float],
) -> None:
    """A load that had failed days before was named, and the traceback of then was to be read."""
    prometheus, now = made_prometheus
    texts = {"summary": "No server serves model wide", "cause": "python_error", "action": "Look."}
    for age, cause in ((270, f"unloaded at {clock(now - 300)}"), (30, "python error")):
        lead = Member(
            labels={"alertname": "TritonModelDownEverywhere", "model": "wide"},
            annotations=texts,
            starts_at=now - age,
        )
        incident = about(now).model_copy(update={"members": {"a": lead}})
        known = last_changes(prometheus, lambda: now)(incident)
        shown = root(judged(incident, known, now), Style(), now)

        assert f"🟠 No server serves model wide: {cause} · " in shown.text
        assert (age == 270) == ("*First step*\\nLoad it again; " in str(shown.blocks))


@pytest.mark.parametrize(
    "labels", [{"alertname": "TritonModelReplicasLow"}, {"alertname": Readiness.burn_alert, "version": "3"}]
)
def test_a_rollout_is_no_unload(tmp_path: Path, labels: dict[str, str]) -> None:
    """Version 3 had replaced 2 on one server and was loading on the other: "unloaded at 12:01. Load it again." """
    now = time.time() // STEP * STEP
    made = [
        *states(now, "a", "m", "2", (-2 * HOURS, "ready"), (-300, "unloading"), (-285, "unloaded")),
        *states(now, "a", "m", "3", (-345, "loading"), (-300, "ready")),
        *states(now, "b", "m", "2", (-2 * HOURS, "ready"), (-360, "unloading"), (-270, "unloaded")),
        *states(now, "b", "m", "3", (-360, "loading")),
    ]
    incident = about(now, model="m", **labels)
    with history.serve(history.openmetrics(made), tmp_path / "p", flags=FRESH) as url:
        for at in (now - 285, now):  # that on a is the last change, then that on b
            known = last_changes(Prometheus(Access(url)), lambda at=at: at)(incident)  # type: ignore[misc]

            assert "version 2 unloaded" in dict(known.facts)[LAST_CHANGE]
            assert "" == known.cause


def test_servers_alike_are_one_line(
    made_prometheus: tuple[Prometheus, float],
) -> None:
    """Without an instance, as burn alerts are, a rollout over servers is one line a version."""
    _, now = made_prometheus
    expected = [
        f"version 1 unloaded on 2 servers at {clock(now - 300)}",
        f"version 2 no longer listed by Triton on 2 servers at {clock(now - 900)}",
    ]

    assert expected == change(made_prometheus, model="wide")


def test_a_change_of_seconds_ago_is_the_last_one(made_prometheus: tuple[Prometheus, float]) -> None:
    """Whenever the alert began: a page that ends must not say forever that its model is loading."""
    prometheus, now = made_prometheus
    for age in range(600, 600 + STEP, 4):
        member = Member(labels=REPAIRED, starts_at=now - age)
        incident = Incident(name="n", key="k", receiver="r", opened_at=now - 590, members={"a": member})
        facts = dict(last_changes(prometheus, lambda: now + 0.7)(incident).facts)

        assert facts[LAST_CHANGE].startswith("version 1 loaded "), age


def test_a_failed_reload_of_a_version_that_goes_on_serving_is_a_change(
    made_prometheus: tuple[Prometheus, float],
) -> None:
    """The state stays ready; only the counter shows it."""
    [line] = change(made_prometheus, model="hot", instance="a")

    assert f"a reload failed (bad_config) at {clock(made_prometheus[1] - 1200)}" == line


def test_a_change_of_the_day_before_is_found_by_the_wider_query(
    made_prometheus: tuple[Prometheus, float],
) -> None:
    """If nothing changed in six hours, the bridge queries a week with a longer step."""
    [line] = change(made_prometheus, model="old")

    assert re.fullmatch(r"version 1 loaded at \d{4}-\d\d-\d\d \d\d:\d\d UTC", line)


@pytest.mark.parametrize("labels", [{"model": "calm"}, {"model": "unheard of"}, {"instance": "a"}])
def test_where_nothing_changed_nothing_is_shown(
    made_prometheus: tuple[Prometheus, float], labels: dict[str, str]
) -> None:
    """Models without changes, unknown models and alerts without a model get no line."""
    assert [] == change(made_prometheus, **labels)


def gpu_lines(where: tuple[Prometheus, float], **labels: str) -> list[str]:
    prometheus, now = where
    return dict(gpu_state(prometheus)(about(now, **labels)).facts).get("GPU", "").splitlines()


def test_a_models_gpus_are_listed_the_troubled_one_first(made_prometheus: tuple[Prometheus, float]) -> None:
    """Use, memory, heat, throttling and XIDs of the GPUs that the model runs on, and of no other."""
    expected = [
        (
            "H200 GPU-1111bbbb: utilization 25 %, 100.0 of 140.0 GiB used, 61 °C, "
            "clocks throttled (reason: hw_thermal), XID 999 (unknown) in the last hour"
        ),
        (
            "H200 GPU-0000aaaa: utilization 0 %, 100.0 of 140.0 GiB used, 60 °C, "
            "not throttled, no XID error in the last hour"
        ),
    ]

    assert expected == gpu_lines(made_prometheus, model="ranker", version="3", instance="a")


def test_a_gpu_alert_is_about_its_gpu_alone(made_prometheus: tuple[Prometheus, float]) -> None:
    """Without a model the alert's own gpu_uuid decides."""
    [line] = gpu_lines(made_prometheus, component="gpu", instance="a", gpu_uuid="GPU-2222cccc-1")

    assert line.startswith("H200 GPU-2222cccc: utilization 50 %")


def test_a_part_of_a_gpu_is_named_and_a_guess_is_called_one(
    made_prometheus: tuple[Prometheus, float],
) -> None:
    """A model on a MIG instance gets that instance's figures, and the board's heat."""
    expected = ["GPU-3333dddd part 2 (mapping uncertain): utilization 50 %, 55 °C"]

    assert expected == gpu_lines(made_prometheus, model="small")


def test_a_model_on_no_gpu_shows_nothing_of_gpus(made_prometheus: tuple[Prometheus, float]) -> None:
    """Half of all models run on CPUs."""
    assert [] == gpu_lines(made_prometheus, model="calm", instance="a")


def test_the_query_of_a_message_is_about_its_model_alone(tmp_path: Path) -> None:
    """The alert's condition, without the other models for which it is true; a name may have a dollar."""
    now = time.time() // STEP * STEP
    series = [
        (str(state.MODEL_READY), {"instance": "a", "model": model, "version": "1"}, [(now, 0.0)])
        for model in ("ranker", "cost$1", "other")
    ]
    with history.serve(
        history.openmetrics(series), tmp_path / "p", flags=("--query.lookback-delta=1h",)
    ) as url:
        for model in ("ranker", "cost$1"):
            incident = about(now, model=model, instance="a", alertname="A")
            asked = urlencode({"g0.expr": f"{state.MODEL_READY} == 0", "g0.tab": "1"})
            lead = incident.lead.model_copy(update={"generator_url": f"{url}/graph?{asked}"})
            query = dict(links(incident, lead, Style()))["Query"]
            expr = dict(parse_qsl(urlsplit(query).query))["g0.expr"]

            found = Prometheus(Access(url)).instant(expr)

            assert [model] == [sample.labels["model"] for sample in found]


def test_a_title_says_that_its_share_is_an_estimate(tmp_path: Path) -> None:
    """The durations of a stock Triton are estimated: to write them as counts would be a claim."""
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    own = group_labels("latency", "ranker", "3")
    objective = group_labels("latency")
    series = [
        *recorded_group(own, times, target=0.99, burn=20, left=0.5, since=now - HOURS),
        *recorded_group(objective, times, days=30.0),
        (names.SLI_SOURCE, {**own, names.SOURCE: "decomposed"}, [(at, 1.0) for at in times]),
        (names.THRESHOLD_SECONDS, own, [(at, 0.2) for at in times]),
        *(
            (names.COUNTER, {**own, names.EVENT: event}, [(at, (at - times[0]) * a_second) for at in times])
            for event, a_second in ((names.ERROR, 1.6), (names.TOTAL, 8))
        ),
    ]
    incident = about(now, slo="latency", indicator="latency", model="ranker", version="3")
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)

    since = f"since {clock(now - 600)}"
    words = rf"ranker: about 20 % of requests take over 200 ms [(]estimated from 4,[89]\d\d {since}[)], target 1 %"
    assert re.fullmatch(words, known.title or "")
    assert f"20x the allowed rate {since}" == dict(known.facts)["Burn rate"]


def test_burn_budget_and_cause_are_read_from_recorded_series(tmp_path: Path) -> None:
    """Of one moment: the counts, their share in the title, and their burn rate; all of it goes to the backend's failures."""
    now = time.time() // STEP * STEP
    # Five minutes into the future: the numbers are asked for as of now, which is later on a busy machine.
    times = [now - 2 * HOURS + at for at in range(0, int(2 * HOURS) + 300, STEP)]
    own = group_labels("errors", "ranker", "3")
    objective = group_labels("errors")
    series = [
        *recorded_group(own, times, target=0.99, burn=0.5, left=0.5, since=now - 2 * HOURS),
        *recorded_group(objective, times, days=30.0),
        *(
            (names.COUNTER, {**own, names.EVENT: event}, [(at, (at - times[0]) * a_second) for at in times])
            for event, a_second in ((names.ERROR, 0.4), (names.TOTAL, 8))
        ),
        (names.INFO, {**objective, "target": "0.99", "window": "30d"}, [(at, 1.0) for at in times]),
        (
            names.CAUSE_SHARE,
            {names.INDICATOR: "errors", "model": "ranker", "version": "3", names.CAUSE: "failure:BACKEND"},
            [(at, 1.0) for at in times],
        ),
    ]
    incident = about(now, slo="errors", indicator="errors", model="ranker", version="3")
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)

    facts = dict(known.facts)
    since = f"since {clock(now - 600)}"
    assert f"5x the allowed rate {since}" == facts["Burn rate"]
    assert re.fullmatch(r"not known yet: [0-9hms ]+ of data, of 30d", facts["Budget left"])
    words = rf"ranker: 5 % of requests fail [(]24\d of 4,[89]\d\d {since}[)], target 1 %"
    assert re.fullmatch(words, known.title or "")
    assert "99 % of requests without an error over 30d" == facts["Objective"]
    assert "error in the model 100%" == facts["Causes"]
    assert "The model's own code fails" in known.first_step


COUNTS = "[0-9]+ of [0-9,]+"
SECOND = "[0-9:]{8} UTC"


@pytest.mark.parametrize(
    ("then", "requests", "title"),
    [
        # Of a window of whole minutes, which began before it, half was said to fail of what did.
        (0.8, 8, f"10 % of requests fail [(]{COUNTS} since BEGAN UTC[)], target 1 %"),
        (
            4.0,
            8,
            f"2[0-9] % of requests fail [(]{COUNTS} since BEGAN UTC; 50 % in the last minute[)], target 1 %",
        ),
        # It is red for some time more, but one sees that it stopped.
        (0.0, 8, f"{COUNTS} requests failed, {DAY}BEGAN:[0-9]+ to {DAY}{SECOND}; none since"),
        (0.0, 0, f"{COUNTS} requests failed, {DAY}BEGAN:[0-9]+ to {DAY}{SECOND}; no requests since {SECOND}"),
    ],
    ids=["goes on", "gets worse", "stopped", "no requests"],
)
def test_a_title_tells_a_fault_from_its_begin_on_and_what_has_stopped_in_the_past_tense(
    tmp_path: Path, then: float, requests: float, title: str
) -> None:
    """A tenth fails from four minutes ago; after a while something changes."""
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    changed = now - (150 if not requests else 75 if then else 30)

    def failing(at: float) -> float:
        return then if at >= changed else 0.8 if at >= now - 240 else 0.0

    own = group_labels("errors", "ranker")
    events = (failing, lambda at: requests if at >= changed else 8.0)
    series = recorded_group(own, times, target=0.99, since=times[0], burn=5.0, events=events)
    labels = {**own, "tier": "page_fast", "severity": "critical", "alertname": Errors.burn_alert}
    page = Member(labels=labels, starts_at=now - 180)
    incident = about(now).model_copy(update={"members": {"a": page}})
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        prometheus = At(Access(url), now + 10)
        known = from_prometheus(prometheus)(incident)
        # An alert without a tier names no time since which it could be.
        spent = from_prometheus(prometheus)(about(now, **own, alertname=names.SPENT_ALERT))
    incident = incident.model_copy(update={"evidence": Evidence.of(known, now)})

    began = clock(now - 246).removesuffix(" UTC")
    assert re.fullmatch(f"🔴 ranker: {title.replace('BEGAN', began)}", headline(incident)), headline(incident)
    assert "none since" not in (spent.title or "")


@pytest.mark.parametrize(("failing", "over"), [(0, True), (4, True), (10, False)])
def test_a_fault_is_counted_from_its_first_failure_to_its_last_and_again_only_beyond_chance(
    failing: int, over: bool
) -> None:
    """It began seven failures late, and a few failures a minute after it would have been the fault again."""
    times = [5.0 * at for at in range(201)]
    failed = [4.0 * min(max(0, at - 100), 87) + (failing if at > 198 else 0) for at in range(201)]
    counts = Counts(times, failed, [60.0 * at for at in range(201)], 0.005)

    assert 500 == counts.held_until(700)
    fault = counts.judge(Fault(over=OVER, since=935))
    assert over == bool(fault.over)


def test_a_fault_that_comes_and_goes_is_over_once_it_stays_away_for_longer() -> None:
    """Ten seconds of each hundred: said over and failing again every time, it was two lines in the thread each."""
    times = [5.0 * at for at in range(301)]
    failed = list(accumulate(50.0 if 500 < at <= 1010 and 0 < at % 100 <= 10 else 0.0 for at in times))
    total = [20.0 * at for at in times]
    upto = {times[n]: Counts(times[: n + 1], failed[: n + 1], total[: n + 1], 0.005) for n in range(102, 301)}

    assert [at for at in times if 570 <= at <= 600 or at >= 1130] == [at for at in upto if upto[at].is_calm]


@pytest.mark.parametrize(
    ("ended", "requests", "present"),
    [
        (360, 8, "now within the target"),
        (180, 8, "now within the target"),
        (360, 0, "no requests since [0-9:]{8} UTC"),
    ],
)
def test_a_title_says_that_the_fault_is_over(
    tmp_path: Path, ended: float, requests: float, present: str
) -> None:
    """The alert looks back for hours: the title has what failed in all while it lasted, up to the last failure."""
    now = time.time() // STEP * STEP
    times = [now - 2 * HOURS + at for at in range(0, int(2 * HOURS) + 300, STEP)]
    own = group_labels("errors", "ranker", "3")
    over = now - ended
    series = [
        *recorded_group(own, times, target=0.99, since=times[0], burn=0.0 if requests else None),
        *recorded_group(
            own,
            times,
            events=(lambda at: 0.4 if at < over else 0.0, lambda at: 8 if at < over else requests),
        ),
    ]
    labels = {"slo": "errors", "indicator": "errors", "model": "ranker", "version": "3"}
    incident = about(now, **labels, tier="page_fast", severity="critical")
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        ask = from_prometheus(Prometheus(Access(url)))
        known = ask(incident)
        during = judged(incident, known, now)
        # The next time, of an incident that is said to be longer: what is over is counted no more.
        longer = during.model_copy(update={"earliest": now - HOURS} if requests else {})
        again = judged(during, known.and_newer(ask(longer)), now)
        closed = ask(incident.model_copy(update={"closed_at": now}))
        of_an_hour = ask(incident.model_copy(update={"earliest": now - HOURS, "closed_at": now}))

    # Both counts are of the interval that is named.
    first, last = (f"{DAY}{datetime.fromtimestamp(at, UTC):%T}" for at in (now - 600, over - STEP))
    lasted = over - STEP - now + 600
    failed = f"ranker: {0.4 * lasted:.0f} of {8 * lasted:,.0f} requests failed, {first} to {last} UTC"
    icon = "🟡" if requests else "🔴"
    assert re.fullmatch(f"{icon} {failed}; {present}", headline(during))
    assert headline(during) == headline(again)
    assert re.fullmatch(failed, closed.title or "")
    assert f"ranker: {0.4 * (over - STEP - now + HOURS):,.0f} of " in (of_an_hour.title or "")
    assert bool(requests) == during.is_watched


def test_a_fault_that_comes_back_is_told_from_then(tmp_path: Path) -> None:
    """The page of 21:42 said since 21:13, when 4 % had failed for six minutes. Once it is over, both are counted.

    Only the second was, until the alert ended an hour later: 209 failures, where there had been 654.
    """
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]

    def failing(second: tuple[float, float], scale: float = 1.0) -> Callable[[float], float]:
        spans = ((-1500, -1200), second)
        return lambda at: 0.8 / scale if any(begin <= at - now < end for begin, end in spans) else 0.0

    labels = {
        "slo": "errors",
        "indicator": "errors",
        "version": "1",
        "severity": "critical",
        "tier": "page_slow",
    }
    back, ended, silent = (
        about(now, **labels, model=model, alertname=Errors.burn_alert)
        for model in ("ranker", "embed", "solo")
    )
    series = [
        each
        for model, second, last in (
            ("ranker", (-90, 900), 300),
            ("embed", (-660, -360), 300),
            ("solo", (-400, -180), -110),
        )
        for each in recorded_group(
            group_labels("errors", model),
            [at for at in times if at - now <= last],
            target=0.99,
            since=times[0],
            events=(failing(second), 8.0),
            errors={"5m": failing(second, 8.0)},
        )
    ]
    over = Evidence(
        at=now - 150, title="ranker: 9 of 999 requests failed", faults=over_since(back, now - 300)
    )
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        ask = from_prometheus(Prometheus(Access(url)))
        before = back.model_copy(update={"evidence": over})
        back = judged(before, over.and_newer(ask(before)), now)
        of_another = before.model_copy(update={"evidence": over.model_copy(update={"about": "another"})})
        beside = judged(of_another, ask(of_another), now)
        key = key_of(ended.lead.labels)
        of_then = Evidence(at=now - 60, faults={key: Fault(since=now - 665)})
        end = ask(ended.model_copy(update={"evidence": of_then, "earliest": now - 1500}))
        told = of_then.model_copy(update={"faults": over_since(ended, now - 120), "title": "embed: 9 of 99"})
        whole = {"evidence": told, "earliest": now - 1500, "closed_at": now}
        total = ask(ended.model_copy(update=whole))
        # A ticket: it fired four minutes after the first part, and through the second.
        ticket = ended.lead.model_copy(update={"starts_at": now - 960})
        both = ask(ended.model_copy(update={**whole, "earliest": None, "members": {"a": ticket}}))
        unseen = ask(
            silent.model_copy(
                update={"evidence": over.model_copy(update={"faults": over_since(silent, now - 300)})}
            )
        )

    # Its exporter is silent: nothing says that it is back.
    assert ["now within the target"] == [fault.over for fault in unseen.faults.values()]
    assert back.again_since is not None
    assert back.again_since == beside.again_since  # also where another alert led meanwhile
    assert now - 105 < back.again_since < now - 75
    words = f"ranker: 10 % of requests fail [(]\\d+ of \\d+ since {clock(back.again_since)}[)], target 1 %"
    since = f" · again since <!date\\^{back.again_since:.0f}\\^[^>]*> [(]1m "
    assert re.match(f"🔴 {words}{since}", root(back, Style(), now).text)
    until = f"{datetime.fromtimestamp(now - 375, UTC):%H:%M:[0-9]+}"
    for whole_title in (end.title, total.title, both.title):
        assert re.fullmatch(f"embed: 4[5-8][0-9] of .* to {DAY}{until} UTC", whole_title or "")
    assert now - 1500 - STEP <= (both.began or 0.0) <= now - 1500 + STEP


def test_a_fault_began_and_came_back_when_its_objective_last_held(tmp_path: Path) -> None:
    """It was said to have begun when its alert did, 50 s late, and to be back before it was.

    Where a page joined a ticket that fired on, it counted from the fault before.
    """
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    labels = {"slo": "errors", "indicator": "errors", "model": "ranker", "version": "1"}

    def failing(at: float) -> float:
        return 0.8 if -660 <= at - now < -300 or -60 <= at - now else 0.0

    series = recorded_group(
        group_labels("errors", "ranker"),
        times,
        target=0.99,
        since=times[0],
        events=(failing, 8.0),
        burn=5.0,
    )
    incident = about(now, **labels, alertname=Errors.burn_alert, severity="critical")
    over = Evidence(at=now - 120, faults=over_since(incident, now - 240))
    incident = incident.model_copy(update={"evidence": over})
    ticket = incident.lead.model_copy(update={"labels": {**incident.lead.labels, "severity": "warning"}})
    page = incident.lead.model_copy(update={"starts_at": now - 5})
    joined = incident.model_copy(update={"members": {"a": ticket, "b": page}, "evidence": None})
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)
        of_page = from_prometheus(Prometheus(Access(url)))(joined)
    incident = judged(incident, known, now)

    assert f" since {clock(incident.again_since or 0.0)}), target" in (of_page.title or "")
    assert now - 660 - STEP <= (known.began or 0.0) <= now - 660 + STEP
    assert now - 60 - STEP <= (incident.again_since or 0.0) <= now - 60 + STEP


def test_all_that_ended_together_is_over_together(tmp_path: Path) -> None:
    """Latency led and was over; for minutes the message stayed red, because the five minutes of the queue looked back."""
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    over = now - 150
    labels = [{"slo": kind, "indicator": kind, "model": "m", "version": "1"} for kind in ("latency", "queue")]
    series = [
        each
        for own in labels
        for each in recorded_group(
            group_labels(own["slo"], "m"),
            times,
            target=0.99,
            since=times[0],
            burn=5.0,
            events=(lambda at: 0.8 if at < over else 0.0, 8.0),
        )
    ]
    pages = {
        own["slo"]: Member(labels={**own, "severity": "critical", "tier": "page_fast"}, starts_at=now - 600)
        for own in labels
    }
    incident = about(now).model_copy(update={"members": pages})
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)

    assert judged(incident, known, now).is_watched
    assert [True, True] == [abs((fault.since or 0.0) - over) <= 60 for fault in known.faults.values()]


def test_a_calm_version_does_not_make_the_page_of_another_one_over(tmp_path: Path) -> None:
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    own = {"slo": "errors", "indicator": "errors", "model": "m", "severity": "critical", "tier": "page_fast"}
    pages = {each: Member(labels={**own, "version": each}, starts_at=now - 600) for each in ("1", "2")}
    failing: dict[str, float | Callable[[float], float]] = {
        "1": lambda at: 0.8 if at < now - 150 else 0.0,
        "2": 8.0,
    }
    series = [
        each
        for version, failed in failing.items()
        for each in recorded_group(
            group_labels("errors", "m", version),
            times,
            target=0.99,
            since=times[0],
            burn=5.0,
            events=(failed, 8.0),
        )
    ]
    incident = about(now).model_copy(update={"members": pages})
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)
    incident = judged(incident, known, now)

    assert [True, False] == [bool(incident.fault(page).over) for page in pages.values()]
    # What fails leads, and the colour is of it.
    assert pages["2"] is incident.lead
    assert headline(incident).startswith("🔴")


def test_what_fails_again_beside_the_title_is_said_and_called(tmp_path: Path) -> None:
    """Latency led and was over; errors, which were over, came back, and nobody heard of it."""
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    failing = {"latency": ((-900, -400),), "errors": ((-600, -400), (-90, 900))}
    series = [
        each
        for kind, spans in failing.items()
        for each in recorded_group(
            group_labels(kind, "m"),
            times,
            target=0.99,
            since=times[0],
            burn=5.0,
            events=(
                lambda at, spans=spans: 0.8 if any(a <= at - now < b for a, b in spans) else 0.0,
                8.0,
            ),
        )
    ]
    own = {"severity": "critical", "tier": "page_slow"}
    pages = {
        kind: Member(
            labels={**group_labels(kind, "m"), **own}, starts_at=now - 600 - 10 * (kind == "latency")
        )
        for kind in failing
    }
    incident = about(now).model_copy(update={"members": pages})
    over = {
        key_of(page.labels): Fault(over="now within the target", since=now - 400) for page in pages.values()
    }
    incident = incident.model_copy(update={"evidence": Evidence(at=now - 120, faults=over)})
    led = incident.lead.labels[names.SLO]
    down = Member(labels={"alertname": "TritonModelDownEverywhere", "model": "m"}, starts_at=now)
    outage = incident.model_copy(update={"members": {**pages, "down": down}})
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)
        assert known.faults == from_prometheus(Prometheus(Access(url)))(outage).faults
    after, events = judge(set(over), Evidence.of(known, now, about=incident.led_by), incident)

    assert ("latency", "errors") == (led, after.lead.labels[names.SLO])
    assert headline(after).startswith("🔴")
    assert ["raised"] == [event.kind for event in events]
    again = after.fault(pages["errors"]).since or 0.0
    assert now - 105 <= again <= now - 75
    assert f"m: objective errors · since {clock(again)}" == events[0].words


@pytest.mark.parametrize("fires_anew", [True, False])
def test_another_fault_of_a_model_began_when_its_servers_lost_it(tmp_path: Path, fires_anew: bool) -> None:
    """It was unloaded at 09:51:19, after errors: the message said since 09:51, since 09:37, and again since 09:50.

    Where its alert fires on from an outage before, a ticket led: "No server serves model lang, over".
    """
    now = time.time() // STEP * STEP
    model = {"model": "lang", "version": "1"}
    own = {"severity": "critical", "tier": "page_slow", "alertname": Errors.burn_alert}
    errors = Member(labels={**group_labels("errors", "lang"), **own}, starts_at=now - 600)
    down = Member(
        labels={"alertname": "TritonModelDownEverywhere", "severity": "critical", "model": "lang"},
        starts_at=now - 5,
    )
    own |= {"alertname": Readiness.burn_alert, **group_labels("readiness", "lang")}
    burn = Member(labels=own, starts_at=now - 600)
    lost = {"instance": "a", **model}
    series = [
        (str(state.SERVER_LIVE), {"instance": "a"}, flat(now, 1, -1200, 300)),
        (str(state.MODEL_READY), lost, steps(now, (-1200, 1), (-30, 0))),
        (str(state.MODEL_NOT_READY_SINCE), lost, steps(now, (-30, now - 43))),
    ]
    flaps = Member(labels={"alertname": "TritonModelFlapping", **lost}, starts_at=now - 5)
    joins = {"d": down} if fires_anew else {"d": down.model_copy(update={"starts_at": now - 600}), "f": flaps}
    before = about(now).model_copy(update={"members": {"e": errors, "r": burn, **joins}})
    were = (errors, burn) if fires_anew else (errors, burn, down)
    over = {key_of(page.labels): Fault(over=OVER, since=now - 500) for page in were}
    before = before.model_copy(update={"evidence": Evidence(at=now - 32, faults=over)})
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        prometheus = Prometheus(Access(url))
        known = from_prometheus(prometheus)(before).and_newer(serving(prometheus)(before))
    after = judged(before, known, now)

    assert now - 43 == after.again_since
    assert [True, False, False] == [bool(after.fault(page).over) for page in (errors, burn, down)]
    assert f" · again since <!date^{now - 43:.0f}^" in root(after, Style(), now).text


@pytest.mark.parametrize(
    ("alert", "was_over"),
    [
        ("TritonQueueBudgetBurn", True),
        (Readiness.burn_alert, True),
        (LOAD_FAILED, True),
        ("TritonQueueBudgetBurn", False),
        (Readiness.burn_alert, False),
    ],
)
def test_a_dead_server_is_no_fault_of_an_alert_that_is_over_and_says_so_of_one_that_is_not(
    tmp_path: Path, alert: str, was_over: bool
) -> None:
    """Eight minutes after a queue its server died: the channel was called in the thread of the queue, with the cause and
    the first step of then, and half a minute later by the page of the server."""
    now = time.time() // STEP * STEP
    of = {"TritonQueueBudgetBurn": "queue", Readiness.burn_alert: "readiness"}.get(alert)
    labels = {**(group_labels(of, "solo") if of else {"model": "solo"}), "alertname": alert}
    lost, end = {"instance": "b", "model": "solo", "version": "1"}, -30
    series = [
        (str(state.SERVER_LIVE), {"instance": "b"}, steps(now, (-1800, 1), (end, 0))),
        (
            str(state.MODEL_READY),
            lost,
            steps(now, (-1800, 1), (-700, int(of == "queue")), (-480, 1), (end, 0)),
        ),
        (str(state.MODEL_EXPECTED), lost, flat(now, 1, -1800, 300)),
        (
            str(state.MODEL_NOT_READY_SINCE),
            lost,
            steps(now, (-700, None if of == "queue" else now - 700), (-480, None), (end, now + end)),
        ),
        *recorded_group(
            group_labels("queue", "solo"),
            [at for at, _ in flat(now, 0, -3600, 300)],
            target=0.99,
            since=now - 3600,
            burn=5.0,
            events=(
                lambda at: 0.8 if -700 <= at - now < (-480 if was_over else end) else 0.0,
                lambda at: 8.0 if at - now < end else 0.0,
            ),
        ),
    ]
    page = Member(labels={**labels, "severity": "critical"}, starts_at=now - 650)
    was = Fault(over="over then", since=now - 480) if was_over else Fault()
    then = SourceFacts(title="solo was slow", cause="executions took longer", first_step="Find what.")
    before = about(now).model_copy(update={"members": {"p": page}})
    known = then.model_copy(update={"faults": {key_of(labels): was}})
    before = before.model_copy(update={"evidence": Evidence.of(known, now - 60, about=before.led_by)})
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        prometheus = Prometheus(Access(url))
        known = from_prometheus(prometheus)(before).and_newer(serving(prometheus)(before))
    evidence = Evidence.of(then.and_newer(known), now, about=before.led_by)
    after, events = judge([key_of(labels)], evidence, before)
    shown = root(after, Style(), now)

    assert () == events
    assert was_over == after.is_over
    if was_over:
        assert "does not answer" not in shown.text
        assert "again since" not in shown.text
        assert then.cause == causes.largest(after, after.lead)
    else:
        assert shown.text.startswith("🔴 b does not answer: nothing serves solo now · ")
        assert f"*First step*\\n{Readiness.step_for('state:unknown')}" in str(shown.blocks)


def test_an_alert_that_looks_back_is_over_once_nothing_of_it_happens(tmp_path: Path) -> None:
    """Four minutes after the last rejection a ticket led in red: "rejects 1.04 requests a second"."""
    now = time.time() // STEP * STEP
    series = [
        (
            str(triton.REQUEST_FAILURE),
            {"instance": "a", "model": model, "version": "1", "reason": "REJECTED"},
            [(at, max(0.0, min(at - now, last) + 900) * 2) for at, _ in flat(now, 0, -1200, 300)],
        )
        for model, last in (("done", -240.0), ("busy", 300.0))
    ]
    seen = {}
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        for model in ("done", "busy", "unknown"):
            page = Member(
                labels={**group_labels("errors", model), "severity": "critical", "tier": "page_fast"},
                annotations={"summary": "burns"},
                starts_at=now - 600,
            )
            ticket = Member(
                labels={
                    "alertname": "TritonRequestsRejected",
                    "cluster": "eu",  # an external label
                    "instance": "a",
                    "model": model,
                    "version": "1",
                    "severity": "warning",
                },
                annotations={"summary": "rejects 1.04 requests a second"},
                starts_at=now,
            )
            ask = counted_cause(Prometheus(Access(url)))
            alone = about(now).model_copy(update={"members": {"t": ticket}})
            known = ask(alone)
            if model == "done":  # when it ended stays so, however often that is asked
                was = judged(alone, SourceFacts(faults=over_since(alone, now - 130)), now)
                assert judged(was, ask(was), now).fault(ticket).since == now - 130
            incident = about(now).model_copy(update={"members": {"p": page, "t": ticket}})
            faults = known.faults | {
                key_of(page.labels): Fault(over="now within the target", since=now - 240)
            }
            seen[model] = judged(incident, SourceFacts(faults=faults), now)

    assert "🟡 burns; now within the target" == headline(seen["done"])
    assert ["🟠 rejects 1.04 requests a second"] * 2 == [
        headline(seen[model]) for model in ("busy", "unknown")
    ]
    shown = [root(each, Style(), now).text for each in seen.values()]
    assert [True, False, False] == [" · page, over · " in text for text in shown]
    assert [False, True, True] == [" · ticket · " in text for text in shown]


@pytest.mark.parametrize(("threshold", "over"), [(None, True), (0.2, False)])
def test_what_is_over_is_told_by_the_threshold_in_force(
    tmp_path: Path, threshold: float | None, over: bool
) -> None:
    """A queue that is 30 % full is no longer nearly full, unless somebody's threshold is 20 %."""
    now, name = time.time() // STEP * STEP, "TritonQueueNearFull"
    [alert] = [
        tuned
        for each in ALERTS
        if each.name == name
        for tuned in each.tuned(Tuning({name: AlertSetting(threshold=threshold)}))
    ]
    own = {"instance": "a", "model": "ranker", "version": "1"}
    member = Member(
        labels={"alertname": name, **own}, annotations=texts(alert, Options()), starts_at=now - 600
    )
    full = [
        (str(metric), own, flat(now, value, -600))
        for metric, value in ((triton.PENDING_REQUESTS, 30), (models.QUEUE_SIZE_LIMIT, 100))
    ]
    with history.serve(history.openmetrics(full), tmp_path / "p") as url:
        known = counted_cause(Prometheus(Access(url)))(
            about(now).model_copy(update={"members": {"a": member}})
        )

    assert over == bool(known.faults[key_of(member.labels)].over)


def test_alerts_of_two_gpus_are_both_named() -> None:
    now = time.time()
    alerts = {
        gpu: Member(
            labels={"alertname": "GpuXidHardware", "instance": "h", "gpu_uuid": gpu, "severity": "warning"},
            annotations={"summary": f"{gpu} reported an error"},
            starts_at=now - 600,
        )
        for gpu in ("GPU-a", "GPU-b")
    }
    shown = str(root(about(now).model_copy(update={"members": alerts}), Style(), now))

    assert "GPU-a reported" in shown
    assert "GPU-b reported" in shown


@pytest.mark.parametrize("every", [70, 10])
def test_what_was_over_fails_where_all_requests_do(tmp_path: Path, every: int) -> None:
    """With a request in 70 s, five failures never came in the five minutes, and it stayed over."""
    now = time.time() // STEP * STEP
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    group = group_labels("errors", "ranker")
    failed = [(at, float(sum(now - 1700 + every * n <= at for n in range(1700 // every)))) for at in times]
    series = [
        *recorded_group(group, times, target=0.9, since=times[0], burn=5.0),
        *((names.COUNTER, {**group, names.EVENT: event}, failed) for event in (names.ERROR, names.TOTAL)),
    ]
    incident = about(now, **group, alertname=Errors.burn_alert, severity="critical")
    over = Evidence(at=now - 60, faults=over_since(incident, now - 180))
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident.model_copy(update={"evidence": over}))

    assert [""] == [fault.over for fault in known.faults.values()]
    assert "ranker: 100 % of requests fail" in (known.title or "")


def test_a_server_that_dies_for_the_first_time_is_not_down_again(
    dead_server: tuple[Prometheus, float],
) -> None:
    """Its first message said "since 01:12, again since 01:12"."""
    prometheus, now = dead_server

    incident = about(now, alertname="TritonServerDown", severity="warning", instance="a")
    known = serving(prometheus)(incident)

    assert "a does not answer since" in (known.title or "")
    assert judged(incident, known, now).again_since is None


def test_an_overload_is_the_cause_of_waits(tmp_path: Path) -> None:
    """An instance that takes 82 ms, 3 requests/s, and 14 in the last five minutes: advise says it, the page did not."""
    now = time.time() // STEP * STEP
    times = [*poisson(3, 1500), *(1500 + at for at in poisson(14, 300))]
    made = [step for step in Made(varying(0.082)).steps(times) if step.at <= 1800]
    incident = about(now, indicator="queue", slo="queue", model="m", version="1", cluster="eu")
    errors = about(now, indicator="errors", slo="errors", model="m", version="1")
    own = [*series(made, Configuration(), now, 0.1)]
    other = [(name, {**labels, "cluster": "us"}, points) for name, labels, points in own]
    with history.serve(history.openmetrics([*own, *other]), tmp_path / "p") as url:
        ask = overload(Prometheus(Access(url)), lambda: now)
        known, none = ask(incident), ask(errors)
    shown = root(incident.model_copy(update={"evidence": Evidence.of(known, now)}), Style(), now)

    assert re.search(
        "1[34][0-9.]* requests/s have come since [^ ]+ UTC, its instances answer at most 12.2/s", shown.text
    )
    assert "" == none.cause


@pytest.mark.parametrize("kind", [Latency, Errors])
@pytest.mark.parametrize(
    ("rate", "took", "began", "ended", "words"),
    [
        (8, 1, 1620, 1800, r"an execution takes 1s since TIME, 62ms before; traffic is unchanged"),
        (8, 8, 1710, 1800, r"an execution takes 8s since TIME, 62ms before; traffic is unchanged"),
        (8, 500, 1740, 1800, r"no execution has succeeded since TIME, one took 62ms before; traffic"),
        (1, 1, 1200, 1800, r"an execution takes (1s|9\d+(.\d)?ms) since TIME, 62ms before"),
        (8, 1, 1770, 1800, r"an execution takes 9\d+(.\d)?ms since TIME, 62ms before"),
        (0.2, 8, 1680, 1800, r"an execution takes 8s since TIME, 62ms before"),
        (0.03, 500, 1500, 1800, r"no execution has succeeded since TIME, one took 62ms before"),
        (1, 1, 1200, 1560, r"an execution took (1s|9\d+(.\d)?ms) from TIME to TIME, 62ms before"),
        (1, 1, 1200, 1705, r"an execution took (1s|9\d+(.\d)?ms) from TIME to TIME, 62ms before"),
    ],
    ids=[
        *("too slow for its traffic", "its few executions tell", "none has ended"),
        *(
            "it bears its traffic",
            "it has just begun",
            "its few executions tell, too",
            "none of few has ended",
        ),
        *("it is over", "it has stopped"),
    ],
)
def test_a_model_that_became_slower_is_not_called_an_overload(
    tmp_path: Path, rate: float, took: float, began: int, ended: int, words: str, kind: type[Latency | Errors]
) -> None:
    """Executions took 1 s instead of 62 ms at the same 8 requests/s: the page named the traffic, and wanted instances.

    What they took while the queue was worked off, and after the fault, made its mean less. So was it where requests
    failed because they had waited too long. The slower it was, the fewer executions told it, and the surer traffic was blamed.
    """
    now = time.time() // STEP * STEP
    slower = Made(lambda _, at: took if began <= at < ended else 0.062, instances=2)
    made = [step for step in slower.steps(poisson(rate, 1800)) if step.at <= 1800]
    own = group_labels(kind.name(), "m")
    incident = about(now, **own, alertname="Burn")
    texts = {"action": action("Burn", kind.all_steps())}
    members = {"a": incident.lead.model_copy(update={"annotations": texts})}
    times = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)]
    # The last ones are not counted yet.
    events = (lambda at: rate * (began <= at - now + 1800 < min(ended + 60, 1790)), float(rate))
    objective = recorded_group(own, times, target=0.99, since=times[0], events=events)
    cause = {names.INDICATOR: "errors", "model": "m", "version": "1", names.CAUSE: "failure:REJECTED"}
    rejected = (names.CAUSE_SHARE, cause, [(at, 1.0) for at in times])
    configured = series(made, Configuration(instances=2), now, 0.1)
    with history.serve(history.openmetrics([*configured, *objective, rejected]), tmp_path / "p") as url:
        known = overload(At(Access(url), now + 10), lambda: now)(incident)
    known = SourceFacts(first_step=kind.step_for("queue", "failure:REJECTED")).and_newer(known)
    shown = root(
        incident.model_copy(update={"members": members, "evidence": Evidence.of(known, now)}), Style(), now
    )

    assert re.search(words.replace("TIME", "[^ ]+ UTC"), shown.text), shown.text
    step = next(block["text"]["text"] for block in shown.blocks if "*First step*" in str(block))
    assert "Find what made it slower" in step
    assert "add instances" not in step


@pytest.mark.parametrize(
    ("hangs", "fault", "cause"),
    [
        (True, Fault(), "no execution has succeeded since"),
        (True, Fault(over="now within the target", since=-420), "an execution took"),
        (False, Fault(since=-60, again=True), ""),
        (False, Fault(), "an execution took"),
    ],
    ids=["it hangs", "it hung after the end", "it was slow before it failed again", "it was slow"],
)
def test_the_cause_is_of_the_fault(tmp_path: Path, hangs: bool, fault: Fault, cause: str) -> None:
    """Of one that was over it said "no execution has succeeded; now within the target", and a page named a slowness that
    had ended a quarter of an hour before."""
    now = time.time() // STEP * STEP
    took = Made(lambda _, at: 500 if hangs and at >= 1620 else 1 if 1100 <= at < 1300 else 0.062, instances=2)
    made = [step for step in took.steps(poisson(8, 1800)) if step.at <= 1800]
    incident = about(now, **group_labels("latency", "m"), alertname="Burn")
    if fault.since is not None:
        fault = fault.model_copy(update={"since": now + fault.since})
    known = Evidence.of(SourceFacts(faults={key_of(incident.lead.labels): fault}), now)
    told = history.openmetrics([*series(made, Configuration(instances=2), now, 0.1)])
    with history.serve(told, tmp_path / "p") as url:
        ask = overload(Prometheus(Access(url)), lambda: now)
        found = ask(incident.model_copy(update={"evidence": known}))
        backlog = ask(about(now, alertname=QUEUE_BACKLOG, model="m", version="1", instance="a"))

    assert found.cause.startswith(cause), found.cause
    assert bool(cause) == bool(found.cause)
    assert backlog.cause


def test_one_slow_execution_is_not_what_executions_take(tmp_path: Path) -> None:
    """One in sixty took 6 s instead of 62 ms: it was said of all of them."""
    now = time.time() // STEP * STEP
    slow = Made(lambda _, at: 6.0 if 1500 <= at < 1510 else 0.062)
    made = [step for step in slow.steps(at + 5 for at in range(0, 1800, 10)) if step.at <= 1800]
    times, own = [now - HOURS + at for at in range(0, int(HOURS) + 300, STEP)], group_labels("latency", "m")
    events = (lambda at: 0.1 * (at >= now - 600), 0.1)
    objective = recorded_group(own, times, target=0.99, since=times[0], events=events)
    told = [*series(made, Configuration(), now, 0.1), *objective]
    with history.serve(history.openmetrics(told), tmp_path / "p") as url:
        known = overload(Prometheus(Access(url)), lambda: now)(about(now, **own, alertname="Burn"))

    assert "" == known.cause


@pytest.mark.parametrize("of_model", [{}, {"model": "ranker", "version": "1"}])
def test_an_incident_began_when_the_condition_did_not_when_its_alert_fired(
    tmp_path: Path, of_model: dict[str, str]
) -> None:
    """A server that died at 14:42:30 was "down since 14:43:47": its alert fires after a minute.

    On another server the same model has not been ready for days, which is inhibited, because that server is down.
    """
    now = time.time() // STEP * STEP
    alert = {"alertname": "TritonServerDown", "severity": "warning", "instance": "a", **of_model}
    series = [
        ("ALERTS_FOR_STATE", alert, flat(now, now - 677, -600)),
        ("ALERTS_FOR_STATE", alert | {"instance": "b"}, flat(now, now - 5000, -600)),
        ("ALERTS_FOR_STATE", alert | {"alertname": "GpuLost"}, flat(now, now - 5000, -600)),
    ]
    incident = about(now, **alert)
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)
    incident = incident.model_copy(update={"evidence": Evidence.of(known, now)})
    later = incident.model_copy(update={"evidence": Evidence.of(known.and_newer(SourceFacts()), now)})

    assert (now - 677, now - 600) == (incident.since, incident.fired_at)
    assert now - 677 == later.since
    assert "(11m 17s) · ticket" in root(incident, Style(), now).text


def test_a_model_is_not_ready_since_its_exporter_saw_it(tmp_path: Path) -> None:
    """It failed to load at 02:03:36, the message said since 02:04:02, and a minute later since 02:03:45, or when another
    server lost it."""
    now = time.time() // STEP * STEP
    labels = {"model": "ocr", "instance": "a"}
    alert = {"alertname": LOAD_FAILED, **labels}
    series = [
        ("ALERTS_FOR_STATE", alert, flat(now, now - 600, -600)),
        *(
            (str(state.MODEL_NOT_READY_SINCE), {**labels, **other}, flat(now, since, -600))
            for other, since in (
                ({"version": "1"}, now - 626),
                ({"version": "0"}, now - 90_000),
                ({"version": "1", "instance": "b"}, now - 620),
            )
        ),
    ]
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident := about(now, **alert))
        faults = serving(Prometheus(Access(url)))(incident).faults

    assert [now - 626, now - 626] == [known.began, faults[key_of(alert)].since]


@pytest.mark.parametrize("live", [True, False])
def test_a_model_that_was_removed_was_not_ready(tmp_path: Path, live: bool) -> None:
    """No longer in --expect and in the repository: the alert looks back for an hour. A dead server says nothing."""
    now = time.time() // STEP * STEP
    exporter = {"job": "tritonwatch", "instance": "a"}
    series = [
        (str(state.MODEL_READY), {**exporter, "model": "broken"}, flat(now, 0.0, -3600, -900)),
        (str(state.SERVER_LIVE), exporter, flat(now, float(live), -3600, 300)),
    ]
    incident = about(now, slo="readiness", indicator="readiness", model="broken")
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = from_prometheus(Prometheus(Access(url)))(incident)

    assert ("broken was not ready; no server lists or expects it any more" if live else None) == known.title
    assert live == known.first_step.startswith("If the model was removed on purpose, do nothing")


def one_dead_server(now: float) -> Iterator[Series]:
    """Server a died two minutes ago, c was down until a minute ago; d's exporter is silent, Prometheus began again."""
    for server, live in (
        ("a", flat(now, 1, -1200, -135) + flat(now, 0, -120)),
        ("b", flat(now, 1)),
        ("c", flat(now, 0, -1200, -75) + flat(now, 1, -60)),
        ("d", flat(now, 1, -1200, -600)),
    ):
        yield str(state.SERVER_LIVE), {"instance": server}, live
        exporter = {"instance": server, "job": "triton-exporter"}
        yield "up", exporter, flat(now, 1, -1200, -600) + flat(now, float(server != "d"), -585)
    for server, model, ready in (
        ("a", "broken", flat(now, 1, -1200, -135) + flat(now, 0, -120)),
        ("a", "batcher", flat(now, 1, -1200, -135) + flat(now, 0, -120)),
        ("a", "ranker", flat(now, 1, -1200, -135) + flat(now, 0, -120)),
        ("b", "ranker", flat(now, 1)),
        ("d", "batcher", flat(now, 1, -1200, -600)),
        ("d", "ranker", flat(now, 1, -1200, -600)),
        ("c", "slow", flat(now, 0)),
        ("d", "dark", flat(now, 1, -1200, -600)),
    ):
        labels = {"instance": server, "model": model}
        yield str(state.MODEL_EXPECTED), labels, [(at, 1.0) for at, _ in ready]
        yield str(state.MODEL_READY), labels | {"version": "1"}, ready
        if not ready[-1][1]:
            since = next(at for at, value in ready if not value)
            yield str(state.MODEL_NOT_READY_SINCE), labels | {"version": "1"}, flat(now, since, since - now)
    yield (
        str(state.MODEL_STATE),
        {"instance": "c", "model": "slow", "version": "1", "state": "loading"},
        flat(now, 1),
    )
    dead = {"alertname": "TritonServerDown", "instance": "a"}
    yield "ALERTS_FOR_STATE", dead, flat(now, now - 120, -105)
    dark = {"alertname": "TritonExporterDown", "instance": "d"}
    yield "ALERTS_FOR_STATE", dark, flat(now, now - 240, -240)


@pytest.fixture(scope="module")
def dead_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, float]]:
    now = time.time() // STEP * STEP
    with history.serve(
        history.openmetrics(one_dead_server(now)), tmp_path_factory.mktemp("dead") / "p"
    ) as url:
        yield Prometheus(Access(url)), now


def test_a_dead_server_and_no_repaired_load_is_why_its_model_is_not_ready(
    dead_server: tuple[Prometheus, float],
) -> None:
    """The page went back to the file that had been missing ten minutes before, and to the step about it."""
    prometheus, now = dead_server
    labels = {"alertname": "TritonModelLoadFailed", "model": "broken", "instance": "a"}
    incident = about(now, **labels)
    texts = {"summary": "broken failed to load on a", "description": "A load failed."}
    lead = incident.lead.model_copy(update={"annotations": texts})
    known = serving(prometheus)(incident)
    evidence = Evidence.of(SourceFacts(cause="missing_file").and_newer(known), now)
    shown = root(incident.model_copy(update={"members": {"a": lead}, "evidence": evidence}), Style(), now)

    assert shown.text.startswith(
        f"🟠 a does not answer since {clock(now - 120)}: nothing serves broken now · "
    )
    assert f"*First step*\n{Readiness.step_for('state:unknown')}" in [
        block.get("text", {}).get("text") for block in shown.blocks
    ]
    assert "missing" not in str(shown.blocks)
    assert "A load failed" not in str(shown.blocks)
    # Another replica that died is not why the load failed on this one.
    assert (
        "" == serving(prometheus)(about(now, **(labels | {"model": "ranker", "instance": "b"}))).dead_server
    )


@pytest.mark.parametrize(("began", "explains"), [(600, False), (241, False), (239, True), (60, True)])
def test_a_dead_server_explains_only_what_began_after_it_died(
    dead_server: tuple[Prometheus, float], began: float, explains: bool
) -> None:
    """A queue was full for four minutes when one of two servers died: that was not why."""
    prometheus, now = dead_server
    labels = {"alertname": "TritonQueueBudgetBurn", "slo": "queue", "indicator": "queue", "model": "ranker"}
    member = Member(labels=labels, starts_at=now - began)
    incident = Incident(name="n", key="k", receiver="r", opened_at=now - began, members={"a": member})
    step = f"Start a again: it does not answer since {clock(now - 120)}, and is the likely cause."

    assert (step if explains else "") == from_prometheus(prometheus)(incident).first_step


def test_of_a_server_that_answers_again_all_is_of_one_moment(dead_server: tuple[Prometheus, float]) -> None:
    """It answered, and in the same message was down, served nothing, and somebody was to look for its process."""
    prometheus, now = dead_server
    incident = about(now, alertname="TritonServerDown", instance="c")
    texts = {"summary": "c is down", "description": "Its process has ended.", "action": "Check the process."}
    lead = incident.lead.model_copy(update={"annotations": texts})
    known = serving(prometheus)(incident)
    incident = judged(incident.model_copy(update={"members": {"a": lead}}), known, now)
    shown = root(incident, Style(), now)
    ends = {"members": {"a": lead.model_copy(update={"ends_at": now})}, "closed_at": now}
    closed = incident.model_copy(update=ends)

    ended = incident.end_of_outage or 0.0
    assert now - 75 < ended <= now - 60
    title = "c did not answer: nothing served slow"
    assert f"🟡 {title}; answered again at {clock(ended)}" == headline(incident)
    assert f"🟢 Resolved: {title}" == headline(closed)
    lines = f"2 of 3 answer\nslow is loading on c since {clock(now - 7200)}: nothing serves it now"
    assert lines == dict(known.facts)["Servers"]
    assert "process" not in str(shown.blocks)
    # The alert fires on for a minute or two.
    assert ended == closed.ended_at


def test_a_server_whose_exporter_is_silent_may_serve(dead_server: tuple[Prometheus, float]) -> None:
    """The page said that nothing served a model which that server served: only its exporter had died."""
    prometheus, _ = dead_server
    (server,) = (each for each in broken_now(prometheus).down if each.instance == "a")

    assert [
        "nothing serves broken now",
        "ranker: still served by 1 of 3 servers, of 1 nothing is known",
        "whether batcher is served is unknown: of 1 of 2 servers nothing is known",
    ] == sorted(served_lines(server.models))
    page = about(time.time(), alertname="TritonModelDownEverywhere", model="batcher", severity="critical")
    title = serving(prometheus)(page).title or ""
    assert title.startswith("No server that is known serves batcher: nothing is known about d since ")
    del server.models["broken"]
    assert server.words.endswith(": whether batcher is served is unknown")


@pytest.mark.parametrize("own", [{"cluster": "eu"}, {}])
@pytest.mark.parametrize("alert", ["TritonModelDownEverywhere", Readiness.burn_alert])
@pytest.mark.parametrize("other", ["silent", "dead", "serves"])
def test_a_message_is_of_its_cluster_alone(
    tmp_path: Path, other: str, alert: str, own: dict[str, str]
) -> None:
    """Pods of two clusters have the same names. Where that of the other one was dead, nobody was called about a page
    that failed again; where it served the model, all was over. An external label of Prometheus is in none of its series.
    """
    now = time.time() // STEP * STEP
    end = -60 if other == "silent" else 300
    made: list[Series] = []
    for cluster, live, ready, up in (
        (own, [(-1800, 1)], [(-1800, 1), (-700, 0), (-480, 1), (-60, 0)], 1),
        ({"cluster": "us"}, [(-1800, 1), (-300, int(other != "dead")), (end, None)], None, 0),
    ):
        server = {**cluster, "instance": "triton-0"}
        labels = {**server, "model": "ranker", "version": "1"}
        made += [
            ("up", {**server, "job": "triton-exporter"}, steps(now, (-1800, 1), (end, up))),
            (str(state.SERVER_LIVE), server, steps(now, *live)),
            (str(state.MODEL_EXPECTED), {**server, "model": "ranker"}, steps(now, *live[:1])),
            (
                str(state.MODEL_LOAD_FAILURES),
                {**labels, "reason": f"in {cluster.get('cluster')}"},
                flat(now, 1),
            ),
            (str(state.MODEL_READY), labels, steps(now, *(ready or live))),
        ]
    since = steps(now, (-700, now - 700), (-480, None), (-60, now - 60))
    lost = {**own, "instance": "triton-0", "model": "ranker", "version": "1"}
    made.append((str(state.MODEL_NOT_READY_SINCE), lost, since))
    page = about(now, alertname=alert, model="ranker", cluster="eu", severity="critical")
    over = Evidence(at=now - 75, faults=over_since(page, now - 480))
    page = page.model_copy(update={"evidence": over})
    with history.serve(history.openmetrics(made), tmp_path / "p", flags=FRESH) as url:
        known = serving(Prometheus(Access(url)))(page)
        cause = counted_cause(Prometheus(Access(url)))(page).cause

    assert cause == ("" if alert == Readiness.burn_alert else f"in {own.get('cluster')}")
    assert {key_of(page.lead.labels): Fault(since=now - 60)} == known.faults
    assert ("", 1, "no server has ranker ready") == (
        known.dead_server,
        known.servers_not_ready,
        known.not_served,
    )


def test_of_a_server_whose_exporter_is_dead_nothing_is_known(dead_server: tuple[Prometheus, float]) -> None:
    """Before it died the model was ready again: what was over stays so, and what failed is not known."""
    prometheus, now = dead_server
    labels = {
        "slo": "readiness",
        "indicator": "readiness",
        "model": "dark",
        "alertname": Readiness.burn_alert,
    }
    incident = about(now, **labels)
    before = SourceFacts(
        title="dark was not ready",
        faults=over_since(incident, now - 700, "ready again"),
        reasons={"dark": "No such file: a.json"},
    )

    def asked(then: SourceFacts) -> Incident:
        was = incident.model_copy(update={"evidence": Evidence.of(then, now - 60)})
        known = then.and_newer(from_prometheus(prometheus)(was)).and_newer(serving(prometheus)(was))
        return was.model_copy(update={"evidence": Evidence.of(known, now)})

    shown = root(asked(before), Style(), now)
    nothing = f"nothing is known about d since {clock(now - 600)}: the exporter does not answer Prometheus"

    assert shown.text.startswith("🟡 dark was not ready: missing file; ready again · ")
    assert {"Servers": nothing} == asked(before).facts
    assert f"🟠 dark: {nothing}" == headline(asked(before.model_copy(update={"faults": {}})))
    assert f"ready on 1 of 2\n{nothing}" == ready_text({"a": True}, {"d": Sample({}, now - 600, now)})
    # An alert that ends then has not recovered; and a is not one of the three that are known.
    for labels in ({"model": "dark"}, {"alertname": "TritonServerNotReady", "instance": "d"}):
        assert nothing == serving(prometheus)(about(now, **labels)).not_served
    shown_of_a = dict(serving(prometheus)(about(now, alertname="TritonServerDown", instance="a")).facts)
    assert ["1 of 4 down: a", nothing] == [shown_of_a["Servers"].split("\n")[at] for at in (0, -1)]


def test_the_page_about_a_model_without_an_exporter_is_past_once_one_answers(
    dead_server: tuple[Prometheus, float],
) -> None:
    """It ended with "(and ocr)", as if that had not answered, too."""
    prometheus, now = dead_server
    incident = about(now, alertname="TritonModelExporterDown", instance="b", model="ranker")
    known, lead = serving(prometheus)(incident), incident.lead
    other = lead.model_copy(update={"labels": lead.labels | {"model": "ocr"}})
    known = known.model_copy(
        update={"faults": dict.fromkeys(map(key_of, (lead.labels, other.labels)), *known.faults.values())}
    )
    members = {"a": lead, "b": other}
    shown = incident.model_copy(update={"evidence": Evidence.of(known, now), "members": members})

    assert headline(shown).endswith("The exporter of Triton b did not answer Prometheus; answered again")


FRESH = ("--query.lookback-delta=16s",)
"""Backfilled series have no stale markers: so each ends with its last sample."""


def steps(now: float, *values: tuple[float, float | None]) -> list[tuple[float, float]]:
    """Return a value from each second from now to the next; None for no samples."""
    ends = [*(at for at, _ in values[1:]), 315.0]
    return [
        point
        for (at, value), end in zip(values, ends, strict=True)
        if value is not None
        for point in flat(now, value, at, end - STEP)
    ]


def test_a_load_that_was_repaired_stays_so_when_its_server_dies(tmp_path: Path) -> None:
    """It became the cause of that, with its end, and its exception was lost; a is dead now, b answers again."""
    now = time.time() // STEP * STEP
    series = []
    for server, back in (("a", 0.0), ("b", 1.0)):
        labels = {"instance": server, "model": f"of_{server}"}
        series += [
            (str(state.SERVER_LIVE), {"instance": server}, steps(now, (-1200, 1), (-120, 0), (-45, back))),
            (str(state.MODEL_EXPECTED), labels, steps(now, (-1200, 1))),
            (
                str(state.MODEL_READY),
                labels | {"version": "1"},
                steps(now, (-1200, 1), (-690, 0), (-390, 1), (-120, 0), (-45, back)),
            ),
            (
                str(state.MODEL_NOT_READY_SINCE),
                labels | {"version": "1"},
                steps(
                    now,
                    (-690, now - 690),
                    (-390, None),
                    (-120, now - 120),
                    (-60, None if back else now - 120),
                ),
            ),
        ]
    error = "RuntimeError: vocab.txt: checksum mismatch"
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        for server in "ab":
            model = f"of_{server}"
            incident = about(now, alertname="TritonModelLoadFailed", model=model, instance=server)
            before = SourceFacts(cause="python_error", reasons={f"{model} v1": f"Internal: {error}"})
            known = before.and_newer(serving(Prometheus(Access(url)))(incident))
            incident = judged(incident, known, now)
            ended = incident.members["a"].model_copy(update={"ends_at": now})
            closed = incident.model_copy(update={"members": {"a": ended}, "closed_at": now})

            gone = Event(
                at=now, kind="resolved", severity="critical", count=1, alerts=("TritonModelDownEverywhere",)
            )

            # It said "Ended, not confirmed: no server serves it", of what was served before the server died.
            assert bool(known.not_served) == (server == "a")
            assert "🟢 resolved (page)" in reply(incident, (gone,)).text
            title = f"TritonModelLoadFailed: {model}: {error}"
            assert f"🟡 {title}; ready again at {clock(now - 390)}" == headline(incident)
            assert f"🟢 Resolved: {title}" == headline(closed)
            assert now - 405 < closed.ended_at <= now - 390


def test_the_end_of_a_server_is_known_when_its_exporter_dies_after_it(tmp_path: Path) -> None:
    """It had answered again for a minute: the message took the end of the alert for that of the fault."""
    now = time.time() // STEP * STEP
    exporter = {"instance": "c", "job": "triton-exporter"}
    series = [
        (str(state.SERVER_LIVE), {"instance": "c"}, steps(now, (-900, 1), (-405, 0), (-195, 1), (-75, None))),
        ("up", exporter, steps(now, (-900, 1), (-75, 0))),
        (str(state.MODEL_EXPECTED), {"instance": "c", "model": "solo"}, steps(now, (-900, 1), (-75, None))),
    ]
    incident = about(now, alertname="TritonServerDown", instance="c")
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        known = serving(Prometheus(Access(url)))(incident)
    incident = judged(incident, known, now)
    ended = incident.members["a"].model_copy(update={"ends_at": now})
    closed = incident.model_copy(update={"members": {"a": ended}, "closed_at": now})

    assert "🟢 Resolved: c did not answer: nothing served solo" == headline(closed)
    assert now - 215 < closed.ended_at <= now - 195
    assert "nothing is known about c" in dict(known.facts)["Servers"]


@pytest.mark.parametrize(
    ("alert", "others"),
    [
        ({"alertname": "TritonModelLoadFailed", "instance": "c"}, ["d"]),
        ({"alertname": "TritonModelLoadFailed", "instance": "c"}, []),
        ({"alertname": Readiness.burn_alert, "severity": "critical", "indicator": "readiness"}, []),
        ({"alertname": Readiness.burn_alert, "severity": "critical", "indicator": "readiness"}, ["d"]),
        ({"alertname": "TritonModelDownEverywhere", "severity": "critical"}, []),
    ],
)
def test_what_was_over_does_not_fail_again_where_its_exporter_dies(
    tmp_path: Path, alert: dict[str, str], others: list[str]
) -> None:
    """The channel was called: "It fails again", with the first step of then. Every request was answered."""
    now = time.time() // STEP * STEP
    model = {"model": "solo", "version": "1"}
    series = [("up", {"instance": "c", "job": "triton-exporter"}, steps(now, (-900, 1), (-30, 0)))]
    for server, fault, end in (("c", -690.0, -30.0), *((other, -800.0, 300.0) for other in others)):
        of_model = {"instance": server, **model}
        ready = steps(now, (-900, 1), (fault, 0), (fault + 300, 1), (end, None))
        series += [
            (str(state.SERVER_LIVE), {"instance": server}, steps(now, (-900, 1), (end, None))),
            (str(state.MODEL_READY), of_model, ready),
            (
                str(state.MODEL_NOT_READY_SINCE),
                of_model,
                steps(now, (fault, now + fault), (fault + 300, None)),
            ),
        ]
    incident = about(now, **alert, **model)
    over = Evidence(at=now - 60, faults=over_since(incident, now - 390, "ready again"))
    before = incident.model_copy(update={"evidence": over})
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        known = serving(Prometheus(Access(url)))(before)
    after, events = judge([key_of(incident.lead.labels)], Evidence.of(known, now), before)

    assert after.is_over
    assert () == events
    assert "nothing is known about c" in dict(known.facts)["Servers"]


@pytest.mark.parametrize("alert", [Readiness.burn_alert, "TritonModelDownEverywhere"])
def test_a_model_that_loads_after_its_server_died_does_not_fail_since_then(
    tmp_path: Path, alert: str
) -> None:
    """A quarter of a minute after its server was live again somebody was called, about a model not served since its
    server died, of which the server's own page had told."""
    now = time.time() // STEP * STEP
    of_model = {"instance": "b", "model": "solo", "version": "1"}
    since = steps(now, (-700, now - 700), (-480, None), (-270, now - 270))
    series = [
        (str(state.SERVER_LIVE), {"instance": "b"}, steps(now, (-1800, 1), (-270, 0), (-60, 1))),
        (str(state.SERVER_LIVE), {"instance": "other"}, steps(now, (-1800, 1), (-30, 0), (-15, 1))),
        (str(state.MODEL_EXPECTED), {"instance": "b", "model": "solo"}, flat(now, 1, -1800, 300)),
        (str(state.MODEL_READY), of_model, steps(now, (-1800, 1), (-700, 0), (-480, 1), (-270, 0))),
        (str(state.MODEL_NOT_READY_SINCE), of_model, since),
    ]
    incident = about(now, alertname=alert, model="solo", severity="critical")
    over = Evidence(at=now - 300, faults=over_since(incident, now - 480, "ready again"))
    incident = incident.model_copy(update={"evidence": over})
    said = []
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        for at in (now - 150, now - 48, now):
            known = Evidence.of(serving(At(Access(url), at))(incident), at, about=incident.led_by)
            incident, events = judge([key_of(incident.lead.labels)], known, incident)
            said.append([event.kind for event in events])

    assert [[], [], ["raised"]] == said
    assert now - 90 < (incident.again_since or 0.0) <= now - 60


def test_that_no_server_served_a_model_is_past_once_one_does(tmp_path: Path) -> None:
    """ "No server serves model lang; ready again since" stood for two minutes."""
    now = time.time() // STEP * STEP
    of_model = {"instance": "c", "model": "solo", "version": "1"}
    since = steps(now + 1, (-690, now - 690), (-390, None))
    series = [
        (str(state.SERVER_LIVE), {"instance": "c"}, flat(now, 1)),
        (str(state.MODEL_READY), of_model, steps(now + 1, (-900, 1), (-690, 0), (-390, 1))),
        (str(state.MODEL_NOT_READY_SINCE), of_model, since),
    ]
    incident = about(now, alertname="TritonModelDownEverywhere", model="solo")
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        during = judged(incident, serving(Prometheus(Access(url)))(incident), now)
        first = serving(At(Access(url), now - 387))(incident)
    ended = incident.lead.model_copy(update={"ends_at": now})
    closed = during.model_copy(update={"members": {"a": ended}, "closed_at": now})

    assert f"🟡 No server served model solo; ready again at {clock(now - 390)}" == headline(during)
    assert "🟢 Resolved: No server served model solo" == headline(closed)
    # At once it was the scrape before, and half a minute later another minute.
    (at_first,) = first.faults.values()
    assert abs((at_first.since or 0.0) - (during.fault(incident.lead).since or 0.0)) < 5


@pytest.mark.parametrize(("ended", "over"), [(-315, True), (-900, False), (0, False)])
def test_a_repaired_load_failure_is_over_in_the_title(tmp_path: Path, ended: float, over: bool) -> None:
    """Its alert fires for a quarter of an hour more. Where its old copy was ready when it fired, nothing is over."""
    now = time.time() // STEP * STEP
    labels = {"instance": "a", "model": "broken", "version": "1"}
    # Backfilled series have no stale marker: one that ended is seen for five minutes more.
    series = [
        (str(state.SERVER_LIVE), {"instance": "a"}, flat(now, 1.0, -1200)),
        (str(state.MODEL_READY), labels, flat(now, 1.0, -600)),
        (str(state.MODEL_NOT_READY_SINCE), labels, flat(now, now - 2000, -1200, ended)),
    ]
    incident = about(now, alertname="TritonModelLoadFailed", model="broken", instance="a")
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        known = serving(Prometheus(Access(url)))(incident)
    incident = judged(incident, known, now)

    words = f"; ready again at {datetime.fromtimestamp(now + ended, UTC):%H:%M} UTC"
    assert (over, over) == (headline(incident).endswith(words), "ready again" in headline(incident))


def test_an_unloaded_model_is_over_once_it_is_loaded_again(tmp_path: Path) -> None:
    """Five minutes after it was, the message still said that no version is ready, and what to do about it; and before,
    the web page and `status` that nothing is broken."""
    now = time.time() // STEP * STEP
    series = [(str(state.SERVER_LIVE), {"instance": server}, steps(now, (-1200, 1))) for server in "ab"]
    for instance, model, version, back in (
        ("a", "gone", "1", 0),
        ("a", "back", "1", 0),
        ("a", "back", "2", 1),
        ("a", "beside", "1", 0),
        ("b", "beside", "1", 1),
    ):
        labels = {"instance": instance, "model": model, "version": version}
        before = 1 if instance == "b" else 0
        ready = steps(now, (-1200, 1), (-720, before), (-390, back))
        unloaded = [(at, 1.0 - value) for at, value in ready]
        series += [
            (str(state.MODEL_READY), labels, ready),
            (str(state.MODEL_STATE), labels | {"state": "unloaded"}, unloaded),
            (str(state.MODEL_EXPECTED), labels, ready),
            (str(triton.REQUEST_SUCCESS), labels, [(now - 1200 + at, at) for at in range(0, 480, STEP)]),
        ]
    texts = {
        "summary": "It was unloaded while it was in use",
        "description": "None is ready.",
        "action": "Ask.",
    }
    seen = {}
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        for model in ("gone", "back", "beside"):
            incident = about(now, alertname="TritonModelUnloadedInUse", model=model, instance="a")
            lead = incident.lead.model_copy(update={"annotations": texts})
            incident = incident.model_copy(update={"members": {"a": lead}})
            known = serving(Prometheus(Access(url)))(incident)
            seen[model] = judged(incident, known, now)
        faults = broken_now(Prometheus(Access(url))).faults()
    ended = seen["back"].lead.model_copy(update={"ends_at": now})
    closed = seen["back"].model_copy(update={"members": {"a": ended}, "closed_at": now})

    assert [
        f"🟠 {texts['summary']}; nothing serves it",
        f"🟡 {texts['summary']}; ready again at {clock(now - 390)}",
        f"🟠 {texts['summary']}",
    ] == [headline(incident) for incident in seen.values()]
    shown = {model: str(root(incident, Style(), now).blocks) for model, incident in seen.items()}
    assert [True, False, True] == ["None is ready" in text and "Ask" in text for text in shown.values()]
    assert now - 405 < closed.ended_at <= now - 390
    assert [
        ("gone was unloaded while it was in use on a: nothing serves it now", True),
        ("beside was unloaded while it was in use on a: still served by 1 of 2 servers", False),
    ] == [(fault.text, fault.urgent) for fault in faults]


def test_a_model_whose_requests_pile_up_is_broken(tmp_path: Path) -> None:
    """One that hung was told once its requests were answered; till then the web page said that nothing is broken."""
    now = time.time() // STEP * STEP
    series = []
    for model, cluster, wait in (("hangs", "eu", 297.0), ("hangs", "us", 297.0), ("over", "eu", 3.0)):
        labels = {"cluster": cluster, "instance": "a", "model": model, "version": "1"}
        series.append((str(triton.PENDING_REQUESTS), labels, flat(now, wait, -60)))
        if cluster == "eu":
            fires = {"alertname": "TritonQueueBacklog", "alertstate": "firing", **labels}
            series.append((names.ALERTS, fires, flat(now, 1.0, -60)))
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        broken = broken_now(Prometheus(Access(url)))

    assert ["Requests for hangs pile up on a: 297 wait"] == [each.text for each in broken.faults()]
    assert [] == broken.faults("over")


def test_the_title_of_a_failed_load_says_that_nothing_serves_and_when_it_is_ready_again(
    tmp_path: Path,
) -> None:
    """It only said "failed to load"; and Slack cut it at 150 characters, in the middle of "ready again since"."""
    now = time.time() // STEP * STEP
    series = []
    for model, spans in (
        ("tagger", {"a": 0}),
        ("back", {"a": 1}),
        ("beside", {"a": 0, "b": 1}),
        ("unclear", {"a": 0, "d": None}),
    ):
        for server, last in spans.items():
            labels = {"instance": server, "model": model, "version": "1"}
            ready = 0 if server == "a" else 1
            series.append((str(state.MODEL_READY), labels, steps(now, (-1200, ready), (-390, last))))
            if server == "a":
                since = steps(now, (-1200, now - 1200), (-390, None if last else now - 1200))
                series.append((str(state.MODEL_NOT_READY_SINCE), labels, since))
    for server in "ab":
        series.append((str(state.SERVER_LIVE), {"instance": server}, steps(now, (-1200, 1))))
    series.append(("up", {"instance": "d", "job": "triton-exporter"}, steps(now, (-1200, 1), (-390, 0))))
    error = "RuntimeError: cannot read weights s3://prod-weights/tagger/v7.bin: 403 Forbidden"
    burn = Member(
        labels={"slo": "readiness", "indicator": "readiness", "alertname": Readiness.burn_alert},
        starts_at=now - 60,
    )
    seen = {}
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        prometheus = Prometheus(Access(url))
        for model in ("tagger", "back", "beside", "unclear"):
            incident = about(now, alertname=LOAD_FAILED, model=model, instance="a")
            texts = {"summary": f"Model {model} failed to load on 127.0.0.1:20100"}
            lead = incident.lead.model_copy(update={"annotations": texts})
            also = burn.model_copy(update={"labels": burn.labels | {"model": model}})
            incident = incident.model_copy(update={"members": {"a": lead, "b": also}})
            known = SourceFacts(cause="python_error", reasons={f"{model} v1": f"Internal: {error}"})
            for source in (from_prometheus, serving):
                known = known.and_newer(source(prometheus)(incident))
            seen[model] = judged(incident, known, now)

    shown = {
        model: root(incident, Style(), now).blocks[0]["text"]["text"] for model, incident in seen.items()
    }
    failed = "failed to load on 127.0.0.1:20100"
    assert f"🟠 Model tagger {failed}; nothing serves it: {error}"[:147] == shown["tagger"][:147]
    assert shown["back"].startswith(f"🟡 Model back {failed}: RuntimeError: cannot read")
    assert shown["back"].endswith(f" …; ready again at {clock(now - 390)}")
    assert f"🟠 Model beside {failed}: {error}" == shown["beside"]
    assert f"🟠 Model unclear {failed}: {error}" == shown["unclear"]
    assert error in root(seen["back"], Style(), now).text
    down = Member(labels={"alertname": "TritonModelDownEverywhere", "model": "beside"}, starts_at=now)
    members = {**seen["beside"].members, "c": down}
    alone = seen["beside"].model_copy(update={"members": members, "evidence": None})
    assert f"🟠 Model beside {failed}; nothing serves it" == headline(alone)


def test_of_a_failed_reload_it_is_said_that_the_old_copy_serves(tmp_path: Path) -> None:
    """Requests do not fail; its neighbour failed to load, was loaded again, and has no old copy."""
    now = time.time() // STEP * STEP
    series = []
    for model, reloads in (("hot", 1), ("cold", 0)):
        labels = {"instance": "a", "model": model}
        series += [
            (str(state.MODEL_READY), labels | {"version": "1"}, steps(now, (-1200, 1))),
            (
                str(state.MODEL_RELOAD_FAILURES),
                labels | {"reason": "python_error"},
                steps(now, (-1200, 0), (-615, reloads)),
            ),
        ]
    with history.serve(history.openmetrics(series), tmp_path / "p", flags=FRESH) as url:
        prometheus = Prometheus(Access(url))
        incidents = (about(now, alertname=LOAD_FAILED, model=m, instance="a") for m in ("hot", "cold"))
        titles = [headline(judged(each, serving(prometheus)(each), now)) for each in incidents]

    assert [f"🟠 {LOAD_FAILED}: hot; what was loaded before served on", f"🟠 {LOAD_FAILED}: cold"] == titles


@pytest.mark.parametrize(
    ("labels", "facts", "not_ready", "not_served"),
    [
        ({"model": "ranker"}, {"Servers": "ready on 2 of 3\nnot on a"}, 1, ""),
        # Another version serves.
        ({"model": "ranker", "version": "3"}, {"Servers": "not ready on its only server: a"}, 1, ""),
        ({"model": "ranker", "version": "2"}, {"Servers": "ready on 2 of 3\nnot on a"}, 1, ""),
        ({"model": "ranker", "instance": "a"}, {"Servers": "ready on 2 of 3\nnot on a"}, 1, ""),
        ({"model": "dead"}, {"Servers": "not ready on its only server: a"}, 1, "no server has dead ready"),
        ({"model": "gone"}, {}, None, "no server reports gone any more"),
        ({"model": "unknown"}, {}, None, None),
        ({"instance": "a"}, {"Servers": "2 of 3 down: a, b"}, None, "a does not answer"),
        ({"instance": "c"}, {}, None, ""),
        ({"instance": "removed"}, {}, None, "nothing reports on removed any more"),
        ({"instance": "prometheus:9090"}, {}, None, ""),
        ({"alertname": "TritonAllServersDown", "job": "pods"}, {"Servers": "2 of 2 down: a, b"}, None, None),
    ],
)
def test_an_alert_shows_where_its_model_is_ready_or_which_servers_are_down(
    made_prometheus: tuple[Prometheus, float],
    labels: dict[str, str],
    facts: dict[str, str],
    not_ready: int | None,
    not_served: str | None,
) -> None:
    """On-call needs the server with the failure, whether others serve meanwhile, and whether an end is a recovery."""
    prometheus, now = made_prometheus

    known = serving(prometheus)(about(now, **labels))

    assert (facts, not_ready, not_served) == (dict(known.facts), known.servers_not_ready, known.not_served)


@pytest.mark.parametrize(
    ("ready", "line"),
    [
        ({"a": True}, "ready on its only server: a"),
        ({"b": True, "a": True}, "ready on all 2: a, b"),
        (dict.fromkeys("edcba", True), "ready on all 5: a, b, c and 2 more"),
        (dict.fromkeys("edcba", False), "ready on 0 of 5\nnot on a, b, c and 2 more"),
    ],
)
def test_servers_are_named_as_far_as_a_line_goes(ready: dict[str, bool], line: str) -> None:
    """Servers that are not ready are named first."""
    assert line == ready_text(ready, {})
