"""Test the generated rules on real promtools: incidents of every kind of indicator, and counters as they really
are.

A server is a list of (requests, failures) between two scrapes; None is a scrape that failed. Nothing here knows the
rules: the truth is what the servers' counters showed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from support.promtool import alerting_groups, at_own_interval, evaluated, promtool, rule_file
from support.tools import newest, promtools, shared_out
from triton_exporter.catalogue import probe, state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

pytestmark = pytest.mark.real

STEP = 30
"""Seconds between evaluations, and between scrapes where nothing else is said."""
MINUTE = 2
"""Steps of a minute."""
Traffic = Sequence[tuple[int, int] | None]


FIRING = 'ALERTS{alertstate="firing"}'


@dataclass
class World:
    """Series of promtool by name, and how long they are."""

    series: dict[str, list[str]] = field(default_factory=dict)
    steps: int = 0

    def put(self, metric: object, values: Sequence[float | None], **labels: str) -> None:
        """Add a series; None is no sample."""
        inside = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
        shown = [
            "_" if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}" for value in values
        ]
        self.series[f"{metric}{{{inside}}}"] = shown
        self.steps = max(self.steps, len(values))

    def written(self) -> dict[str, str]:
        """Return the values of each series as promtool reads them."""
        return {name: " ".join(values) for name, values in self.series.items()}


def counted(traffic: Traffic, every: int = 0, start: int = 0) -> list[tuple[int, int] | None]:
    """Return counters of (all, failed) after each step; they begin again each so many steps, and absent for
    None."""
    total = failed = start
    shown: list[tuple[int, int] | None] = []
    for step, events in enumerate(traffic):
        if every and step % every == 0:
            total = failed = 0
        if events is None:
            shown.append(None)
            continue
        total, failed = total + events[0], failed + events[1]
        shown.append((total, failed))
    return shown


def seen_truth(servers: Iterable[Sequence[tuple[int, int] | None]]) -> tuple[int, int]:
    """Return (all, failed) events that the samples of some servers show: each growth once, and a restart's
    value."""
    total = failed = 0
    for server in servers:
        samples = [sample for sample in server if sample is not None]
        for before, now in itertools.pairwise(samples):
            total += now[0] - before[0] if now[0] >= before[0] else now[0]
            failed += now[1] - before[1] if now[1] >= before[1] else now[1]
    return total, failed


def triton_server(
    world: World, model: str, counters: Sequence[tuple[int, int] | None], instance: str = "a"
) -> None:
    """Add what Triton exports of its requests."""
    labels = {"job": "triton", "instance": instance, "model": model, "version": "1"}
    good = [None if c is None else c[0] - c[1] for c in counters]
    bad = [None if c is None else c[1] for c in counters]
    world.put(triton.REQUEST_SUCCESS, good, **labels)
    world.put(triton.REQUEST_FAILURE, bad, **labels, reason="BACKEND")
    world.put(
        triton.REQUEST_FAILURE, [None if c is None else 0 for c in counters], **labels, reason="CANCELED"
    )


def histogram(metric: object, le: str) -> Callable[[World, str, Sequence[tuple[int, int] | None]], None]:
    """Return how a histogram shows slow requests as failures."""

    def put(world: World, model: str, counters: Sequence[tuple[int, int] | None]) -> None:
        labels = {"job": "exporter", "instance": "a", "model": model, "version": "1"}
        every = [None if c is None else c[0] for c in counters]
        fast = [None if c is None else c[0] - c[1] for c in counters]
        world.put(f"{metric}_count", every, **labels)
        world.put(f"{metric}_bucket", every, **labels, le="+Inf")
        world.put(f"{metric}_bucket", fast, **labels, le=le)

    return put


def labelled(metric: str, bad: Mapping[str, str], good: Mapping[str, str]) -> Callable[..., None]:
    """Return how a counter with a status shows failures; failed ones have no series before the first."""

    def put(world: World, model: str, counters: Sequence[tuple[int, int] | None]) -> None:
        name = {key: value.replace("MODEL", model) for key, value in good.items()}
        world.put(
            metric, [None if c is None else c[0] - c[1] for c in counters], job="g", instance="a", **name
        )
        name = {key: value.replace("MODEL", model) for key, value in {**good, **bad}.items()}
        world.put(metric, [c[1] if c and c[1] else None for c in counters], job="g", instance="a", **name)

    return put


def readiness(world: World, model: str, counters: Sequence[tuple[int, int] | None]) -> None:
    """Show a step with failures as one in which no server is ready."""
    labels = {"job": "exporter", "instance": "a", "model": model}
    failed = [0] + [
        now[1] - before[1] if now and before else 0 for before, now in itertools.pairwise(counters)
    ]
    ready = [0 if bad else 1 for bad in failed]
    world.put(state.MODEL_READY, ready, **labels, version="1")
    world.put(state.MODEL_STATE, ready, **labels, version="1", state="ready")
    world.put(state.MODEL_STATE, [1 - one for one in ready], **labels, version="1", state="unavailable")
    world.put(state.MODEL_EXPECTED, [1 for _ in ready], **labels)


KINDS: Mapping[str, tuple[dict[str, object], Callable[..., None]]] = {
    "errors": ({"indicator": "errors", "target": "99.9%"}, triton_server),
    "latency": (
        {"indicator": {"kind": "latency", "threshold": "1s"}, "target": "99%"},
        histogram(state.REQUEST_DURATION, "1"),
    ),
    "queue": (
        {"indicator": {"kind": "queue", "threshold": "100ms"}, "target": "99%"},
        histogram(state.QUEUE_DURATION, "0.1"),
    ),
    "first": (
        {"indicator": {"kind": "first_response", "threshold": "500ms"}, "target": "99%"},
        histogram(triton.FIRST_RESPONSE_MS, "500"),
    ),
    "probe": (
        {"indicator": "probe", "target": "99%"},
        labelled(
            str(probe.REQUESTS),
            {"result": "timeout"},
            {"result": "success", "model": "MODEL", "version": "1"},
        ),
    ),
    "envoy": (
        {"indicator": {"kind": "errors", "source": "envoy"}, "target": "99.9%"},
        labelled(
            "envoy_cluster_upstream_rq",
            {"envoy_response_code": "503"},
            {"envoy_response_code": "200", "envoy_cluster_name": "MODEL"},
        ),
    ),
    "envoy-latency": (
        {"indicator": {"kind": "latency", "source": "envoy", "threshold": "1s"}, "target": "99%"},
        lambda world, model, counters: _envoy_histogram(world, model, counters),
    ),
    "custom": (
        {
            "indicator": {"kind": "custom", "error": 'my_total{code=~"5.."}', "total": "my_total"},
            "target": "99.9%",
            "group_by": ["model"],
        },
        labelled("my_total", {"code": "500"}, {"code": "200", "model": "MODEL", "path": "/infer"}),
    ),
    "readiness": ({"indicator": "readiness", "target": "99.9%"}, readiness),
}


def _envoy_histogram(world: World, model: str, counters: Sequence[tuple[int, int] | None]) -> None:
    labels = {"job": "g", "instance": "a", "envoy_cluster_name": model}
    every = [None if c is None else c[0] for c in counters]
    fast = [None if c is None else c[0] - c[1] for c in counters]
    world.put("envoy_cluster_upstream_rq_time_count", every, **labels)
    world.put("envoy_cluster_upstream_rq_time_bucket", every, **labels, le="+Inf")
    world.put("envoy_cluster_upstream_rq_time_bucket", fast, **labels, le="1000")


def objective(kind: str, **more: object) -> Objective:
    """Return the objective of a kind, which is named after it."""
    return Objective.model_validate({"name": kind, **KINDS[kind][0], **more})


@dataclass(frozen=True)
class Played:
    """What fired at each minute, by objective, tier and model; and the answers to more questions."""

    firing: Mapping[tuple[str, str, str], Sequence[int]]
    answers: Sequence[Mapping[str, float]]

    def minutes(self, slo: str, tier: str, model: str = "m") -> Sequence[int]:
        """Return the minutes in which an alert fired."""
        return self.firing.get((slo, tier, model), ())


def play(
    tool: Path, folder: Path, objectives: Sequence[Objective], world: World, asked: Sequence[str] = ()
) -> Played:
    """Play the world on the generated rules; `asked` is evaluated at the end, by model."""
    rules: dict[str, list[dict[str, object]]] = {}
    for artifact in artifacts(objectives, Options()):
        for group in alerting_groups(artifact.text, names.COUNTER):
            # Readiness is evaluated every 30 s anyhow.
            slow = {key: value for key, value in group.items() if key != "interval" or value == "4m"}
            rules[group["name"]] = at_own_interval(slow, STEP)
    minutes, end = range(world.steps // MINUTE), (world.steps - 1.0) * STEP
    questions = [(FIRING, 60.0 * minute) for minute in minutes] + [(query, end) for query in asked]
    answers = evaluated(
        tool, folder, rule_file(rules), world.written(), questions, interval=STEP, evaluation=STEP
    )
    firing: dict[tuple[str, str, str], list[int]] = {}
    for minute, answer in zip(minutes, answers, strict=False):
        for labels, _ in answer:
            tier = labels.get("tier") or labels["alertname"]
            firing.setdefault((labels.get("slo", ""), tier, labels.get("model", "")), []).append(minute)
    values = [
        {labels.get("model", ""): value for labels, value in answer} for answer in answers[len(minutes) :]
    ]
    return Played(firing, values)


def incident(before: int, length: int, after: int, share: float, rate: int = 100) -> list[tuple[int, int]]:
    """Return minutes of good traffic, of failures, and of good traffic again, in requests a step."""
    bad = (rate, round(rate * share))
    return [(rate, 0)] * (before * MINUTE) + [bad] * (length * MINUTE) + [(rate, 0)] * (after * MINUTE)


def healthy(allowed: float, steps: int) -> list[tuple[int, int]]:
    """Return traffic of which half of what may fail does."""
    each = round(2 / allowed)
    return [(100, 1 if step * 100 % each < 100 else 0) for step in range(steps)]


@pytest.mark.parametrize(("tool", "kinds"), shared_out(list(KINDS)).items(), ids=str)
def test_an_alert_of_every_kind_fires_and_ends(tool: Path, kinds: Sequence[str], tmp_path: Path) -> None:
    """Half of the events fail for half an hour: both pages and both tickets of each kind; pages end within 12
    minutes. A model beside it, of which half of what may fail does, raises nothing."""
    world = World()
    for kind in kinds:
        config, put = KINDS[kind]
        put(world, f"m-{kind}", counted(incident(30, 30, 20, 0.5)))
        allowed = 1 - float(str(config["target"]).rstrip("%")) / 100
        put(
            world,
            f"healthy-{kind}",
            counted([(100, 0)] * 160 if kind == "readiness" else healthy(allowed, 160)),
        )

    played = play(tool, tmp_path, [objective(kind) for kind in kinds], world)

    for kind in kinds:
        tiers = ["page_fast", "ticket_fast", "ticket_slow"] + (["page_slow"] if kind != "readiness" else [])
        for tier in tiers:
            minutes = played.minutes(kind, tier, f"m-{kind}")
            assert minutes, (kind, tier)
            if "page" in tier:
                assert 30 <= minutes[0] <= 50, (kind, tier, minutes[0])
                assert minutes[-1] <= 72, (kind, tier, minutes[-1])
                assert len(minutes) == minutes[-1] - minutes[0] + 1, (kind, tier, "not in one piece")
    assert {(slo, model) for slo, _, model in played.firing} == {(kind, f"m-{kind}") for kind in kinds}


def _thinned(
    counters: Sequence[tuple[int, int] | None], every: int, phase: int
) -> list[tuple[int, int] | None]:
    return [c if step % every == phase else None for step, c in enumerate(counters)]


def _plain(world: World, model: str, traffic: Traffic) -> list[list[tuple[int, int] | None]]:
    servers = [counted(traffic, start=1000)]
    triton_server(world, model, servers[0])
    return servers


def _scraped_every_60_s(world: World, model: str, traffic: Traffic) -> list[list[tuple[int, int] | None]]:
    servers = [_thinned(counted(traffic), 2, 1)]
    triton_server(world, model, servers[0])
    return servers


def _scraped_every_2_min(world: World, model: str, traffic: Traffic) -> list[list[tuple[int, int] | None]]:
    servers = [_thinned(counted(traffic), 4, 3)]
    triton_server(world, model, servers[0])
    return servers


def _counters_begin_again_every_7_min(
    world: World, model: str, traffic: Traffic
) -> list[list[tuple[int, int] | None]]:
    servers = [counted(traffic, every=14)]
    triton_server(world, model, servers[0])
    return servers


def _samples_missing_for_240_s(
    world: World, model: str, traffic: Traffic
) -> list[list[tuple[int, int] | None]]:
    servers = [[c if step % 40 < 32 else None for step, c in enumerate(counted(traffic))]]
    triton_server(world, model, servers[0])
    return servers


def _pods_renamed_every_10_min(
    world: World, model: str, traffic: Traffic
) -> list[list[tuple[int, int] | None]]:
    """Each pod is known for a minute before it takes traffic, and gone afterwards."""
    servers = []
    for number, begin in enumerate(range(0, len(traffic), 20)):
        own = [
            events if begin <= step < begin + 20 else (0, 0) if begin - 2 <= step < begin else None
            for step, events in enumerate(traffic)
        ]
        servers.append(counted(own))
        triton_server(world, model, servers[-1], f"pod-{number}")
    return servers


def _three_servers_one_joins_with_a_history(
    world: World, model: str, traffic: Traffic
) -> list[list[tuple[int, int] | None]]:
    late: Traffic = [None if step < 40 else events for step, events in enumerate(traffic)]
    servers = [counted(traffic), counted(traffic), counted(late, start=5000)]
    for number, server in enumerate(servers):
        triton_server(world, model, server, f"s{number}")
    return servers


WORLDS: Mapping[str, Callable[[World, str, Traffic], list[list[tuple[int, int] | None]]]] = {
    "plain": _plain,
    "scraped_every_60_s": _scraped_every_60_s,
    "scraped_every_2_min": _scraped_every_2_min,
    "counters_begin_again_every_7_min": _counters_begin_again_every_7_min,
    "samples_missing_for_240_s": _samples_missing_for_240_s,
    "pods_renamed_every_10_min": _pods_renamed_every_10_min,
    "three_servers_one_joins_with_a_history": _three_servers_one_joins_with_a_history,
}


@pytest.mark.parametrize(("tool", "names_of_worlds"), shared_out(list(WORLDS)).items(), ids=str)
def test_every_event_is_counted_once_and_the_page_comes(
    tool: Path, names_of_worlds: Sequence[str], tmp_path: Path
) -> None:
    """5 % fail for an hour: one page, within half an hour of budget, and the counter has what the samples
    showed. Half of the budget fails: neither restarts nor renamed pods nor a server's history make it more. Of four
    requests in an hour that all fail none pages, of five one does."""
    world, truth, few = World(), {}, {"one": 1, "four": 4, "five": 5}
    for name in names_of_worlds:
        truth[name] = seen_truth(WORLDS[name](world, name, incident(30, 60, 20, 0.05)))
        WORLDS[name](world, f"healthy-{name}", healthy(0.001, 220))
    for model, failures in few.items():
        rare = [step % 24 == 0 for step in range(220)]
        failed = [due and 96 <= step < 96 + 24 * failures for step, due in enumerate(rare)]
        triton_server(world, model, counted(list(zip(map(int, rare), map(int, failed), strict=True))))

    asked = [f'sum by (model) ({names.COUNTER}{{event="{event}"}})' for event in (names.TOTAL, names.ERROR)]
    played = play(tool, tmp_path, [objective("errors")], world, asked)

    for name, events in truth.items():
        for answer, true in zip(played.answers, events, strict=True):
            assert true * 0.98 <= answer[name] <= true * 1.001, (name, answer[name], true)
        pages = played.minutes("errors", "page_fast", name)
        assert pages, name
        assert 30 <= pages[0] <= 52, (name, pages[0])
        assert len(pages) == pages[-1] - pages[0] + 1, (name, "flaps")
        assert pages[-1] <= 90 + 14, (name, pages[-1])
    assert set(truth) == {model for _, _, model in played.firing} - few.keys()
    assert {"five"} == {model for _, tier, model in played.firing if "page" in tier} & few.keys()


def test_on_the_first_day_every_window_says_the_same(tmp_path: Path) -> None:
    """A model fails in its first three minutes, between two copies of its counter: no window misses a failure."""
    world = World()
    begins, minutes = 41, 23
    traffic: list[tuple[int, int] | None] = [None] * (begins * MINUTE)
    triton_server(world, "m", counted([*traffic, (100, 0), *incident(0, 3, minutes - 3, 0.5)]))

    windows = [names.sli_error(window) for window in ("1h", "6h", "1d", "3d", "30d")]
    asked = [*windows, f"(1 - {names.PERIOD_BUDGET_REMAINING}) * {names.ERROR_BUDGET_RATIO}"]
    played = play(promtools()[-1], tmp_path, [objective("errors")], world, asked)

    failed = 3 * MINUTE * 50 / (minutes * MINUTE * 100)
    for query, answer in zip(asked, played.answers, strict=True):
        # Long windows read a copy of the counter that is up to four minutes old.
        assert failed <= answer["m"] <= failed * minutes / (minutes - 4), (query, failed, answer)
    assert played.answers[-1] == pytest.approx(played.answers[0])


def test_a_group_that_is_gone_is_forgotten_with_its_last_event(tmp_path: Path) -> None:
    """Its beginning is known while any window has its events: a version that is retired has none after a month."""
    [group] = (
        group
        for artifact in artifacts([objective("errors")], Options())
        for group in alerting_groups(artifact.text, names.COUNTER_SINCE)
        if group.get("interval") == "4m"
    )
    rules = [rule for rule in group["rules"] if rule.get("record") == names.COUNTER_SINCE]
    labels = '{slo="errors", indicator="errors", model="m"'
    series = {
        f'{names.COUNTER}{labels}, event="total"}}': "0+1x30 stale",
        f"{names.ERROR_BUDGET_RATIO}{labels}}}": "0.001x120 stale",
    }
    asked = [(names.COUNTER_SINCE, hours * 3600.0) for hours in (1, 25, 27)]
    answers = evaluated(
        promtools()[-1], tmp_path, rule_file({"since": rules}), series, asked, interval=60, evaluation=240
    )
    assert [[0.0], [0.0], []] == [[value for _, value in answer] for answer in answers]


def test_excluded_time_counts_for_nothing(tmp_path: Path) -> None:
    """All requests of a planned hour fail: no alert, nothing counted; an outage that outlives it pages."""
    world = World()
    planned = incident(20, 60, 30, 1.0)
    triton_server(world, "planned", counted(planned))
    triton_server(world, "outlives", counted(incident(20, 90, 0, 1.0)))
    steps = len(planned)
    # The scrape at the end of the hour still has its last failures.
    world.put("maintenance", [1 if 40 <= step <= 160 else 0 for step in range(steps)])
    exclusions = [{"reason": "move", "promql": "maintenance == 1"}]

    asked = [f'sum by (model) ({names.COUNTER}{{event="{event}"}})' for event in (names.ERROR, names.TOTAL)]
    of = objective("errors", exclusions=exclusions)
    played = play(promtools()[-1], tmp_path, [of], world, asked)

    assert {"outlives"} == {model for _, _, model in played.firing}
    assert 80 < played.minutes("errors", "page_fast", "outlives")[0] <= 85
    errors, totals = played.answers
    assert 0 == errors["planned"]
    assert totals["planned"] == pytest.approx(100 * (steps - 1 - 121), abs=200)


def test_a_page_waits_for_what_an_estimate_cannot_explain(tmp_path: Path) -> None:
    """A fifth of the requests is slow, +-10 points or +-1: only the second pages, and both raise tickets."""
    world = World()
    put = KINDS["latency"][1]
    for model, error in {"blurred": 0.1, "sharp": 0.01, "exact": None}.items():
        put(world, model, counted(incident(10, 60, 10, 0.2)))
        if error is not None:
            labels = {"job": "exporter", "instance": "a", "model": model, "version": "1"}
            world.put(state.DISTRIBUTION_ERROR, [error] * 160, **labels, signal="request", le="1")

    played = play(promtools()[-1], tmp_path, [objective("latency")], world)

    paged = {model for _, tier, model in played.firing if tier == "page_fast"}
    assert ({"sharp", "exact"}, {"blurred", "sharp", "exact"}) == (
        paged,
        {model for _, tier, model in played.firing if tier == "ticket_fast"},
    )


def servers(world: World, model: str, shown: Mapping[str, Sequence[str]]) -> None:
    """Add what exporters say of a model on servers: r(eady), u(navailable), l(oading first), -: no exporter."""
    for instance, states in shown.items():
        labels = {"job": "exporter", "instance": instance, "model": model}
        for name, letter in (("ready", "r"), ("unavailable", "u"), ("loading", "l")):
            values = [None if one == "-" else float(one == letter) for one in states]
            world.put(state.MODEL_STATE, values, **labels, version="1", state=name)
        ready = [None if one == "-" else float(one == "r") for one in states]
        world.put(state.MODEL_READY, ready, **labels, version="1")
        world.put(state.MODEL_EXPECTED, [None if one == "-" else 1.0 for one in states], **labels)
        first = [1.0 if one == "l" else None for one in states]
        if any(first):
            world.put(state.MODEL_FIRST_LOAD, first, **labels, version="1")


@pytest.mark.parametrize("tool", newest(promtools()), ids=str)
def test_readiness_pages_where_no_redundancy_is_left(tool: Path, tmp_path: Path) -> None:
    """Rollouts of all forms page nobody; half an hour of one broken server of 3, 10 or 50 is a ticket.

    Where the only server or the last one fails, the page comes within two minutes.
    """
    world, minutes, up = World(), 60, "r" * 60
    down = "r" * 60 + "u" * 60
    servers(world, "in-place", {f"s{n}": up[: 2 * n] + up + "uu" + "r" * 58 for n in range(3)})
    servers(
        world, "in-place-slow", {f"s{n}": up + "r" * 4 * n + "uuu" + "r" * (57 - 4 * n) for n in range(4)}
    )
    servers(world, "new-pods", {
        **{f"old{n}": up + "r" * 4 * n + "-" * (60 - 4 * n) for n in range(3)},
        **{f"new{n}": "-" * (56 + 4 * n) + "lll" + "r" * (61 - 4 * n) for n in range(3)},
    })  # fmt: skip
    servers(world, "new-model", {"s0": "-" * 60 + "l" * 20 + "r" * 40})
    servers(world, "scale-down", {f"s{n}": up + ("-" if n else "r") * 60 for n in range(10)})
    servers(world, "one-of-three", {"s0": down, "s1": up + "r" * 60, "s2": up + "r" * 60})
    servers(world, "one-of-ten", {"s0": down, **{f"s{n}": up + "r" * 60 for n in range(1, 10)}})
    servers(world, "one-of-fifty", {"s0": down, **{f"s{n}": up + "r" * 60 for n in range(1, 50)}})
    servers(world, "from-30-to-3", {f"s{n}": up + ("r" if n < 3 else "-") * 60 for n in range(30)})
    servers(world, "last-of-three", {"s0": up[:20] + "-" * 100, "s1": up[:40] + "-" * 80, "s2": down})
    servers(world, "two-of-three", {"s0": down, "s1": down, "s2": up + "r" * 60})
    servers(world, "only", {"s0": down})
    servers(world, "replaced", {"old": up + "-" * 60, "new": "-" * 60 + "l" * 60})

    played = play(tool, tmp_path, [objective("readiness")], world)

    pages = {
        model: played.minutes("readiness", "page_fast", model)
        for _, tier, model in played.firing
        if "page" in tier
    }
    assert {"two-of-three", "only", "last-of-three", "replaced"} == set(pages)
    for model, fired in pages.items():
        # promtool reads the last sample of a server that is gone for five minutes more.
        assert 30 < fired[0] <= (37 if model == "replaced" else 32), (model, fired[0])
        assert fired[-1] >= minutes - 1, model
    tickets = {model for _, tier, model in played.firing if tier.startswith("ticket")}
    assert {"one-of-three", "one-of-ten", "one-of-fifty", *pages} == tickets


def test_tickets_about_the_budget_come_where_no_burn_alert_would(tmp_path: Path) -> None:
    """A steady leak with less than three days left, and a budget that was spent in silence."""
    hour = {
        "leak": (0.05, 0.0009),
        "half left": (0.6, 0.0009),
        "ended": (0.1, 0.0),
        "spent": (0.05, 0.0015),
        "few failures": (0.05, 0.0015),
    }
    world, length = World(), 5 * 24
    labels = {"slo": "errors", "indicator": "errors", "version": "1"}
    for model, (left, each) in hour.items():
        budget = [
            left + each * (length - at) - (each * 80 if each == 0.0015 and at > 100 else 0)
            for at in range(length)
        ]
        world.put(names.PERIOD_BUDGET_REMAINING, budget, **labels, model=model)
        for event in (names.ERROR, names.TOTAL):
            # Failures before the period are none of its own.
            grown = [1000 + (0 if model == "few failures" else at) for at in range(length)]
            for name in (names.COUNTER, names.COPY):
                world.put(name, grown, **labels, model=model, event=event)
    (text,) = (a.text for a in artifacts([objective("errors")], Options()) if a.name == "slo-errors.yml")
    alerts = [
        {key: value for key, value in rule.items() if key != "annotations"}
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if rule.get("alert") in names.BUDGET_ALERTS
    ]
    asked = [(FIRING, 3600.0 * at) for at in range(length)]
    answers = evaluated(
        promtools()[-1],
        tmp_path,
        rule_file({"b": alerts}),
        world.written(),
        asked,
        interval=3600,
        evaluation=3600,
    )
    fired = {(labels["alertname"], labels["model"]) for answer in answers for labels, _ in answer}
    assert {(names.NEARLY_SPENT_ALERT, "leak"), (names.SPENT_ALERT, "spent")} <= fired
    assert not {model for _, model in fired} & {"half left", "ended"}
    assert (names.SPENT_ALERT, "few failures") not in fired


def test_an_alert_says_what_share_failed_of_the_limits_of_its_model_without_a_query(tmp_path: Path) -> None:
    """Prometheus would run a query in a text for each alert at each evaluation, most of all in a storm.

    It names no window: after 20 minutes, "in the last 1d" was not true.
    """
    world = World()
    for model, edge in (("m", "0.2"), ("o", "1")):
        histogram(state.REQUEST_DURATION, edge)(world, model, counted(incident(30, 30, 0, 0.8)))
    overrides = [{"models": ["m", "n"], "threshold": "200ms"}, {"models": "o", "target": "98%"}]
    slo = objective("latency", overrides=overrides)
    (text,) = (a.text for a in artifacts([slo], Options()) if a.name == "slo-latency.yml")
    (tmp_path / "rules.yml").write_text(text)
    alert = {"eval_time": "59m", "alertname": "TritonLatencyBudgetBurn", "exp_alerts": []}
    test = {
        "interval": f"{STEP}s",
        "input_series": [{"series": name, "values": values} for name, values in world.written().items()],
        "alert_rule_test": [alert],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": f"{STEP}s", "tests": [test]}
    (tmp_path / "t.json").write_text(json.dumps(document))

    for tool in newest(promtools()):
        done = promtool(tool, "test", "rules", tmp_path / "t.json")
        printed = done.stdout + done.stderr
        assert "m version 1: 40% of requests took over 200ms, at most 1% may" in printed, printed[-3000:]
        assert "o version 1: 40% of requests took over 1s, at most 2% may" in printed, printed[-3000:]
    for rule in [
        rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "alert" in rule
    ]:
        assert not any("| query" in value for value in rule["annotations"].values())
