"""Advice: at which traffic a model breaks an objective, and which changes of its configuration move that.

`advise` is a function of what was measured; nothing here asks a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from triton_slo.advise.fit import Fit, UnfitError, fit
from triton_slo.advise.measured import Configuration, Measured
from triton_slo.advise.simulate import Outcome, Service, Setting, Traffic, simulate

ROOM = 1.5
"""Least headroom with which no change is needed."""
GAIN = 1.1
"""A change is worth its name from this factor of the break rate on."""
MARGIN = 0.1
"""Every break rate is uncertain by this share, besides what the fit leaves open."""
HEAVY_CV2 = 1.5
"""Executions that vary more have a tail that counters do not show: only an upper limit is known."""
VAGUE = 1.3
"""Where a full batch may take so much longer than at best, only limits are given."""
MAX_CHANGES = 3
_FEW, _MOST = 4_000, 100_000
"""Requests that are played: few where the answer is clear, more for a tail."""
_STRIDE = 1.25
_PRECISION = 0.01

Signal = Literal["queue", "latency"]


@dataclass(frozen=True, slots=True)
class Promise:
    """An objective on one model version: a share `target` of requests waits, or takes, at most `threshold` seconds.

    `good` is the share that did in the time that was measured; None if it is not known.
    """

    slo: str
    signal: Signal
    target: float
    threshold: float
    good: float | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two limits; None where one is not known."""

    least: float | None
    estimate: float | None
    most: float | None

    def times(self, factor: float) -> Range:
        """Return the range in another unit."""
        return Range(
            *(None if value is None else value * factor for value in (self.least, self.estimate, self.most))
        )


@dataclass(frozen=True, slots=True)
class Change:
    """Another configuration (or number of servers), and what is predicted of it.

    `breaks` is in requests a second; wait and refusals are those at the traffic of now, None where there is no estimate.
    """

    name: str
    what: Mapping[str, float]
    breaks: Range
    wait_p99: float | None
    refused: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """What is known about one objective of one model version; where `unknown` is a reason, `text` explains it."""

    model: str
    version: str
    promise: Promise
    configuration: Configuration | None
    unknown: str = ""
    text: str = ""
    fit: Fit | None = None
    breaks: Range | None = None
    changes: tuple[Change, ...] = ()
    asked: Change | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the objective was met in the time that was measured."""
        return None if self.promise.good is None else self.promise.good >= self.promise.target

    @property
    def headroom(self) -> Range | None:
        """The break rate over the traffic of now."""
        if self.breaks is None or self.fit is None:
            return None
        return self.breaks.times(1 / self.fit.rate)

    @property
    def needs_change(self) -> bool:
        """Whether traffic is nearer to the break rate than `ROOM`."""
        least = None if self.headroom is None else self.headroom.least
        return self.holds is False or least is None or least < ROOM


def advise(
    measured: Measured,
    promises: Sequence[Promise],
    changed: Mapping[str, float] | None = None,
    *,
    changes: bool = True,
) -> tuple[Advice, ...]:
    """Return the advice on each objective of one model version.

    `changed` is a change to predict, by the names of `CHANGEABLE`; without `changes` none is looked for.
    """
    return tuple(_advise(measured, promise, promises, changed, changes) for promise in promises)


CHANGEABLE = ("instances", "max_batch_size", "delay_ms", "max_queue_size", "replicas", "batching")
"""What a change may set, by its name on the command line."""


def apply(configuration: Configuration, what: Mapping[str, float]) -> Configuration:
    """Return the configuration with a change; a delay or a limit needs a batcher, and turns it on."""
    needs_batcher = what.get("delay_ms") or what.get("max_queue_size") or configuration.dynamic_batching
    return replace(
        configuration,
        instances=int(what.get("instances", configuration.instances)),
        max_batch_size=int(what.get("max_batch_size", configuration.max_batch_size)),
        delay=what.get("delay_ms", 1000 * configuration.delay) / 1000,
        limit=int(what.get("max_queue_size", configuration.limit)),
        dynamic_batching=bool(what.get("batching", needs_batcher)),
    )


def _advise(
    measured: Measured,
    promise: Promise,
    promises: Sequence[Promise],
    changed: Mapping[str, float] | None,
    changes: bool,
) -> Advice:
    now = measured.configuration
    if now is None:
        why = "its exporter exports no configuration: the model is not ready, or the exporter reads metrics only"
        return Advice(measured.model, measured.version, promise, None, "no_configuration", why)
    advice = Advice(measured.model, measured.version, promise, now)
    try:
        fitted = fit(measured.steps, now, promise.target, promise.threshold)
        play = Play(fitted, promise)
        breaks = play.breaks(now)
        if not breaks.most:
            raise UnfitError("too_slow", _too_slow(fitted, promise, now))
        _refuse_contradiction(promise, breaks, fitted.rate)
    except UnfitError as error:
        return replace(advice, unknown=error.reason, text=str(error))
    name = ", ".join(f"{name}={value:g}" for name, value in (changed or {}).items())
    asked = play.change(name, changed, now) if changed else None
    advice = replace(advice, fit=fitted, breaks=breaks, asked=asked)
    if breaks.least is not None and breaks.estimate is None:
        text = (
            f"batches had {fitted.mean_batch:.2g} requests on average, too few were larger: how long a full one "
            "takes is not known, only limits are; ask again when there is more traffic"
        )
        advice = replace(advice, unknown="batches_unseen", text=text)
    if not changes or not advice.needs_change:
        return advice
    plays = [play, *(Play(fitted, other) for other in promises if other != promise)]
    candidates = (play.change(name, what, now) for name, what in _candidates(now, fitted))
    found = [
        change
        for change in candidates
        if _is_better(change, breaks) and not any(_harms(each, change, now) for each in plays)
    ]
    # Where only an upper limit is known, the order of the candidates stays.
    found.sort(key=lambda change: -(change.breaks.least or 0.0))
    return replace(advice, changes=tuple(found[:MAX_CHANGES]))


def _refuse_contradiction(promise: Promise, breaks: Range, rate: float) -> None:
    """Raise UnfitError where what was measured at the traffic of now excludes what is predicted."""
    if promise.good is None:
        return
    holds = promise.good >= promise.target
    if (holds and (breaks.most or 0.0) < rate / GAIN) or (not holds and (breaks.least or 0.0) > ROOM * rate):
        than = "fewer" if holds else "more"
        raise UnfitError(
            "tail_differs",
            f"{than} requests were too slow at {rate:.3g} requests/s than the simulation has: the tail of the times "
            "is not what the counters show",
        )


def _candidates(now: Configuration, fitted: Fit) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the changes that may help."""
    more = now.instances + now.gpus
    yield f"{more} instances, not {now.instances}", {"instances": more}
    if not now.dynamic_batching and now.max_batch_size > 1 and fitted.service.cv2 <= HEAVY_CV2:
        yield "batching on", {"batching": 1}
    if now.dynamic_batching and now.max_batch_size > 0:
        doubled = 2 * now.max_batch_size
        yield f"max_batch_size {doubled}, not {now.max_batch_size}", {"max_batch_size": doubled}
        if now.delay:
            yield f"no delay, not {1000 * now.delay:g} ms", {"delay_ms": 0}
        if now.limit and now.limit < 2 * now.max_batch_size:
            wider = 2 * now.max_batch_size
            yield f"max_queue_size {wider}, not {now.limit}", {"max_queue_size": wider}
    replicas = fitted.servers + 1
    yield f"{replicas} replicas, not {fitted.servers}", {"replicas": replicas}


def _is_better(change: Change, now: Range) -> bool:
    """Return whether a change is likely to help, or may help where only limits are known."""
    before, after = now.estimate, change.breaks.estimate
    if before is None or after is None:
        before, after = now.most, change.breaks.most
    return before is not None and after is not None and after > GAIN * before


def _harms(play: Play, change: Change, now: Configuration) -> bool:
    """Return whether a change may lower a break rate to less than the traffic with some room."""
    before, after = play.breaks(now), play.change("", change.what, now).breaks
    low = after.least or after.most or 0.0
    return low < (before.least or before.most or 0.0) and low < ROOM * play.fit.rate


def _too_slow(fitted: Fit, promise: Promise, configuration: Configuration) -> str:
    took = 1000 * (fitted.service.seconds(1) + fitted.overhead)
    delay = f" and a delay of {1000 * configuration.delay:g} ms" if configuration.delay else ""
    return (
        f"a request alone takes {took:.3g} ms{delay}, and the threshold is {1000 * promise.threshold:g} ms: "
        + ("try without the delay" if configuration.delay else "no setting helps")
    )


class Play:
    """Simulations of one model under one objective."""

    def __init__(self, fitted: Fit, promise: Promise) -> None:
        self.fit, self.promise = fitted, promise
        self._known: dict[Configuration, Range] = {}

    def outcome(self, configuration: Configuration, rate: float) -> Outcome:
        """Return what requests meet at this rate of one server."""
        traffic = Traffic(rate, self.fit.burst)
        return simulate(configuration.setting(self.fit.rows), self.fit.service, traffic, 5 * _FEW)

    def change(self, name: str, what: Mapping[str, float], now: Configuration) -> Change:
        """Return what is predicted of a change."""
        changed = apply(now, what)
        servers = int(what.get("replicas", self.fit.servers))
        breaks = self.breaks(changed).times(servers / self.fit.servers)
        note = ""
        alone = changed.setting(self.fit.rows).max_batch == 1
        if alone and changed.limit and changed.dynamic_batching:
            breaks = Range(None, None, breaks.most)
            note = "with max_queue_size and batches of one, Triton 2.51 leaves instances idle"
        elif alone and what.keys() & {"max_batch_size", "delay_ms", "max_queue_size"}:
            note = "without batching, max_batch_size, delay_ms and max_queue_size change nothing"
        elif changed.kind == "gpu" and changed.instances > now.instances:
            same = self.breaks(replace(changed, instances=now.instances))
            breaks = Range(same.least, None, breaks.most)
            note = "instances share the GPU: counters do not show how much they gain"
        elif changed.instances > now.instances:
            note = "if the machine has processors left"
        elif changed.max_batch_size > now.max_batch_size:
            note = "if the model can"
        elif changed.dynamic_batching and not now.dynamic_batching:
            note = "how long larger batches take is not known: turn it on, and ask again in ten minutes"
        if breaks.estimate is None:
            return Change(name, dict(what), breaks, None, None, note)
        outcome = self.outcome(changed, self.fit.rate / servers)
        return Change(name, dict(what), breaks, outcome.wait_within(0.99), outcome.refused_share, note)

    def breaks(self, configuration: Configuration) -> Range:
        """Return the highest rate, of all servers, at which the objective is met."""
        if configuration not in self._known:
            self._known[configuration] = self._range(configuration)
        return self._known[configuration]

    def _range(self, configuration: Configuration) -> Range:
        fitted, full = self.fit, configuration.setting(self.fit.rows).max_batch
        service, slow, fast = fitted.service, fitted.slow, fitted.fast
        vague = slow.seconds(full) > VAGUE * fast.seconds(full)
        estimate = None if vague else self._break(configuration, service)
        limits = [] if estimate is None else [estimate]
        if slow.seconds(full) > 1.02 * fast.seconds(full) or slow.cv2 - fast.cv2 > 0.02:
            limits += [self._break(configuration, end) for end in (slow, fast)]
        most = (1 + MARGIN) * max(limits)
        if service.cv2 > HEAVY_CV2:
            return Range(None, None, most)
        return Range((1 - MARGIN) * min(limits), estimate, most)

    def _break(self, configuration: Configuration, service: Service) -> float:
        """Return the highest rate up to which the objective is met, beginning with the traffic of now."""
        setting = configuration.setting(self.fit.rows)
        capacity = setting.instances * setting.max_batch / service.seconds(setting.max_batch)
        least = most = max(self.fit.rate / self.fit.servers, capacity / 20)
        if self._is_met(setting, service, least):
            while least == most or (most < capacity and self._is_met(setting, service, most)):
                least, most = most, most * _STRIDE
        while not self._is_met(setting, service, least):
            least, most = least / _STRIDE, least
            if least < capacity / 1000:
                return 0.0
        while most - least > _PRECISION * most:
            rate = (least + most) / 2
            least, most = (rate, most) if self._is_met(setting, service, rate) else (least, rate)
        return min(least, capacity) * self.fit.servers

    def _is_met(self, setting: Setting, service: Service, rate: float) -> bool:
        allowed, bad = 1 - self.promise.target, 0.0
        for requests in (_FEW, max(2 * _FEW, min(_MOST, round(200 / allowed)))):
            bad = self.bad(simulate(setting, service, Traffic(rate, self.fit.burst), requests))
            if bad > 3 * allowed or (bad < allowed / 3 and requests * allowed > 20):
                break  # clear already
        return bad <= allowed

    def bad(self, outcome: Outcome) -> float:
        """Return the share of requests that are not good; a refused one is not."""
        seconds, limit = outcome.waits, self.promise.threshold
        if self.promise.signal == "latency":
            seconds, limit = outcome.times, limit - self.fit.overhead
        late = sum(1 for each in seconds if each > limit)
        return (outcome.refused + late) / (outcome.refused + len(seconds))


def all_advice(
    models: Iterable[Measured],
    promises: Mapping[tuple[str, str], Sequence[Promise]],
    changed: Mapping[str, float] | None = None,
) -> tuple[Advice, ...]:
    """Return the advice on every model version that has objectives, those with the least room first."""
    found = [
        advice
        for measured in models
        for advice in advise(measured, promises.get((measured.model, measured.version), ()), changed)
    ]

    def room(advice: Advice) -> float:
        known = advice.headroom or Range(None, None, None)
        return known.least or known.most or float("inf")

    return tuple(sorted(found, key=room))
