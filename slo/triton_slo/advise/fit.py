"""What the counters say about a model: how long it works, how its requests come, and whether the simulation agrees.

An execution of n requests takes `fixed + each * n` seconds. Its mean comes from sums over all executions, its
variation from the spread of sums over steps of some seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from statistics import fmean, median, stdev

import numpy as np

from triton_exporter.common.duration import measured_text
from triton_slo.advise.measured import Configuration, Promise, Step, total, totals
from triton_slo.advise.simulate import Service, Setting, simulate

STRANGE = 0.1
"""A part whose executions take longer or shorter by more than this share is not used."""
_PLAYED = 5_000
"""Requests that are played for each part of the time."""
READ_APART = 0.2
"""Seconds between the exporter's readings of metrics and of statistics."""
LARGE_Z = 3.0
"""A measured wait so many standard errors from the modelled one contradicts the model."""
SLOWER = 1.5
"""Executions that take so many times as long are the reason of an overload, however few: that the queue grew is no chance."""
ALIKE = 1.25
"""Traffic within this factor of that before is not."""
ENOUGH = 20
"""So many executions and requests tell what was before."""
PRESENT = (300.0, 60.0, 0.0)
"""Seconds that may be the present; 0 is one step."""


class UnfitError(Exception):
    """The counters do not allow advice; its arguments are a word, and a sentence."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What the counters say, in requests of `rows` inferences and in seconds.

    `slow` and `fast` are the ends of what the counters allow, two standard errors away: an execution of a mean batch takes the
    same with all three. `peak` is the rate of the busiest twelfth of the time. `overhead` is the time of a
    request outside of queue and execution, `left_out` the share of the steps that are unlike the rest, `batch` the largest mean
    of a step in requests. Waits are those outside of overloads. The `rate` of all servers, and `utilization`, are those of the
    `seconds` before `until` (Unix time).
    """

    service: Service
    slow: Service
    fast: Service
    rows: int
    peak: float
    burst: float
    servers: int
    overhead: float
    executions: float
    instances: int
    wait: float
    modelled_wait: float
    z: float
    left_out: float
    batch: float
    rate: float = 0.0
    utilization: float = 0.0
    seconds: float = 0.0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Overload:
    """A time (Unix) in which more requests a second came than all instances answered.

    It ends when instances are free again; it `lasts` until the queue gets shorter. `took` are the seconds of an execution in
    it, 0 where none succeeded, and `took_before` those before it, 0 where too few did. `growth` is how many times as many
    inferences came as before.
    """

    since: float
    until: float
    lasts: bool
    rate: float
    capacity: float
    took: float = 0.0
    took_before: float = 0.0
    growth: float = 0.0

    @property
    def is_slowness(self) -> bool:
        """Whether executions that take longer, or do not end, are why, and not more traffic."""
        is_longer = not self.took or self.took >= SLOWER * self.took_before
        return self.took_before > 0 and is_longer and self.growth <= ALIKE

    def covers(self, step: Step) -> bool:
        """Return whether requests that waited in that queue may be in a step."""
        return self.since - step.seconds < step.at <= self.until + step.seconds


def present(fitted: Fit, steps: Sequence[Step]) -> Fit:
    """Return the fit with the traffic of the last minutes in which requests came, or of less where more come since."""
    moments, length, rate = totals(steps, attrgetter("at")), steps[0].seconds, 0.0
    while len(moments) > 1 and moments[-1].came <= 0:
        moments.pop()
    for span in PRESENT:
        recent = moments[-max(1, round(span / length)) :]
        sums, seconds = total(recent), length * len(recent)
        if not rate or sums.came - rate * seconds > LARGE_Z * (fitted.burst * rate * seconds) ** 0.5:
            rate, busy = max(1.0, sums.came) / seconds, sums.busy_seconds / sums.seconds / fitted.instances
            fitted = replace(fitted, rate=rate, utilization=busy, seconds=seconds, until=sums.at)
    return fitted


def overloads(steps: Sequence[Step], configuration: Configuration) -> list[Overload]:
    """Return when the queue grew by more than chance explains while all instances were busy.

    Where clients wait for answers, it stops growing at their number.
    """
    found, moments = list[Overload](), totals(steps, attrgetter("at"))
    # At least so many requests wait at the end of each step.
    queue = accumulate((sums.waiting for sums in moments), lambda before, more: max(0.0, before + more))
    queued: dict[float, float] = dict(zip((sums.at for sums in moments), queue, strict=True))

    def is_busy(sums: Step) -> bool:  # readings that are apart leave out some of the time
        if not sums.executions:
            return queued[sums.at] > 0
        # What each instance has begun is counted when it ends.
        begun = configuration.instances * sums.seconds / steps[0].seconds
        busy_seconds = sums.busy_seconds * (1 + begun / sums.executions)
        return sums.requests > 0 and busy_seconds > 0.9 * configuration.instances * sums.seconds

    for run in [list(own) for busy, own in groupby(moments, is_busy) if busy]:
        # What a queue with a limit rejects would otherwise wait.
        levels = [0.0, *accumulate(sums.waiting + sums.failures * (configuration.limit > 0) for sums in run)]
        peak = levels.index(max(levels))
        first = max((k for k in range(peak) if levels[k] <= levels[peak] / 10), default=0)
        rise, grown, last = total(run[first:peak]), levels[peak] - levels[first], run[-1]
        late = levels[peak] - levels[(first + peak) // 2]
        chance = LARGE_Z * max(1.0, rise.requests) ** 0.5
        if peak - first < 2 or grown <= chance or late < grown / 4:
            continue
        length = steps[0].seconds
        seconds = length * (peak - first)
        since = max(run[0].at, run[first].at - levels[first] * seconds / grown) - length
        # The first step, and the one before it, may have executions of both.
        calm = [s for s in steps if s.at <= since - length and not any(each.covers(s) for each in found)]
        before, during = total(calm), total(run[first + 1 : peak])
        over = Overload(
            since=since,
            until=last.at,
            lasts=last is moments[-1] and last.waiting > -LARGE_Z * max(1.0, last.requests) ** 0.5,
            rate=rise.came / seconds,
            capacity=(rise.requests + rise.failures * (configuration.limit == 0)) / seconds,
        )
        if min(before.executions, before.requests) >= ENOUGH:
            during = during if during.executions else rise
            took_before, took = (each.busy_seconds / max(1.0, each.executions) for each in (before, during))
            # On each server: where one dies, the others get its traffic.
            came, usual = (max(1.0, sums.came) / sums.seconds for sums in (rise, before))
            size = (
                rise.inferences * before.requests / rise.requests / before.inferences if rise.requests else 1
            )
            if took or seconds >= SLOWER * took_before:
                over = replace(over, took=took, took_before=took_before, growth=size * came / usual)
        found.append(over)
    return found


def fit(
    steps: Sequence[Step],
    configuration: Configuration,
    promise: Promise,
    over: Sequence[Overload],
    fewer: Step,
) -> Fit:
    """Return what the counters say of a model. Raises UnfitError where they do not allow advice, `fewer` among them.

    The objective says how many executions are needed, and how far off a wait may be.
    """
    if configuration.steps:
        names = ", ".join(dict.fromkeys(configuration.steps))
        raise UnfitError("ensemble", f"an ensemble waits in the queues of its steps: ask about {names}")
    if configuration.unsupported:
        raise UnfitError("unsupported", f"not tried with {', '.join(configuration.unsupported)}")
    if configuration.setting().max_batch == 1:
        # Each execution has one request, whose time is read at the same moment as their number.
        steps = [replace(step, busy_seconds=step.compute_seconds) for step in steps]
    active = [step for step in steps if step.executions > 0 and step.requests > 0]
    _require_executions(active, promise.target)
    each = total(active).inferences / total(active).requests
    if abs(each - round(each)) > 0.03 * each or each < 0.5:
        text = f"requests have {each:.2f} inferences on average: the mix of sizes is not known"
        raise UnfitError("mixed_batches", text)
    rows = round(each)
    setting = configuration.setting(rows)
    if setting.stalls:
        raise UnfitError("queue_limit", f"{setting.stalls}; leave the limit out")
    kept = _without_disturbances(active, _services(active, rows)[0])
    _require_executions(kept, promise.target)
    services = _services(kept, rows)
    if fewer.executions >= ENOUGH:
        # However much longer a larger batch takes: those batches, as they would take now.
        took = min(_expected(fewer, each) for each in services)
        if took > SLOWER * fewer.busy_seconds:
            now, then = (measured_text(each / fewer.executions) for each in (took, fewer.busy_seconds))
            text = f"executions take {now}, and took {then} with fewer instances: they share a device, a lock or processors"
            raise UnfitError("shared_device", f"{text}, or something else made them slower")
    _refuse_shared_device(kept, services[0], setting)
    moments, lasts = totals(steps, attrgetter("at")), bool(over) and over[-1].lasts
    last = moments[-max(1, round(PRESENT[1] / steps[0].seconds)) :]
    recent = total(last)
    if not lasts and moments[-1].waiting > 0 and recent.waiting > LARGE_Z * max(1.0, recent.came) ** 0.5:
        text = f"{recent.came:.0f} requests came in the last minute, {recent.requests:.0f} were answered"
        raise UnfitError("load_changed", f"the load changed: {text}; ask again in a minute")
    wait = max(sums.queue_seconds / sums.seconds for sums in last)
    if setting.limit and wait > setting.limit / 2 and not lasts:
        text = f"{wait:.0f} of at most {setting.limit} requests wait, and Triton does not count all that it rejects"
        raise UnfitError("queue_limit", f"the queue is full: {text}, so that it is not known how many come")
    # Steps that were idle count: they are part of the time in which the requests came.
    known = {(step.server, step.at) for step in kept}
    used = [step for step in steps if not step.executions or (step.server, step.at) in known]
    servers, whole = _servers(used), total(kept)
    calm = [step for step in used if not any(each.covers(step) for each in over)]
    # The last step may be the beginning of an overload.
    waited = [step for step in calm if step.executions and step.at < moments[-1].at]
    burst, played = 1.0, Played(0.0, 0.0, 0.0, 0.0, 1.0)
    if waited:
        burst, played = _match(setting, waited, services, _dispersion(calm), promise.threshold)
    outside = whole.request_seconds - whole.queue_seconds - whole.compute_seconds
    fitted = Fit(
        *services,
        rows=rows,
        peak=servers * max(total(part).rate for part in _parts(kept)),
        burst=burst,
        servers=servers,
        overhead=max(0.0, outside / whole.requests),
        executions=whole.executions,
        instances=configuration.instances,
        wait=played.wait,
        modelled_wait=played.modelled_wait,
        z=played.z,
        left_out=1 - len(kept) / len(active),
        batch=max(step.requests / step.executions for step in kept),
    )
    return present(fitted, steps)


def _require_executions(steps: Sequence[Step], target: float) -> None:
    """Raise UnfitError where there are not twenty executions beyond the target: no tail is seen."""
    needed, there = round(20 / (1 - target)), total(steps).executions
    if len(steps) < 5 or there < needed:
        text = f"{there:.0f} executions in {len(steps)} steps are too few: {needed} in at least 5 steps are needed"
        raise UnfitError(
            "too_little_data", f"{text} for a target of {target:.4g}, since the configuration last changed"
        )


def _services(steps: Sequence[Step], rows: int) -> tuple[Service, Service, Service]:
    """Return the service time by least squares over all executions, and the slowest and fastest that it may be.

    Counters have the sums over executions that this takes: requests, their squares, seconds, and requests * seconds.
    Sums over steps would mislead: a slow execution makes the next batch large.
    """
    whole = total(steps)
    executions, requests, seconds = whole.executions, whole.requests, whole.busy_seconds
    spread = whole.squares / rows**2 - requests * requests / executions
    varies = spread > 0.01 * executions  # otherwise nothing is known of the slope
    each = (whole.compute_seconds - requests * seconds / executions) / spread if varies else 0.0

    def service(each: float, cv2: float = 0.0) -> Service:
        each = min(max(0.0, each), seconds / requests)
        return Service(max(0.0, seconds - each * requests) / executions, each, max(0.0, cv2))

    cv2, cv2_error = _variation(steps, service(each))
    each_error = math.inf
    if varies:
        apart = READ_APART / whole.seconds * requests * seconds / executions / spread
        each_error = math.hypot(seconds / executions * (cv2 / spread) ** 0.5, apart)
    return (
        service(each, cv2),
        service(each + 2 * each_error, cv2 + 2 * cv2_error),
        service(each - 2 * each_error, cv2 - 2 * cv2_error),
    )


def _expected(step: Step, service: Service) -> float:
    """Return the busy seconds that a step's executions should take."""
    return service.fixed * step.executions + service.each * step.requests


def _off(step: Step, service: Service) -> float:
    """Return by how much a step's executions are longer than expected, in parts of one's variation."""
    return (step.busy_seconds / _expected(step, service) - 1) * math.sqrt(step.executions)


def _neighbours(steps: Sequence[Step]) -> list[tuple[Step, Step]]:
    """Return each step with the next one of its server."""
    pairs = pairwise(sorted(steps, key=attrgetter("server", "at")))
    return [(one, two) for one, two in pairs if (one.server, one.at + one.seconds) == (two.server, two.at)]


def _variation(steps: Sequence[Step], service: Service) -> tuple[float, float]:
    """Return the squared variation of executions around their mean, from the spread of the sums, and its error.

    What a reading cuts off one step it adds to the next: the products of neighbours take that away again, up to as much
    as readings that are apart can cut off. Where each execution has one request, they are not.
    """
    squares = math.fsum(_off(step, service) ** 2 for step in steps) / max(1, len(steps) - 2)
    products = [_off(step, service) * _off(following, service) for step, following in _neighbours(steps)]
    apart = any(step.busy_seconds != step.compute_seconds for step in steps)
    most = apart * (READ_APART / steps[0].seconds) ** 2 * fmean(step.executions for step in steps)
    cv2 = squares - min(max(0.0, -2 * fmean(products or [0.0])), most, squares)
    return cv2, squares * 2 / len(steps) ** 0.5


def _parts(steps: Sequence[Step]) -> list[list[Step]]:
    """Return the steps of twelve parts of the time."""
    ordered = sorted(steps, key=attrgetter("at"))
    size = math.ceil(len(ordered) / 12)
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _without_disturbances(steps: Sequence[Step], service: Service) -> list[Step]:
    """Return the steps of the parts of the time in which executions took what they take in most."""
    parts = _parts(steps)
    ratios = [block.busy_seconds / _expected(block, service) for block in map(total, parts)]
    middle = median(ratios)
    noise = 1.5 * median(abs(ratio - middle) for ratio in ratios)
    # Of few executions that vary, a part differs by chance.
    one = median(abs(_off(step, service)) for step in steps)
    limit = max(STRANGE * middle, 4 * noise, 6 * one / (total(steps).executions / len(parts)) ** 0.5)
    alike = [part for part, ratio in zip(parts, ratios, strict=True) if abs(ratio - middle) <= limit]
    if len(alike) < len(parts) / 2 or noise > 3 * STRANGE * middle:
        text = "executions take longer at some times than at others, and nothing that Triton counts says why"
        raise UnfitError("unsteady", text)
    return [step for part in alike for step in part]


def _refuse_shared_device(steps: Sequence[Step], service: Service, setting: Setting) -> None:
    """Raise UnfitError where executions take longer the more the model's other instances, or another model of the server, work."""
    weights = np.sqrt([step.executions for step in steps])
    ratios = np.array([step.busy_seconds / _expected(step, service) for step in steps])

    def grows(works: Sequence[float], part: slice) -> bool:
        works = works[part]
        if len(works) < 5 or np.ptp(works) < 0.001:
            return False
        (slope, _), covariance = np.polyfit(works, ratios[part], 1, w=weights[part], cov=True)
        # Proven, and of some size: by 1 % where the other works as much as a standard deviation above its mean.
        return bool(slope > 3 * covariance[0, 0] ** 0.5 and slope * np.std(works) > 0.01)

    names = dict.fromkeys(name for step in steps for name in step.others_busy)
    busy = {name: [step.others_busy.get(name, 0.0) for step in steps] for name in names}
    most = sorted(busy, key=lambda name: -sum(busy[name]))[:5]
    others = "other models work more (most clearly {}): they share a device, a lock or processors, or just get more requests "
    found = {others.format(name) + "at the same times": busy[name] for name in most}
    if setting.instances > setting.max_batch == 1:  # a larger batch takes longer anyway
        alone = "more of them run: instances share a device, a lock or processors"
        found = {alone: [step.executions / step.seconds for step in steps], **found}
    half = len(steps) // 2
    for when, works in found.items():
        # In each half: where traffic rises together once, so do the executions of one that gets slower with its own.
        if grows(works, slice(half)) and grows(works, slice(half, None)):
            raise UnfitError("shared_device", f"executions take longer at times at which {when}")


def _dispersion(steps: Sequence[Step]) -> tuple[float, float]:
    """Return the index of dispersion of arrivals, and the most that it may be; slow changes of the rate do not count."""
    squares = sorted((after.requests - step.requests) ** 2 for step, after in _neighbours(steps))
    if len(squares) < 10:
        return 1.0, math.inf
    # The largest tenth may be jumps: traffic that begins or ends. Without it a normal distribution has 0.623 of it.
    usual = fmean(squares[: round(0.9 * len(squares))]) / 0.623
    index = usual / 2 / fmean(step.requests for step in steps)
    return index, index * (1 + 2 * (3 / len(squares)) ** 0.5)


def _servers(steps: Sequence[Step]) -> int:
    """Return the number of servers that get requests now. Raises UnfitError where their rates differ much."""
    servers = totals(steps, attrgetter("server"))
    since = max(step.at for step in steps) - 2 * steps[0].seconds
    rates = [server.rate for server in servers if server.at >= since]
    serving = [rate for rate in rates if rate > 0.01 * sum(rates)]
    if (share := max(serving) / sum(serving)) * len(serving) > 1.25:
        text = f"one of {len(serving)} servers gets {share:.0%} of the requests: balance them first"
        raise UnfitError("unbalanced", text)
    return len(serving)


@dataclass(frozen=True, slots=True)
class Played:
    """The mean wait of the present as measured and as modelled, and how many standard errors lie between.

    `z_batch` is that of the mean batch, `usual` the wait of the median part of the time over the modelled one.
    """

    wait: float
    modelled_wait: float
    z: float
    z_batch: float
    usual: float


def waits_less(found: Fit | Played, threshold: float) -> bool:
    """Return whether requests wait much less than modelled; a thousandth of the threshold is no matter."""
    return found.z < -LARGE_Z and found.wait < 0.75 * found.modelled_wait - 0.001 * threshold


def play(setting: Setting, steps: Sequence[Step], service: Service, burst: float) -> Played:
    """Play the present, at the rates of its parts."""
    blocks = list(map(total, _parts(steps)))
    # Of each: modelled seconds and executions, and how far off by chance.
    queued, executed, chance = [], [], []
    for number, block in enumerate(blocks):
        outcome = simulate(setting, service, block.rate, burst, requests=_PLAYED, seed=number)
        queued.append(outcome.mean_wait * block.requests)
        executed.append(outcome.executions / len(outcome.waits) * block.requests)
        parts = [fmean(outcome.waits[k : k + 250]) for k in range(0, len(outcome.waits) - 249, 250)]
        # Both what was measured and what is played are samples.
        scatter = 250**0.5 * stdev(parts) if len(parts) > 1 else 0.0
        chance.append(scatter * math.hypot(block.requests**0.5, block.requests / _PLAYED**0.5))

    def above(measured: Sequence[float], modelled: Sequence[float], chance: Sequence[float]) -> float:
        whole, expected = math.fsum(measured), max(1e-9, math.fsum(modelled))
        off = (one - whole / expected * other for one, other in zip(measured, modelled, strict=True))
        return (whole - expected) / math.hypot(*off, *chance, 0.05 * expected)

    sums, waited = total(blocks), [block.queue_seconds for block in blocks]
    return Played(
        wait=sums.queue_seconds / sums.requests,
        modelled_wait=math.fsum(queued) / sums.requests,
        z=above(waited, queued, chance),
        z_batch=-above([block.executions for block in blocks], executed, []),
        usual=median(one / max(1e-9, other) for one, other in zip(waited, queued, strict=True)),
    )


def highest(holds: Callable[[float], bool], least: float, most: float, precision: float) -> float:
    """Return the highest number up to which something holds that holds at `least`, and `most` at most."""
    low, high = least, min(1.25 * least, most)
    while high < most and holds(high):
        low, high = high, min(1.25 * high, most)
    while high - low > precision * low:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _match(
    setting: Setting,
    steps: Sequence[Step],
    services: tuple[Service, Service, Service],
    dispersion: tuple[float, float],
    threshold: float,
) -> tuple[float, Played]:
    """Return the burst with which requests wait, and fill batches, as was measured; and what comes with it.

    Raises UnfitError where arrivals that the counts allow do not explain how long they wait.
    """
    service, _, fast = services
    index, most = dispersion
    alone = play(setting, steps, service, 1.0)
    wait = alone.wait
    if waits_less(alone, threshold) and (least := play(setting, steps, fast, 1.0)).z < -LARGE_Z:
        raise UnfitError(
            "paced_clients",
            f"requests wait {measured_text(wait)} on average, and would wait {measured_text(least.modelled_wait)} or "
            f"more if they came independently (z {least.z:.1f}): clients wait for answers before they send "
            "more, or are paced, so that the number of clients, not a rate, breaks the objective",
        )

    def is_longer(played: Played, share: float) -> bool:
        return wait - played.modelled_wait > share * threshold

    # Where waits differ from time to time, no z is large. A hundredth of the threshold Triton itself may take.
    far = wait > 2 * alone.modelled_wait and is_longer(alone, 0.1)
    waits_longer = far or (alone.z > LARGE_Z and is_longer(alone, 0.01))

    def too_few(burst: float) -> bool:
        # Where a delay is most of the wait, bursts only fill the batches.
        played = play(setting, steps, service, burst)
        return (played.z if waits_longer else played.z_batch) > 0

    burst, played = 1.0, alone
    if waits_longer or alone.z_batch > LARGE_Z:
        # From small ones on: bursts that fill a batch do not wait for its delay.
        found = highest(too_few, 1.0, most, precision=0.05)
        # Are the counts likelier with these bursts than without?
        if index * (1 - 1 / found) > math.log(found):
            burst, played = found, play(setting, steps, service, found)
    rarely = far and played.usual < 0.3
    longer = is_longer(played, 0.1) and wait > 1.5 * played.modelled_wait and (far or played.z > LARGE_Z)
    if not (rarely or longer):
        return burst, played
    less = f"not {measured_text(played.modelled_wait)} or less as expected (z {played.z:.1f})"
    if rarely:
        less = "nearly all of it in a small part of the time"
    why = "and do not come in such bursts: something else delays them, or their rate changes by turns"
    if setting.limit:
        why += "; with a max_queue_size, Triton 2.51 sometimes leaves an instance idle until the next request"
    if most < 1:
        why = "and equally many come in every step: they come together at even intervals, or clients wait for answers"
    raise UnfitError(
        "paced_clients" if most < 1 else "other_delay",
        f"requests wait {measured_text(wait)} on average, {less}, {why}; or an overload was too short to be told from that",
    )
