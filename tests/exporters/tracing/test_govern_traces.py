"""Test the governor of traces beside a Triton that accepts any setting: how it follows traffic, and stops."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

import pytest

from triton_exporter.catalogue import own, triton
from triton_exporter.distribution.buckets import Buckets
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.exposition.parse import parse
from triton_exporter.http.client import Answer, Client, FetchError
from triton_exporter.snapshot import IndexEntry, ModelVersion, Snapshot
from triton_exporter.tracing import governor, interference
from triton_exporter.tracing.allotment import SentSetting, allot, rates_to_send
from triton_exporter.tracing.governor import TraceGovernor
from triton_exporter.tracing.request_rates import Traffic
from triton_exporter.tracing.trace import Mailbox, TracedRequest
from triton_exporter.tracing.trace_setting import SettingClient, TraceSetting
from tritonwatch.exporter_options.chosen_settings import OptionsError, choose

T = 1_700_000_000.0


class Settings(SettingClient):
    """What Triton keeps of its trace settings, in memory."""

    def __init__(self) -> None:
        super().__init__("http://triton.invalid")
        self.base = TraceSetting(False, 1000, -1, "opentelemetry")
        self.models: dict[str, TraceSetting] = {}
        self.posts = 0
        self.refuses = False
        self.ready = 200

    def get(self, path: str) -> Answer:
        return Answer(self.ready, b"")

    def setting(self, model: str = "") -> TraceSetting | None:
        return self.models.get(model, self.base)

    def trace(self, model: str, rate: int, count: int) -> None:
        self._posted()
        self.models[model] = TraceSetting(True, rate, count, "opentelemetry")

    def clear(self, model: str) -> None:
        self._posted()
        self.models.pop(model, None)

    def _posted(self) -> None:
        self.posts += 1
        if self.refuses:
            raise FetchError("http_error", "HTTP 500")


class Metrics(Client):
    """Triton's metrics, at once."""

    def get(self, path: str) -> Answer:
        return Answer(200, b"")


def unanswered(*_: object) -> Answer:
    raise FetchError("timeout", "no answer in time")


class GovernedTriton:
    """A governor, its Triton, and the time."""

    def __init__(self, per_second: float = 20.0) -> None:
        self.triton = Settings()
        self.mailbox = Mailbox()
        self.governor = TraceGovernor(self.triton, Metrics("http://triton.invalid"), self.mailbox, per_second)
        self.now = T
        self.totals: dict[str, float] = {}
        self.traced: dict[str, float] = {}

    def run(self, seconds: int, **per_second: float) -> None:
        """Let so many seconds pass, with so many requests to each model in each."""
        for _ in range(seconds):
            self.now += 1
            for model, requests in per_second.items():
                self.totals[model] = self.totals.get(model, 0.0) + requests
                setting = self.triton.models.get(model)
                if setting is not None and setting.on:
                    traced = min(requests / setting.rate, setting.count)
                    left = setting.count - math.ceil(traced)
                    self.triton.models[model] = TraceSetting(True, setting.rate, max(0, left), setting.mode)
                    self.traced[model] = self.traced.get(model, 0.0) + traced
            lines = [
                f'{triton.REQUEST_SUCCESS}{{model="{m}",version="1"}} {v}' for m, v in self.totals.items()
            ]
            text = f"# TYPE {triton.REQUEST_SUCCESS} counter\n" + "\n".join(lines) + "\n"
            self.governor.observe(parse(text.encode()), self.now)
            self.governor.poll(self.now)

    @property
    def rates(self) -> Mapping[str, int]:
        """Rates of the models that are traced."""
        return {model: setting.rate for model, setting in self.triton.models.items() if setting.on}

    @property
    def state(self) -> str:
        """The one state that is shown."""
        shown = [sample for family in self.governor.families(self.now) for sample in family.samples]
        (state,) = [
            sample.series
            for sample in shown
            if sample.series.startswith(str(own.TRACE_GOVERNOR)) and sample.value
        ]
        return state.split('"')[1]


@pytest.fixture
def governed() -> GovernedTriton:
    return GovernedTriton()


def test_an_allotment_keeps_to_its_total_and_traces_small_models_whole() -> None:
    """What a small model leaves is shared by the others."""
    traffic = {"small": 2.0, "middle": 30.0, "large": 400.0}
    rates = allot(traffic, 20)

    assert {"small": 1, "middle": 4, "large": 45} == rates
    assert sum(traffic[model] / rate for model, rate in rates.items()) <= 20


def test_models_that_are_traced_too_often_get_their_rate_first() -> None:
    """Only some settings are sent in a poll; one whose rate suits the traffic and is not used up is not sent."""
    traffic = dict.fromkeys(("new", "calmer", "busier", "same"), Traffic(total=1000, seen=T))
    sent = {
        "calmer": SentSetting(rate=4, count=100, at=T - 10, total=900),
        "busier": SentSetting(rate=2, count=100, at=T - 1, total=900),
        "same": SentSetting(rate=5, count=100, at=T - 10, total=900),
    }
    wanted = {"new": 1, "calmer": 1, "busier": 20, "same": 5}

    assert [("busier", 20), ("new", 1), ("calmer", 1)] == rates_to_send(wanted, sent, traffic, T)


def test_the_rate_follows_a_step_of_the_traffic_at_once(governed: GovernedTriton) -> None:
    """Ten times the traffic is traced a tenth as often within two seconds, and as often again in time."""
    governed.run(10, m=20)
    assert {"m": 1} == governed.rates
    governed.run(2, m=200)
    assert {"m": 10} == governed.rates
    governed.run(150, m=15)
    assert {"m": 1} == governed.rates


def test_steady_traffic_is_traced_as_asked_with_few_settings(governed: GovernedTriton) -> None:
    """Traces a second stay at what was asked for, and a busy model costs a setting every five seconds."""
    rng = random.Random(1)
    for _ in range(300):
        governed.run(1, m=rng.randint(80, 120), small=rng.randint(0, 2))

    assert 10 * 300 <= sum(governed.traced.values()) <= 20 * 300
    assert governed.triton.posts <= 300 * 0.4
    assert "tracing" == governed.state


def test_no_burst_is_traced_for_longer_than_a_setting_lasts(governed: GovernedTriton) -> None:
    """A thousand times the traffic in one second finds only the count of the last setting."""
    governed.run(30, m=1)
    before = governed.traced["m"]
    governed.run(1, m=1000)

    assert governed.traced["m"] - before <= governor.MIN_COUNT


def test_an_idle_model_is_not_traced_any_more(governed: GovernedTriton) -> None:
    """After a minute without a request the model has Triton's own setting again."""
    governed.run(10, m=20)
    governed.run(62, m=0)

    assert ({}, "idle") == (governed.rates, governed.state)


def test_too_much_traffic_is_not_traced(governed: GovernedTriton) -> None:
    """Beyond what a real server was seen to bear, nothing is traced until it is half of that."""
    governed.run(10, m=100)
    governed.run(2, m=2500)
    assert ({}, "busy") == (governed.rates, governed.state)
    governed.run(40, m=1500)
    assert {} == governed.rates
    governed.run(60, m=500)
    assert "tracing" == governed.state


@pytest.mark.parametrize(
    "trouble", ["not_ready", "post_failed", "malformed", "too_many", "slow_api", "slow_metrics"]
)
def test_any_fault_turns_traces_off(
    governed: GovernedTriton, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sign of it clears every model, for ten minutes; the next for twenty."""
    governed.run(10, m=100)
    assert {"m": 5} == governed.rates
    for minutes in (10, 20):
        governed.triton.ready = 400 if trouble == "not_ready" else 200
        governed.triton.refuses = trouble == "post_failed"
        if trouble == "malformed":
            governed.mailbox.count_lost("malformed")
        if trouble == "too_many":
            spans = [
                TracedRequest(ModelVersion("m", "1"), "completed", T, 0.1, 0.0, f"{n}") for n in range(1100)
            ]
            governed.mailbox.put(spans)
        if trouble == "slow_api":
            monkeypatch.setattr(interference.SlownessDetector, "add", lambda *_: True)
        if trouble == "slow_metrics":
            monkeypatch.setattr(Metrics, "get", unanswered)
        governed.run(8, m=100)
        monkeypatch.undo()
        assert trouble == governed.state
        governed.triton.ready, governed.triton.refuses = 200, False
        assert ({} if trouble != "post_failed" else {"m": 5}) == governed.rates
        governed.run(60 * minutes - 30, m=100)
        assert trouble == governed.state
        governed.run(60, m=100)
        assert ("tracing", {"m": 5}) == (governed.state, governed.rates)


def test_slow_answers_are_a_fault_and_one_slow_answer_is_not() -> None:
    """Three in a row of over half a second and ten times the usual."""
    latency = interference.SlownessDetector()
    assert [False] * 5 == [latency.add(0.01, True) for _ in range(5)]
    assert [False, False, True] == [latency.add(0.6, False) for _ in range(3)]
    assert not latency.add(0.01, False)


def test_every_state_is_explained_in_the_list_of_metrics() -> None:
    """The help of the series names each value of its label."""
    assert [] == [state for state in governor.STATES if state not in own.TRACE_GOVERNOR.help]


@pytest.mark.parametrize(
    ("base", "state"),
    [
        (TraceSetting(True, 100, -1, "opentelemetry"), "already_on"),
        (TraceSetting(False, 1000, -1, "triton"), "not_possible"),
    ],
)
def test_a_triton_that_was_started_otherwise_is_left_alone(
    governed: GovernedTriton, base: TraceSetting, state: str
) -> None:
    """Where all models are traced, or none can be, no setting is sent."""
    governed.triton.base = base
    governed.run(10, m=100)

    assert (state, 0) == (governed.state, governed.triton.posts)


def test_what_a_killed_exporter_left_is_turned_off(governed: GovernedTriton) -> None:
    """A model that is traced when the exporter starts has no requests: it is cleared, and its rate remembered."""
    governed.triton.models["left"] = TraceSetting(True, 7, 100, "opentelemetry")
    governed.governor.observe_snapshot(Snapshot(T, index=(IndexEntry("left", "1", "READY"),)))
    governed.run(5, m=10)

    assert {"m": 1} == governed.rates
    late = TracedRequest(ModelVersion("left", "1"), "completed", T, 0.1, 0.0, "t")
    assert 7 == governed.mailbox.rate_of(late)


def test_the_end_of_the_exporter_turns_traces_off(governed: GovernedTriton) -> None:
    """Closing clears every model that was set."""
    governed.run(10, a=10, b=20)
    assert {"a", "b"} == set(governed.rates)
    governed.governor.close()

    assert ({}, "ended") == (governed.rates, governed.state)


def test_a_trace_has_the_weight_of_the_rate_when_it_began() -> None:
    """A request that began before a change of the rate is weighted with the rate of its beginning."""
    mailbox = Mailbox()
    mailbox.set_rate("m", T, 5)
    mailbox.set_rate("m", T + 10, 50)

    def weight(ended: float, seconds: float, model: str = "m") -> float:
        return mailbox.rate_of(TracedRequest(ModelVersion(model, "1"), "completed", ended, seconds, 0.0, "t"))

    assert [5, 5, 50, 5, 1] == [
        weight(T + 5, 1), weight(T + 11, 2), weight(T + 12, 1), weight(T - 5, 1), weight(T, 1, "other")
    ]  # fmt: skip


@pytest.mark.parametrize("changes", [False, True])
def test_slow_requests_keep_their_share_when_every_fifth_is_traced(changes: bool) -> None:
    """At 20 readings a second, 5 % slow ones of 100 a second read as 5 %, also when the rate changes."""
    share, truth = watched(changes)

    assert truth == pytest.approx(share, abs=0.01)


def watched(changes: bool) -> tuple[float, float]:
    """Share of requests within 100 ms as shown and in truth, over ten minutes; traces arrive every 5 s."""
    rng = random.Random(3)
    mailbox = Mailbox()
    distributions = Distributions(Buckets(thresholds={"request": (0.1,)}), mailbox)
    due = sorted(requests(rng, mailbox, changes))
    batch: list[TracedRequest] = []
    count, seconds, slow, at = 0, 0.0, 0, 0
    for step in range(20 * 660):
        now = T + step / 20
        while at < len(due) and due[at][0] <= now:
            ended, took, traced = due[at]
            at, count, seconds, slow = at + 1, count + 1, seconds + took, slow + (took > 0.1)
            if traced:
                batch.append(TracedRequest(ModelVersion("m", "1"), "completed", ended, took, 0.0, f"{at}"))
        if step % 100 == 0:
            mailbox.put(batch)
            batch = []
        (distributions.observe if step % 20 == 0 else distributions.sample)(
            parse(counters(count, seconds)), now
        )
    shown = {s.series: s.value for family in distributions.families(now) for s in family.samples}
    name = "triton_model_request_duration_seconds"
    total = shown[f'{name}_count{{model="m",version="1"}}']
    return shown[f'{name}_bucket{{model="m",version="1",le="0.1"}}'] / total, 1 - slow / count


def requests(rng: random.Random, mailbox: Mailbox, changes: bool) -> Iterator[tuple[float, float, bool]]:
    """When each request ends, what it takes, and whether it is traced."""
    at, number, rate = T + 1, 0, 5
    mailbox.set_rate("m", T, rate)
    changed = at
    while at < T + 600:
        at += rng.expovariate(100)
        if changes and at > changed + 7:
            changed, rate = at, 5 if rate == 20 else 20
            mailbox.set_rate("m", at, rate)
        number += 1
        took = 0.3 if rng.random() < 0.05 else 0.005
        yield at + took, took, number % rate == 0


def counters(count: float, seconds: float) -> bytes:
    names = {
        triton.REQUEST_SUCCESS: count,
        triton.REQUEST_DURATION_US: round(seconds * 1e6),
        triton.QUEUE_DURATION_US: 0,
    }
    return "".join(
        f'# TYPE {name} counter\n{name}{{model="m",version="1"}} {value}\n' for name, value in names.items()
    ).encode()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"govern_traces": "20"}, "needs --otlp-listen"),
        ({"govern_traces": "20", "otlp_listen": "127.0.0.1:4318"}, ""),
        ({"govern_traces": "1000", "otlp_listen": "127.0.0.1:4318"}, "from 0.1 to 100"),
    ],
)
def test_governing_needs_a_receiver_and_a_safe_number(given: Mapping[str, str], problem: str) -> None:
    """A number out of bounds, or a missing trace receiver, is refused with the fix."""
    arguments = {"triton": "http://127.0.0.1:8000", **given}
    if problem:
        with pytest.raises(OptionsError, match=problem):
            choose(arguments, {})
    else:
        assert 20.0 == choose(arguments, {}).settings.govern_traces
