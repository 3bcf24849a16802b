"""Test what is read off counters whose truth is known, and every case in which it must not be trusted."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

import pytest

from slo.advise.made import BATCHING, Made, closed_loop, paced, poisson, varying
from slo.advise.workload import plan
from support.thorough import THOROUGH
from triton_slo.advise import report
from triton_slo.advise.advice import Advice, advise
from triton_slo.advise.fit import Fit, fit, overloads
from triton_slo.advise.measured import Configuration, Measured, Promise, Step

ALONE = Configuration(max_batch_size=8)
"""No batcher: each execution has one request."""
PROMISE = Promise("answers", "queue", 0.99, 0.1)


def fitted(steps: Sequence[Step], configuration: Configuration = ALONE, promise: Promise = PROMISE) -> Fit:
    return fit(steps, configuration, promise, overloads(steps, configuration), Step())


def advised(
    steps: Sequence[Step], promise: Promise = PROMISE, configuration: Configuration = ALONE, **more: Any
) -> Advice:
    """Return the advice on one objective."""
    [advice] = advise(Measured("m", "1", configuration, tuple(steps), (promise,)), **more)
    return advice


@cache
def steady(rate: float) -> tuple[Step, ...]:
    """Return an hour of independent requests that take 20 ms each, to one instance."""
    return tuple(Made(varying(0.02)).steps(poisson(rate)))


def test_the_variation_of_a_few_minutes_is_not_taken_away() -> None:
    """Four minutes of some seeds: neighbouring steps differ by chance, which proves no reading that cut off."""
    found = []
    for seed in range(40 if THOROUGH else 9):
        steps = Made(varying(0.08, cv2=0.51, seed=100 + seed)).steps(poisson(4, 240, seed=seed))
        found.append(fitted(steps, promise=Promise("answers", "queue", 0.9, 1)).service.cv2)

    assert 0.25 < min(found)
    assert 0.51 == pytest.approx(median(found), rel=0.25)


@pytest.mark.parametrize("cv2", [0.0, 0.5, 1.0])
def test_the_service_time_and_its_variation_are_recovered(cv2: float) -> None:
    """One request at a time, 20 ms, at 15 requests/s."""
    found = fitted(Made(varying(0.02, cv2=cv2)).steps(poisson(15)))

    assert 0.02 == pytest.approx(found.service.fixed, rel=0.02)
    assert cv2 == pytest.approx(found.service.cv2, rel=0.25, abs=0.02)
    assert found.fast.cv2 - 1e-9 <= cv2 <= found.slow.cv2 + 1e-9
    assert 1 == found.burst
    assert abs(found.z) < 3
    assert 15 == pytest.approx(found.rate, rel=0.03)
    assert 0.001 == pytest.approx(found.overhead, abs=0.0001)


def test_fixed_and_each_are_recovered_from_sums_of_batches() -> None:
    """40.4 ms and 5.02 ms a request, at 40 requests/s."""
    found = fitted(Made(varying(0.0404, 0.00502, 0.05), batch=8).steps(poisson(40)), BATCHING)

    assert 0.0404 == pytest.approx(found.service.fixed, rel=0.05)
    assert 0.00502 == pytest.approx(found.service.each, rel=0.2)
    assert found.fast.each < 0.00502 < found.slow.each
    assert abs(found.z) < 3


def test_bursts_are_fitted_to_the_wait() -> None:
    """Four at a time, one after the other."""
    found = fitted(Made(varying(0.01)).steps(poisson(30, burst=4)))

    assert 4 == pytest.approx(found.burst, rel=0.15)
    assert abs(found.z) < 3


@pytest.mark.parametrize("seed", range(1, 5 if THOROUGH else 2))
def test_bursts_show_in_six_minutes(seed: int) -> None:
    """Three at a time to four instances, which wait little; two at a time to a batcher; and to one with a delay, which only
    fill its batches."""
    threes = Made(varying(0.025), instances=4).steps(poisson(40, 360, burst=3, seed=seed))
    # The second of two comes when the first has been taken.
    times = [at + i % 2 * 0.001 for i, at in enumerate(poisson(30, 360, burst=2, seed=seed))]
    twos = Made(varying(0.04, 0.004), batch=8).steps(sorted(times))

    assert 3 == pytest.approx(fitted(threes, replace(ALONE, instances=4)).burst, rel=0.15)
    assert 2 == pytest.approx(fitted(twos, BATCHING).burst, rel=0.15)
    delayed = Made(varying(0.02, 0.002), batch=8, before_queue=0.05).steps(
        poisson(20, 600, burst=3, seed=seed)
    )
    patient = replace(PROMISE, threshold=1.0)
    assert 3 == pytest.approx(fitted(delayed, replace(BATCHING, delay=0.05), patient).burst, rel=0.15)


def test_slow_changes_of_the_traffic_are_neither_bursts_nor_a_delay() -> None:
    """The rate triples within the hour; the wait is that of each rate, not of the mean."""
    times = [at for k in range(6) for at in (k * 600 + t for t in poisson(10 + 4 * k, 600, seed=k))]
    found = fitted(Made(varying(0.02, cv2=0.3)).steps(times))

    assert 1 == found.burst
    assert abs(found.z) < 3


LATE = Promise("answers", "latency", 0.99, 0.5)


@cache
def overloaded(until: float) -> Advice:
    """Advice on an instance that takes 82 ms: of 3 requests/s, and of 14 from 900 s to 1,110 s."""
    times = [*poisson(3, 900), *(900 + at for at in poisson(14, 210)), *(1110 + at for at in poisson(3, 690))]
    return advised([step for step in Made(varying(0.082)).steps(times) if step.at <= until], LATE)


@pytest.mark.parametrize(("until", "lasts"), [(1110, True), (1140, False), (1800, False)])
def test_an_overload_is_named_and_hides_nothing(until: float, lasts: bool) -> None:
    """During it and after it: what came, what is answered, since when; and the break rate of before, not UNKNOWN."""
    before, advice = overloaded(900), overloaded(until)

    assert before.overload is None
    assert advice.overload is not None
    assert lasts == advice.overload.lasts
    assert 14 == pytest.approx(advice.overload.rate, rel=0.05)
    assert 1 / 0.082 == pytest.approx(advice.overload.capacity, rel=0.01)
    assert 900 == pytest.approx(advice.overload.since, abs=20)
    assert "" == advice.unknown
    assert before.breaks is not None
    assert advice.breaks is not None
    assert before.breaks.estimate == pytest.approx(advice.breaks.estimate, rel=0.05)
    told = " ".join(report.text(advice).split())
    came = (
        "have come since 00:1[45] UTC, {}" if lasts else "came from 00:1[45] UTC on, {}; .* until 00:19 UTC"
    )
    assert re.search(came.format("its instances answer at most 12.2/s"), told)
    if lasts:
        assert "change 1 instances=2 (now 1): breaks at about" in told


@pytest.mark.parametrize(
    ("took", "until", "words"),
    [
        (1.0, 1110, "an execution takes 1s since 00:1[45] UTC, 62ms before; traffic is unchanged"),
        (1.0, 1800, "an execution took 1s from 00:1[45] UTC on, 62ms before; traffic was unchanged"),
        pytest.param(
            *(8.0, 945, "an execution takes 8s since 00:1[45] UTC, 62ms before; traffic is unchanged"),
            marks=pytest.mark.thorough,
        ),
        (8.0, 1800, "an execution took 8s from 00:1[45] UTC on, 62ms before; traffic was unchanged"),
        (40.0, 1005, "an execution takes 40s since 00:1[45] UTC, 62ms before; traffic is unchanged"),
        pytest.param(
            *(200, 960, "no execution has succeeded since 00:1[45] UTC, one took 62ms before; traffic is"),
            marks=pytest.mark.thorough,
        ),
        (
            200,
            1095,
            "no execution has succeeded since 00:1[45] UTC, one took 62ms before; traffic is unchanged",
        ),
    ],
)
def test_a_model_that_became_slower_is_said_to_be_so(took: float, until: float, words: str) -> None:
    """Its executions took 16 times as long at the same traffic, and the advice was: instances=3.

    And the slower they were, the fewer told it: with 13 of 8 s, or before the first ended, the traffic was blamed.
    """
    slower = Made(lambda _, at: took if 900 <= at < 1110 else 0.062, instances=2)
    advice = advised(
        [step for step in slower.steps(poisson(8, 1800)) if step.at <= until],
        LATE,
        configuration=replace(ALONE, instances=2),
    )
    told = " ".join(report.text(advice).split())

    assert re.search(words, told), told
    assert ("change 1" in told) == ("changes below only help until then" in told), told


@pytest.mark.parametrize(
    ("rate", "until", "expected"), [(14, 915, True), (14, 930, True), (20, 915, None), (20, 930, True)]
)
def test_an_overload_that_has_just_begun_never_holds(
    rate: float, until: float, expected: bool | None
) -> None:
    """Of the hour's mean traffic there is room; in the last step more came than is answered."""
    times = [*poisson(3, 900), *(900 + at for at in poisson(rate, 60))]
    advice = advised([step for step in Made(varying(0.082)).steps(times) if step.at <= until], LATE)

    assert advice.needs_change is expected
    assert ("" if expected else "load_changed") == advice.unknown
    if expected:
        assert advice.fit is not None
        assert rate == pytest.approx(advice.fit.rate, rel=0.12)
        assert advice.changes[0].what == {"instances": 2}


def test_what_a_full_queue_rejects_came_too() -> None:
    """Of 60 requests/s, 28 are answered; the queue holds twelve, and grows no more."""
    limited = replace(BATCHING, max_batch_size=4, limit=12)
    calm = [step for step in Made(varying(0.1, 0.01), batch=4).steps(poisson(12, 900)) if step.at <= 885]
    counts = (105, 420, 420, 480, 0)
    spent = (180, 240, 59, 14.9, 1680)
    steps = [*calm, *(Step("a", 885 + 15.0 * k, 15, *counts, *spent) for k in range(1, 5))]
    advice = advised(steps, replace(LATE, target=0.95), configuration=limited)

    assert advice.overload is not None
    assert advice.overload.lasts
    assert (60, 28) == (advice.overload.rate, advice.overload.capacity)
    assert not advice.overload.is_slowness  # larger batches take longer
    # Without a limit none is rejected: what failed was answered, too.
    [failed] = overloads(
        [*calm, *(replace(step, waiting=480) for step in steps[-4:])], replace(limited, limit=0)
    )
    assert (92, 60) == (failed.rate, failed.capacity)
    # Triton 2.51 does not count them.
    uncounted = [replace(step, failures=0) for step in steps]
    assert "queue_limit" == advised(uncounted, configuration=limited).unknown


def test_a_disturbance_is_left_out() -> None:
    """Refusal 3: for ten minutes executions take twice as long; what remains tells the truth."""

    def seconds(_: int, at: float) -> float:
        return 0.04 if 1200 < at < 1800 else 0.02

    found = fitted(Made(seconds).steps(poisson(12)))

    assert 0.02 == pytest.approx(found.service.fixed, rel=0.02)
    assert 0.1 < found.left_out < 0.3
    assert found.service.cv2 < 0.05


def shared(slope: float, least: float = 0.0) -> list[Step]:
    chance = random.Random(2)
    shares: dict[float, float] = {}

    def other(at: float) -> float:
        return shares.setdefault(at // 15, chance.uniform(least, 1))

    return Made(lambda _, at: 0.02 * (1 + slope * other(at))).steps(poisson(15), others=other)


def rising() -> list[Step]:
    """Both models have more requests from a moment on, and executions of the one take longer the more of its own come."""
    rates = [6 + k // 45 * 6 for k in range(60)]
    times = [60 * k + at for k, rate in enumerate(rates) for at in poisson(rate, 60, seed=k)]
    made = Made(lambda _, at: 0.02 * (1 + 0.01 * rates[min(59, int(at // 60))]))
    return made.steps(times, others=lambda at: rates[min(59, int(at // 60))] / 20)


def locked(rate: float) -> list[Step]:
    """Two instances that work for 31 ms, one at a time: at 32 requests/s they are at their limit, and look half busy."""
    free = [0.0]

    def seconds(_: int, start: float) -> float:
        free[0] = max(free[0], start) + 0.031
        return free[0] - start

    return Made(seconds, instances=2).steps(poisson(rate))


TWO = {"configuration": replace(ALONE, instances=2)}
USUAL = Made(varying(0.02))
EACH_TENTH = [*poisson(8, 900), *(10.0 * k for k in range(90) for _ in range(25))]


@pytest.mark.parametrize(
    ("reason", "steps", "more"),
    [
        ("paced_clients", lambda: USUAL.steps(closed_loop(1, 0.01)), {}),
        ("paced_clients", lambda: USUAL.steps(closed_loop(4, 0.04)), {}),
        # They keep an instance busy all the time: the queue has grown to their number, which is no overload.
        ("paced_clients", lambda: USUAL.steps(closed_loop(200, 2)), {}),
        ("paced_clients", lambda: USUAL.steps(paced(0.05)), {}),
        # Five every third of a second: nothing else delays them.
        ("paced_clients", lambda: USUAL.steps(k / 3 for k in range(10_000) for _ in range(5)), {}),
        ("other_delay", lambda: Made(varying(0.02), before_queue=0.03).steps(poisson(15)), {}),
        ("unsteady", lambda: Made(lambda _, at: 0.01 * 1.2 ** (at // 300)).steps(poisson(10)), {}),
        ("shared_device", lambda: shared(0.15), {}),
        ("", lambda: shared(0.0), {}),
        # A steady neighbour: what noise of the machine makes longer in both is no device.
        ("", lambda: shared(0.3, least=0.95), {}),
        ("", rising, {}),
        ("shared_device", lambda: locked(8), TWO),
        ("shared_device", lambda: locked(20), TWO),
        ("", lambda: Made(varying(0.031, cv2=0.5), instances=2).steps(poisson(20)), TWO),
        ("unsupported", lambda: steady(15), {"configuration": replace(ALONE, unsupported=("a cache",))}),
        ("queue_limit", lambda: steady(15), {"configuration": Configuration(1, "cpu", 1, 1, True, limit=9)}),
        ("queue_limit", lambda: steady(15), {"configuration": replace(BATCHING, limit=4)}),
        ("unbalanced", lambda: [*steady(15), *USUAL.steps(poisson(5, seed=3), server="b")], {}),
        # 1.5 inferences a request on average may be any mix.
        (
            "mixed_batches",
            lambda: [replace(step, inferences=1.5 * step.inferences) for step in steady(15)],
            {},
        ),
        # Its mean wait, and its variation, are off by chance in 25 minutes: no reason to suspect the clients.
        (
            *("unseen_tail", lambda: Made(varying(0.012, cv2=2.5)).steps(poisson(15, 1500))),
            {"promise": Promise("fast", "latency", 0.95, 0.15)},
        ),
        # 25 every 10 s among single ones: the same mean wait as bursts of six, and 5 % late where hardly any is expected.
        (
            *("tail_differs", lambda: USUAL.steps(sorted(EACH_TENTH))),
            {"promise": Promise("answers", "latency", 0.95, 0.35, 0.95)},
        ),
    ],
)
def test_what_counters_do_not_tell_is_refused(
    reason: str, steps: Callable[[], Sequence[Step]], more: dict[str, Any]
) -> None:
    """With the reason, and a sentence; but a neighbour that works as well is no reason."""
    advice = advised(steps(), changes=False, **more)

    assert reason == advice.unknown
    assert bool(reason) == bool(advice.text)
    assert (advice.breaks is None or advice.breaks.estimate is None) == bool(reason)


def test_a_second_instance_on_a_gpu_is_a_range() -> None:
    """Refusal 5: from no gain at all to that of a GPU with room; never a number in between."""
    gpu = replace(ALONE, kind="gpu")
    advice = advised(steady(30), configuration=gpu, changed={"instances": 2}, changes=False)

    assert advice.asked is not None
    assert advice.breaks is not None
    assert advice.asked.breaks.estimate is None
    assert advice.asked.breaks.least == advice.breaks.least
    assert advice.asked.breaks.most is not None
    assert advice.breaks.most is not None
    assert advice.asked.breaks.most > 1.5 * advice.breaks.most
    assert "share the GPU" in advice.asked.note


def test_batches_that_were_never_seen_have_limits_only() -> None:
    """Refusal 6: with batches of one, how long eight take lies between one and eight times as long."""
    steps = tuple(Made(varying(0.02)).steps(poisson(2), others=None))
    advice = advised(steps, configuration=BATCHING, changes=False)

    assert "batches_unseen" == advice.unknown
    assert advice.breaks is not None
    assert advice.breaks.estimate is None
    assert advice.breaks.least is not None
    assert advice.breaks.most is not None
    assert advice.breaks.least < 50 < 300 < advice.breaks.most
    advice = advised(steps, changed={"batching": 1}, changes=False)
    assert "" == advice.unknown
    assert advice.asked is not None
    assert advice.asked.breaks.estimate is None
    assert "ask again in ten minutes" in advice.asked.note


@pytest.mark.parametrize("phase", range(0, 15, 3))
def test_a_short_overload_that_has_ended_is_named_or_refused(phase: int) -> None:
    """25 s in which 40 requests/s come to an instance that answers 24: wherever the steps of 15 s cut it."""
    times = [
        *poisson(10, 90),
        *(90 + phase + at for at in poisson(40, 25)),
        *(130 + at for at in poisson(10, 80)),
    ]
    steps = tuple(Made(varying(0.041)).steps(sorted(times)))
    advice = advised(steps, replace(LATE, target=0.95, threshold=0.3))

    assert advice.overload is not None or advice.unknown in ("other_delay", "paced_clients")


def test_what_was_borne_in_the_last_minutes_does_not_break() -> None:
    """Of an hour's mean traffic there is room; five minutes above the estimate held, and an autoscaler would add replicas."""
    advice = advised(
        Made(varying(0.02)).steps([*poisson(10, 3300), *(3300 + at for at in poisson(42, 300))]),
        replace(PROMISE, good=0.9999),
        changes=False,
    )

    assert "tail_differs" == advice.unknown
    assert advice.headroom is None


@pytest.mark.parametrize(
    "threshold",
    [0.042, *(pytest.param(more, marks=pytest.mark.thorough) for more in (0.038, 0.04, 0.044, 0.046))],
)
def test_nothing_breaks_at_zero(threshold: float) -> None:
    """Of 300 executions it is open whether 5 % of them alone take longer than the threshold: only a limit is told."""
    advice = advised(
        Made(varying(0.02, cv2=0.3)).steps(poisson(6, 90)),
        Promise("f", "latency", 0.95, threshold),
        changes=False,
    )

    assert advice.breaks is None or advice.breaks.least is None or advice.breaks.least > 0


def test_a_threshold_below_the_service_time_is_refused() -> None:
    """Refusal 8: 99 % within 15 ms, of executions that take 20 ms."""
    advice = advised(steady(15), Promise("fast", "latency", 0.99, 0.015))

    assert "too_slow" == advice.unknown
    assert "no setting helps" in advice.text
    assert advice.breaks is None


def test_an_upper_limit_is_not_below_traffic_that_is_served_well() -> None:
    """One of 200 executions takes 50 ms, not 1: 99 % are in time at 15 requests/s, which a gamma distribution excludes."""
    chance = random.Random(3)
    made = Made(lambda *_: 0.05 if chance.random() < 0.005 else 0.001)
    steps = tuple(made.steps(poisson(15)))
    for good in (None, 0.993):
        promise = Promise("fast", "latency", 0.99, 0.015, good)
        advice = advised(steps, promise, changes=False)

        assert "unseen_tail" == advice.unknown
        assert advice.needs_change is None
        assert advice.breaks is not None
        assert (None, None) == (advice.breaks.least, advice.breaks.estimate)
        assert advice.breaks.most is not None
        assert advice.breaks.most > 15


def test_too_few_executions_are_refused() -> None:
    """99 % needs two thousand, 90 % two hundred."""
    steps = Made(varying(0.02)).steps(poisson(15, 100))

    assert "too_little_data" == advised(steps).unknown
    assert fitted(steps, promise=replace(PROMISE, target=0.9)).executions < 2000


def test_equal_servers_break_at_the_sum() -> None:
    """Two servers take twice the traffic of one."""
    both = [
        step
        for seed, server in ((1, "a"), (2, "b"))
        for step in Made(varying(0.02)).steps(poisson(15, seed=seed), server=server)
    ]
    alone = tuple(step for step in both if step.server == "a")
    two = advised(both, changes=False)
    one = advised(alone, changes=False)

    assert two.fit is not None
    assert 2 == two.fit.servers
    assert 30 == pytest.approx(two.fit.rate, rel=0.06)  # in the last minutes
    assert one.breaks is not None
    assert two.breaks is not None
    assert 2 * one.breaks.estimate == pytest.approx(two.breaks.estimate, rel=0.04)  # type: ignore[operator]


def test_more_traffic_than_instances_can_take_is_no_delay_of_something_else() -> None:
    """At 110 % the queue grows without end; the objective breaks at less than what comes."""
    advice = advised(steady(55))

    assert "" == advice.unknown
    assert advice.overload is not None
    assert (0, 55) == pytest.approx((advice.overload.since, advice.overload.rate), rel=0.05, abs=60)
    assert advice.breaks is not None
    assert advice.breaks.most is not None
    assert advice.breaks.most < 55
    assert advice.changes


def test_a_server_that_another_one_replaced_is_not_counted() -> None:
    """A pod is moved after twenty minutes: the traffic is that of one server all the time."""
    before = Made(varying(0.02)).steps(poisson(15, 1200))
    after = [
        replace(step, at=step.at + 1200) for step in Made(varying(0.02)).steps(poisson(15, 2400), server="b")
    ]
    found = fitted([*before, *after])

    assert 1 == found.servers
    assert 15 == pytest.approx(found.rate, rel=0.05)


@pytest.mark.parametrize(
    ("changed", "note", "estimated"),
    [
        ({"max_batch_size": 16}, "change nothing", True),
        ({"max_batch_size": 1, "max_queue_size": 9}, "beside idle instances", False),
        ({"max_batch_size": 0, "batching": 1, "max_queue_size": 9}, "beside idle instances", False),
        ({"delay_ms": 5, "batching": 0}, "change nothing", True),
        ({"delay_ms": 1_000_000, "max_queue_size": 1}, "delays requests by up to 1000s", False),
        ({"instances": 1000, "replicas": 1000}, "if the machine has processors left", True),
    ],
)
def test_a_change_that_does_nothing_or_stalls_is_called_so(
    changed: dict[str, float], note: str, estimated: bool
) -> None:
    """Without a batcher its settings have no effect; a limit of batches of one stalls."""
    advice = advised(steady(15), changed=changed, changes=False)

    assert advice.asked is not None
    assert note in advice.asked.note
    assert estimated == (advice.asked.breaks.estimate is not None)
    assert not re.search(r"e\+|\d{7} requests", report.text(advice))


def test_fast_executions_hardly_wait_at_all() -> None:
    """20 us at 2 requests/s: neither a wait of 0 in the model nor the time of Triton itself is a contradiction."""
    quiet = Made(varying(0.00002)).steps(poisson(2))
    found = fitted([replace(step, queue_seconds=0.0001 * step.requests) for step in quiet])

    assert 1 == found.burst
    advice = advised(quiet)
    assert "" == advice.unknown
    assert advice.breaks is not None
    assert not advice.needs_change


@pytest.mark.parametrize(("rate", "good"), [(42, 0.9999), (12, 0.9)])
def test_a_share_of_good_requests_that_contradicts_the_prediction_is_refused(
    rate: float, good: float
) -> None:
    """Nearly all in time above the rate at which the objective should break, or many late far below it."""
    steps = steady(rate)
    told = [advised(steps, replace(PROMISE, good=each), changes=False) for each in (good, None)]

    assert ["tail_differs", ""] == [each.unknown for each in told]


def test_few_requests_that_happen_to_wait_little_are_no_closed_loop() -> None:
    """Independent ones, 250 at half load: their mean wait may be off by a third by chance."""
    times = [7.5 * at for at in plan(10, 25, seed=3)]  # steps of 15 s are those of 2 s then

    promise = Promise("answers", "queue", 0.85, 7.5 * 0.25)
    assert fitted(Made(varying(7.5 * 0.0505)).steps(times), promise=promise).z > -3
