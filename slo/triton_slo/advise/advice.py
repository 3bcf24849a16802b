"""Advice: at which traffic a model breaks an objective, and which changes of its configuration move that.

`advise` is a function of what was measured; nothing here asks a server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

from triton_exporter.common.duration import measured_text, time_text
from triton_slo.advise.fit import Fit, Overload, UnfitError, fit, highest, overloads, waits_less
from triton_slo.advise.measured import NEAR, Configuration, Measured, Promise, Step, total
from triton_slo.advise.simulate import Service, Setting, simulate
from triton_slo.amounts import digits, ratio

ROOM = 1.5
"""Least headroom with which no change is needed."""
GAIN = 1.1
"""A change is worth its name from this factor of the break rate on."""
MARGIN = 0.1
"""Every break rate is uncertain by this share, besides what the fit leaves open."""
HEAVY_CV2 = 1.5
"""Executions that vary more have a tail that counters do not show: only an upper limit is known."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two limits; None where it, or the lower one, is not known."""

    least: float | None
    estimate: float | None
    most: float

    def times(self, factor: float) -> Range:
        """Return the range in another unit."""
        least, estimate = self.least and self.least * factor, self.estimate and self.estimate * factor
        return Range(least, estimate, self.most * factor)

    @property
    def low(self) -> float:
        """The least that is known."""
        return self.least or self.most

    def is_better(self, before: Range) -> bool:
        """Return whether a change is likely to help, or may help where only limits are known."""
        if self.estimate is None or before.estimate is None:
            return self.most > GAIN * before.most
        return self.estimate > GAIN * before.estimate


@dataclass(frozen=True, slots=True)
class Change:
    """Another configuration (or number of servers), and at how many requests a second the objective breaks with it.

    The wait (seconds) and the share of refused requests are those at the traffic of now; None where there is no estimate.
    """

    name: str
    what: Mapping[str, float]
    breaks: Range
    note: str
    wait_p99: float | None
    refused: float | None


@dataclass(frozen=True, slots=True)
class Advice:
    """What is known about one objective of one model version; where `unknown` is a reason, `text` explains it."""

    model: str
    version: str
    promise: Promise
    configuration: Configuration | None
    overload: Overload | None = None
    """The last one in the time that was measured."""
    unknown: str = ""
    text: str = ""
    fit: Fit | None = None
    breaks: Range | None = None
    changes: tuple[Change, ...] = ()
    asked: Change | None = None

    @property
    def headroom(self) -> Range | None:
        """The break rate over the traffic of now."""
        return self.breaks.times(1 / self.fit.rate) if self.breaks and self.fit else None

    @property
    def order(self) -> float:
        """The least room that is known: what advice is sorted by."""
        return 0.0 if self.is_overloaded else self.headroom.low if self.headroom else math.inf

    @property
    def is_overloaded(self) -> bool:
        return self.overload is not None and self.overload.lasts

    @property
    def needs_change(self) -> bool | None:
        """Whether traffic is nearer to the break rate than `ROOM`; None where that is not known."""
        if self.unknown and not self.is_overloaded:
            return None
        least = (self.headroom and self.headroom.least) or 0.0
        return self.promise.holds is False or self.is_overloaded or least < ROOM


def advise(
    measured: Measured, changed: Mapping[str, float] | None = None, *, changes: bool = True
) -> tuple[Advice, ...]:
    """Return the advice on each objective of one model version.

    `changed` is a change to predict, by name, such as `instances`; without `changes` none is looked for.
    """
    now, steps, promises = measured.configuration, measured.steps, measured.promises
    over = overloads(steps, now) if now and not (now.unsupported or now.steps) else []

    def of(promise: Promise) -> Advice:
        advice = Advice(measured.model, measured.version, promise, now, over[-1] if over else None)
        try:
            if now is None:
                why = "the exporter has no configuration of it: the model is not ready, or only metrics are read"
                raise UnfitError("no_configuration", why)
            fitted = fit(steps, now, promise, over, measured.fewer)
            play = Play(fitted, promise, now)
            breaks = play.breaks(now)
            _refuse_contradiction(play, breaks, over, steps)
        except UnfitError as error:
            reason, text = error.args
            return replace(advice, unknown=reason, text=text)
        asked = play.change(changed) if changed else None
        advice = replace(advice, fit=fitted, breaks=breaks if breaks.most else None, asked=asked)
        reason, text = _why_no_estimate(play, breaks)
        advice = replace(advice, unknown=reason, text=text)
        if not changes or advice.needs_change is False:
            return advice
        plays = [Play(fitted, other, now) if other != promise else play for other in promises]
        found = [
            change
            for change in map(play.change, _candidates(now, fitted))
            if change.breaks.is_better(breaks) and not any(each.harms(change.what) for each in plays)
        ]
        # Where only an upper limit is known, the order of the candidates stays.
        found.sort(key=lambda change: -(change.breaks.least or 0.0))
        return replace(advice, changes=tuple(found[:3]))

    return tuple(map(of, promises))


def _refuse_contradiction(play: Play, breaks: Range, over: Sequence[Overload], steps: Sequence[Step]) -> None:
    """Raise UnfitError where it held at traffic above the range, or more requests were bad than the busiest minutes explain,
    or they waited much less than modelled."""
    promise, fitted, sums = play.promise, play.fit, total(steps)
    bad = math.nan if promise.good is None else 1 - promise.good
    allowed, most = 1 - promise.target, breaks.estimate or breaks.most
    came, seconds = sums.requests + sums.failures, len({step.at for step in steps}) * steps[0].seconds
    spans = [(came / seconds, seconds)]
    if fitted.seconds >= 60 and not (over and over[-1].lasts):
        spans.append((fitted.rate, fitted.seconds))
    # Even if all that were bad came in that time.
    held = any(most < rate / GAIN and bad * came < allowed / NEAR * rate * time for rate, time in spans)
    why = "some executions may take much longer than most, and counters do not show how long"
    if held or (breaks.estimate is not None and waits_less(fitted, promise.threshold)):
        why += ", or large batches take less than small ones suggest"
        why += f" (mean wait {measured_text(fitted.wait)}, not {measured_text(fitted.modelled_wait)}, z {fitted.z:.1f})"
        raise UnfitError("tail_differs", f"fewer requests were late at this traffic than predicted: {why}")
    if bad > allowed / NEAR and not (fitted.left_out or over):
        predicted = play.bad(play.now.setting(fitted.rows), fitted.slow, GAIN * fitted.peak / fitted.servers)
        if bad > 3 * predicted:
            text = f"{ratio(bad)} of the requests were late, and {ratio(predicted)} are predicted at the busiest time: {why}"
            raise UnfitError("tail_differs", f"{text}, or many requests come at once at regular times")


def _why_no_estimate(play: Play, breaks: Range) -> tuple[str, str]:
    """Return the reason and its sentence; empty ones where there is an estimate."""
    if breaks.estimate:
        return "", ""
    fitted, promise, now = play.fit, play.promise, play.now
    cv2 = f"cv2 {fitted.service.cv2:.2f}"
    if breaks.most and breaks.least is None:
        unseen = "counters do not show how long the longest take: only an upper limit is known"
        return "unseen_tail", f"executions vary ({cv2}), and {unseen}"
    if breaks.most:
        few = "too few batches had more than one or two requests: how long a full one takes is not known"
        return "batches_unseen", f"{few}, only limits are; ask again when there is more traffic"
    if now.setting(fitted.rows).delay:
        why = f"the batcher delays them by up to {time_text(now.delay)}"
    elif fitted.burst > 1.05:
        why = f"they come {digits(fitted.burst)} at a time, and wait for each other"
    else:
        took = digits(1000 * (fitted.service.seconds(1) + fitted.overhead), 3)
        why = f"one alone takes {took} ms on average ({cv2}); no setting helps, only a faster model or a longer threshold"
    late = f"more than {ratio(1 - promise.target)} of the requests {promise.verb} longer than {time_text(promise.threshold)}"
    return "too_slow", f"even with hardly any traffic, {late}: {why}"


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


def _candidates(now: Configuration, fitted: Fit) -> Iterator[Mapping[str, float]]:
    """Yield the changes that may help."""
    yield {"instances": now.instances + now.gpus}
    if not now.dynamic_batching and now.max_batch_size > 1 and fitted.service.cv2 <= HEAVY_CV2:
        yield {"batching": 1}
    if now.dynamic_batching and now.max_batch_size:
        yield {"max_batch_size": 2 * now.max_batch_size}
        if now.delay:
            yield {"delay_ms": 0}
    yield {"replicas": fitted.servers + 1}


class Play:
    """Simulations of one model under one objective."""

    def __init__(self, fitted: Fit, promise: Promise, now: Configuration) -> None:
        self.fit, self.promise, self.now = fitted, promise, now
        self.breaks = cache(self._breaks)

    def change(self, what: Mapping[str, float]) -> Change:
        now, then, servers = self.now, apply(self.now, what), int(what.get("replicas", self.fit.servers))
        breaks, setting = self.breaks(then).times(servers / self.fit.servers), then.setting(self.fit.rows)
        if note := setting.stalls:
            breaks = Range(None, None, breaks.most)
        elif setting.max_batch == 1 and what.keys() & {"max_batch_size", "delay_ms", "max_queue_size"}:
            note = "without batching, max_batch_size, delay_ms and max_queue_size change nothing"
        elif then.kind == "gpu" and then.instances > now.instances:
            breaks = Range(self.breaks(replace(then, instances=now.instances)).least, None, breaks.most)
            note = "instances share the GPU: counters do not show how much they gain"
        elif then.instances > now.instances:
            note = "if the machine has processors left"
        elif then.max_batch_size > now.max_batch_size:
            note = "if the model can"
        elif then.dynamic_batching and not now.dynamic_batching:
            note = "how long larger batches take is not known: turn it on, and ask again in ten minutes"
        if not breaks.most and setting.delay > self.promise.threshold:
            note = f"the batcher delays requests by up to {time_text(setting.delay)}"
        was = asdict(now) | {"delay_ms": 1000 * now.delay, "max_queue_size": now.limit}
        was |= {"batching": now.dynamic_batching, "replicas": self.fit.servers}

        def shown(name: str, value: float) -> str:
            return ("off", "on")[value > 0] if name == "batching" else digits(value, 6)

        name = ", ".join(f"{key}={shown(key, to)} (now {shown(key, was[key])})" for key, to in what.items())
        wait = refused = None
        if breaks.estimate is not None:
            today = simulate(setting, self.fit.service, self.fit.rate / servers, self.fit.burst)
            wait = sorted(today.waits)[int(0.99 * len(today.waits))]
            refused = today.refused / (today.refused + len(today.waits))
        return Change(name, what, breaks, note, wait, refused)

    def harms(self, what: Mapping[str, float]) -> bool:
        """Return whether a change may lower the break rate to less than the traffic with some room."""
        return self.change(what).breaks.low < min(self.breaks(self.now).low, ROOM * self.fit.rate)

    def _breaks(self, configuration: Configuration) -> Range:
        """Return the highest rate, of all servers, at which the objective is met."""
        fitted, full = self.fit, configuration.setting(self.fit.rows).max_batch
        service, slow, fast = fitted.service, fitted.slow, fitted.fast
        if service.cv2 > HEAVY_CV2:
            # The same variation may come from many executions that are late or from a few that last very long:
            # what is certain is that requests do not wait less than if no execution varied.
            return Range(None, None, (1 + MARGIN) * self._break(configuration, replace(fast, cv2=0.0)))
        limits = [self._break(configuration, each) for each in (service, slow, fast)]
        # Where a full batch may take so much longer than at best, only limits are given.
        estimate = None if slow.seconds(full) > 1.3 * fast.seconds(full) else limits[0]
        # Where it may be broken at any traffic, only an upper limit is known.
        least = (1 - MARGIN) * min(limits) or None
        return Range(least, estimate if least else None, (1 + MARGIN) * max(limits))

    def _break(self, configuration: Configuration, service: Service) -> float:
        """Return the highest rate up to which the objective is met, beginning with the traffic of now."""
        setting, servers = configuration.setting(self.fit.rows), self.fit.servers
        capacity = setting.instances * setting.max_batch / service.seconds(setting.max_batch)
        rate = max(min(self.fit.rate / servers, capacity), capacity / 20)

        def is_met(rate: float) -> bool:
            return self.bad(setting, service, rate) <= 1 - self.promise.target

        while not is_met(rate):
            rate /= 1.25
            if rate < capacity / 1000:
                return 0.0
        return servers * highest(is_met, rate, capacity, precision=0.01)

    def bad(self, setting: Setting, service: Service, rate: float) -> float:
        """Return the share of requests that are late or refused on one server, roughly where it is far from the allowed one."""
        allowed, bad = 1 - self.promise.target, 0.0
        # Few where the answer is clear, more for a tail.
        for requests in (4_000, max(8_000, min(100_000, round(200 / allowed)))):
            outcome = simulate(setting, service, rate, self.fit.burst, requests=requests)
            took, limit = outcome.waits, self.promise.threshold
            if self.promise.signal == "latency":
                took, limit = outcome.times, limit - self.fit.overhead
            late = sum(1 for each in took if each > limit)
            bad = (outcome.refused + late) / (outcome.refused + len(took))
            if bad > 3 * allowed or (bad < allowed / 3 and requests * allowed > 20):
                break  # clear already
        return bad
