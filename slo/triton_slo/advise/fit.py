"""What the counters say about a model: how long it works, how its requests come, and whether the simulation agrees.

An execution of n requests takes `fixed + each * n` seconds. Its mean comes from sums over all executions, its
variation from the spread of sums over steps of some seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev

import numpy as np

from triton_exporter.common.duration import measured_text
from triton_slo.advise.measured import Configuration, Step, total
from triton_slo.advise.simulate import Service, Setting, Traffic, simulate

BLOCKS = 12
"""Parts of the time that are compared with each other."""
LEVELS = 4
"""Rates at which the present is played: the wait at the mean rate is not the mean wait."""
STRANGE = 0.1
"""A part whose executions take longer or shorter by more than this share is not used."""
_PLAYED = 10_000
"""Requests that are played at each of these rates."""
READ_APART = 0.2
"""Seconds between the exporter's readings of metrics and of statistics."""
SHARED_T, SHARED = 4.0, 0.02
"""Student's t, and the share of the executions' time, from which a slope over other models' work shows a shared device."""
LARGE_Z = 3.0
"""A measured wait so many standard errors from the modelled one contradicts the model."""


class UnfitError(Exception):
    """The counters do not allow advice; `reason` is a word, the message a sentence."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Fit:
    """What the counters say, in requests of `rows` inferences and in seconds.

    `rate` is that of all servers, `peak` that of the busiest twelfth of the time. `slow` and `fast` are the ends of what the counters allow, two standard errors away: an execution of a mean
    batch takes the same with all three, and a larger one differs.
    `overhead` is the time of a request outside of queue and execution, `left_out` the share of the steps that are
    unlike the rest.
    """

    service: Service
    slow: Service
    fast: Service
    rows: int
    rate: float
    peak: float
    burst: float
    servers: int
    overhead: float
    executions: float
    utilization: float
    wait: float
    modelled_wait: float
    z: float
    left_out: float


def fit(steps: Sequence[Step], configuration: Configuration, target: float, threshold: float) -> Fit:
    """Return what the counters say of a model. Raises UnfitError where they do not allow advice.

    `target` and `threshold` (seconds) say how many executions are needed, and how far off a wait may be.
    """
    _refuse_unknown(configuration)
    if configuration.setting().max_batch == 1:
        # Each execution has one request, whose time is read at the same moment as their number.
        steps = [replace(step, busy_seconds=step.compute_seconds) for step in steps]
    active = [step for step in steps if step.executions > 0 and step.requests > 0]
    _require_executions(active, target)
    each = total(active).inferences / total(active).requests
    if abs(each - round(each)) > 0.03 * each or each < 0.5:
        text = f"requests have {each:.2f} inferences on average: the mix of sizes is not known"
        raise UnfitError("mixed_batches", text)
    rows = round(each)
    kept = _without_disturbances(active, _services(active, rows)[0])
    _require_executions(kept, target)
    service, slow, fast = _services(kept, rows)
    _refuse_shared_device(kept, service)
    # Steps that were idle count: they are part of the time in which the requests came.
    known = {(step.server, step.at) for step in kept}
    used = [step for step in steps if not step.executions or (step.server, step.at) in known]
    servers = _servers(used)
    whole, used_whole = total(kept), total(used)
    utilization = used_whole.busy_seconds / used_whole.seconds / configuration.instances
    played = Played(configuration.setting(rows), kept)
    burst, modelled, z = played.match((service, slow, fast), _dispersion(used), threshold, utilization > 0.95)
    outside = whole.request_seconds - whole.queue_seconds - whole.compute_seconds
    return Fit(
        service=service,
        slow=slow,
        fast=fast,
        rows=rows,
        rate=(used_whole.requests + used_whole.failures) / len({step.at for step in used}) / used[0].seconds,
        peak=played.blocks[-1].requests / played.blocks[-1].seconds * servers,
        burst=burst,
        servers=servers,
        overhead=max(0.0, outside / whole.requests),
        executions=whole.executions,
        utilization=utilization,
        wait=played.wait,
        modelled_wait=modelled,
        z=z,
        left_out=1 - len(kept) / len(active),
    )


def _refuse_unknown(configuration: Configuration) -> None:
    if configuration.steps:
        names = ", ".join(dict.fromkeys(configuration.steps))
        raise UnfitError("ensemble", f"an ensemble waits in the queues of its steps: ask about {names}")
    if configuration.unsupported:
        raise UnfitError("unsupported", f"not tried with {', '.join(configuration.unsupported)}")
    if configuration.limit and configuration.setting().max_batch == 1:
        raise UnfitError(
            "stalls",
            "with max_queue_size and batches of one, Triton lets requests wait beside a free instance for up to "
            "0.5 s; set max_batch_size above 1, or no max_queue_size",
        )


def _require_executions(steps: Sequence[Step], target: float) -> None:
    """Raise UnfitError where there are not twenty executions beyond the target: no tail is seen."""
    needed, there = round(20 / (1 - target)), total(steps).executions
    if len(steps) < 5 or there < needed:
        raise UnfitError(
            "too_little_data",
            f"{there:.0f} executions in {len(steps)} steps are too few: {needed} in at least 5 steps are needed "
            f"for a target of {target:.4g}, since the configuration last changed",
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


def _variation(steps: Sequence[Step], service: Service) -> tuple[float, float]:
    """Return the squared variation of executions around their mean, from the spread of the sums, and its error.

    What a reading cuts off one step it adds to the next: the products of neighbours take that away again.
    """
    off = {
        (step.server, step.at): (step.busy_seconds - _expected(step, service))
        / step.busy_seconds
        * step.executions**0.5
        for step in steps
    }
    squares = math.fsum(value * value for value in off.values()) / max(1, len(off) - 2)
    after = ((step.server, step.at + step.seconds) for step in steps)
    products = [
        off[step.server, step.at] * off[key] for step, key in zip(steps, after, strict=True) if key in off
    ]
    cv2 = max(0.0, squares + min(0.0, 2 * math.fsum(products) / max(1, len(products))))
    return cv2, squares * 2 / len(off) ** 0.5


def _blocks(steps: Sequence[Step]) -> list[list[Step]]:
    ordered = sorted(steps, key=lambda step: step.at)
    size = math.ceil(len(ordered) / BLOCKS)
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _without_disturbances(steps: Sequence[Step], service: Service) -> list[Step]:
    """Return the steps of the parts of the time in which executions took what they take in most."""
    blocks = _blocks(steps)
    ratios = [total(block).busy_seconds / _expected(total(block), service) for block in blocks]
    middle = median(ratios)
    noise = 1.5 * median(abs(ratio - middle) for ratio in ratios)
    limit = max(STRANGE * middle, 4 * noise)
    alike = [block for block, ratio in zip(blocks, ratios, strict=True) if abs(ratio - middle) <= limit]
    if len(alike) < len(blocks) / 2 or noise > 3 * STRANGE * middle:
        text = "executions take longer at some times than at others, and nothing that Triton counts says why"
        raise UnfitError("unsteady", text)
    return [step for block in alike for step in block]


def _refuse_shared_device(steps: Sequence[Step], service: Service) -> None:
    """Raise UnfitError where executions take longer the more another model of the server works."""
    totals: dict[str, float] = defaultdict(float)
    for step in steps:
        for name, instances in step.others_busy.items():
            totals[name] += instances
    weights = np.sqrt([step.executions for step in steps])
    ratios = [step.busy_seconds / _expected(step, service) for step in steps]
    for name in sorted(totals, key=lambda name: -totals[name])[:5]:
        busy = [step.others_busy.get(name, 0.0) for step in steps]
        if np.ptp(busy) < 0.001:
            continue
        (slope, _), covariance = np.polyfit(busy, ratios, 1, w=weights, cov=True)
        t = slope / max(1e-9, covariance[0, 0] ** 0.5)
        if t > SHARED_T and slope * fmean(busy) > SHARED:
            raise UnfitError(
                "shared_device",
                f"executions take longer while {name} works (t {t:.0f}): they share a device, and what one of "
                "them gains the other loses",
            )


def _dispersion(steps: Sequence[Step]) -> tuple[float, float]:
    """Return the index of dispersion of arrivals, and its standard error; slow changes of the rate do not count."""
    counts = {(step.server, step.at): step.requests for step in steps}
    after = ((step, counts.get((step.server, step.at + step.seconds))) for step in steps)
    squares = [(count - step.requests) ** 2 for step, count in after if count is not None]
    if len(squares) < 4:
        return 1.0, math.inf
    index = math.fsum(squares) / 2 / len(squares) * len(counts) / math.fsum(counts.values())
    return index, index * (3 / len(squares)) ** 0.5


def _servers(steps: Sequence[Step]) -> int:
    """Return the number of servers that get requests now. Raises UnfitError where their rates differ much."""
    by_server: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_server[step.server].append(step)
    last = max(step.at for step in steps)
    now = [total(own) for own in by_server.values() if own[-1].at >= last - 2 * own[-1].seconds]
    rates = [own.requests / own.seconds for own in now]
    serving = [rate for rate in rates if rate > 0.01 * sum(rates)]
    if (share := max(serving) / sum(serving)) * len(serving) > 1.25:
        text = f"one of {len(serving)} servers gets {share:.0%} of the requests: balance them first"
        raise UnfitError("unbalanced", text)
    return len(serving)


class Played:
    """The mean wait of the present, measured and played, at the rates of its parts."""

    def __init__(self, setting: Setting, steps: Sequence[Step]) -> None:
        self.setting = setting
        blocks = map(total, _blocks(steps))
        self.blocks = sorted(blocks, key=lambda block: block.requests / block.seconds)
        self.wait = total(self.blocks).queue_seconds / total(self.blocks).requests

    def waits(self, service: Service, burst: float) -> tuple[float, float]:
        """Return the modelled mean wait, and how many standard errors the measured one is above it."""
        size = math.ceil(len(self.blocks) / LEVELS)
        queued, chance = [], []  # modelled seconds of each block; how far those of a level are off by chance
        for i in range(0, len(self.blocks), size):
            blocks = self.blocks[i : i + size]
            requests = total(blocks).requests
            traffic = Traffic(requests / total(blocks).seconds, burst)
            outcome = simulate(self.setting, service, traffic, _PLAYED, seed=1 + i)
            queued += [outcome.mean_wait * block.requests for block in blocks]
            parts = [fmean(outcome.waits[k : k + 250]) for k in range(0, len(outcome.waits) - 249, 250)]
            # Both what was measured and what is played are samples.
            scatter = 250**0.5 * stdev(parts) if len(parts) > 1 else 0.0
            chance.append(scatter * math.hypot(requests**0.5, requests / _PLAYED**0.5))
        requests = total(self.blocks).requests
        modelled = max(1e-9, math.fsum(queued) / requests)
        scale = self.wait / modelled
        off = (block.queue_seconds - scale * each for block, each in zip(self.blocks, queued, strict=True))
        error = math.hypot(*off, *chance) / requests
        return modelled, (self.wait - modelled) / math.hypot(error, 0.05 * modelled)

    def match(
        self,
        services: tuple[Service, Service, Service],
        dispersion: tuple[float, float],
        threshold: float,
        saturated: bool,
    ) -> tuple[float, float, float]:
        """Return the burst with which the model waits as was measured, the wait with it, and z.

        Raises UnfitError where neither arrivals that the counts allow nor another variation explain the wait. While
        instances are always busy (`saturated`) the queue grows, and the wait depends on when that began.
        """
        service, slow, fast = services
        burst, (modelled, z) = 1.0, self.waits(service, 1.0)
        # A thousandth of the threshold is no matter; a hundredth Triton itself may take.
        if z < -LARGE_Z and self.wait < 0.75 * modelled - 0.001 * threshold:
            least, least_z = self.waits(fast, 1.0)
            if least_z < -LARGE_Z:
                raise UnfitError(
                    "paced_clients",
                    f"requests wait {measured_text(self.wait)} on average, and would wait {measured_text(least)} or "
                    f"more if they came independently (z {least_z:.1f}): clients wait for answers before they send "
                    "more, or are paced, so that the number of clients, not a rate, breaks the objective",
                )
        if saturated:
            return 1.0, modelled, z
        index, error = dispersion
        if z > LARGE_Z and self.wait - modelled > 0.01 * threshold and index - 2 * error > 1:
            low, high = 1.0, index + 2 * error
            while high - low > 0.05 * low:
                burst = (low + high) / 2
                modelled, z = self.waits(service, burst)
                low, high = (burst, high) if z > 0 else (low, burst)
        if z > LARGE_Z and self.wait - modelled > 0.1 * threshold:
            most, most_z = self.waits(slow, burst)
            if most_z > LARGE_Z:
                idle = "; with a max_queue_size, Triton 2.51 sometimes leaves an instance idle until the next request"
                raise UnfitError(
                    "other_delay",
                    f"requests wait {measured_text(self.wait)} on average, not {measured_text(most)} or less as "
                    f"expected (z {most_z:.1f}), and do not come in such bursts: something else delays them"
                    + (idle if self.setting.limit else ""),
                )
        return burst, modelled, z
