"""What the counters say about a model: how long it works, how its requests come, and whether the simulation agrees.

An execution of n requests takes `fixed + each * n` seconds. Its mean comes from sums over all executions, its
variation from the spread of sums over steps of some seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from triton_slo.advise.measured import Configuration, Step
from triton_slo.advise.simulate import Service, Setting, Traffic, simulate

BLOCKS = 12
"""Parts of the time that are compared with each other."""
LEVELS = 4
"""Rates at which the present is played: the wait at the mean rate is not the mean wait."""
STRANGE = 0.1
"""A part whose executions take longer or shorter by more than this share is not used."""
READ_APART = 0.2
"""Seconds between the exporter's readings of metrics and of statistics."""
SHARED_T = 6.0
"""Student's t from which a slope over other models' work shows a shared device."""
LARGE_Z = 3.0
"""A measured wait so many standard errors from the modelled one contradicts the model."""
_SIMULATED = 5_000


class UnfitError(Exception):
    """The counters do not allow advice; `reason` is a word, the message a sentence."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Fit:
    """What the counters say, in requests (which may have several inferences each)."""

    service: Service
    least_each: float
    most_each: float
    """Limits of `service.each`; an execution of `mean_batch` requests takes the same with all of them."""
    mean_batch: float
    rows: int
    """Inferences of a request."""
    rate: float
    """Requests a second, of all servers."""
    burst: float
    servers: int
    overhead: float
    """Seconds of a request outside of queue and execution."""
    executions: float
    utilization: float
    dispersion: float
    """Variance of the requests in a step over their mean: 1 if they come independently."""
    wait: float
    """Mean seconds in the queue, as measured."""
    modelled_wait: float
    z: float
    left_out: float
    """Share of the steps that deviate, and are not used."""

    @property
    def traffic(self) -> Traffic:
        """The traffic of one server."""
        return Traffic(self.rate / self.servers, self.burst)

    def with_each(self, each: float) -> Service:
        """Return the service time with another slope, through the mean of what was measured."""
        fixed = self.service.seconds(self.mean_batch) - each * self.mean_batch
        return Service(max(0.0, fixed), each, self.service.cv2)


def fit(steps: Sequence[Step], configuration: Configuration, target: float, threshold: float) -> Fit:
    """Return what the counters say of a model. Raises UnfitError where they do not allow advice.

    `target` and `threshold` (seconds) say how many executions are needed, and how far off a wait may be.
    """
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
    if configuration.setting().max_batch == 1:
        # Each execution has one request, whose time is read at the same moment as their number.
        steps = [replace(step, busy_seconds=step.compute_seconds) for step in steps]
    active = [step for step in steps if step.executions > 0 and step.requests > 0]
    _require_executions(active, target)
    rows = _rows(active)
    kept = _without_disturbances(active, _service(active, rows))
    _require_executions(kept, target)
    service = _service(kept, rows)
    _refuse_shared_device(kept, service)
    error = _slope_error(kept, rows, service)
    executions, requests, *_ = _sums(kept, rows)
    mean_batch = max(1.0, requests / executions)
    # Steps that were idle count: they are part of the time in which the requests came.
    known = set(map(_moment, kept))
    used = [step for step in steps if not step.executions or _moment(step) in known]
    shares = _shares(used)
    arrived = math.fsum(step.requests + step.failures for step in used)
    seconds = math.fsum(step.seconds for step in used) / len(shares)
    compute = math.fsum(step.compute_seconds + step.queue_seconds for step in kept)
    setting = configuration.setting(rows)
    dispersion, dispersion_error = _dispersion(used)
    wait = math.fsum(step.queue_seconds for step in kept) / requests
    burst, modelled, z = _match_wait(Played(setting, service, kept), dispersion, dispersion_error, threshold)
    return Fit(
        service=service,
        least_each=max(0.0, service.each - 2 * error),
        most_each=min(service.seconds(mean_batch) / mean_batch, service.each + 2 * error),
        mean_batch=mean_batch,
        rows=rows,
        rate=arrived / seconds,
        burst=burst,
        servers=len(shares),
        overhead=max(0.0, (math.fsum(step.request_seconds for step in kept) - compute) / requests),
        executions=executions,
        utilization=math.fsum(step.busy_seconds for step in used)
        / math.fsum(step.seconds for step in used)
        / configuration.instances,
        dispersion=dispersion,
        wait=wait,
        modelled_wait=modelled,
        z=z,
        left_out=1 - len(kept) / len(active),
    )


def executions_needed(target: float) -> int:
    """Return how many executions show a tail: twenty beyond the target."""
    return round(20 / (1 - target))


def _moment(step: Step) -> tuple[str, float]:
    return step.server, step.at


def _require_executions(steps: Sequence[Step], target: float) -> None:
    needed, there = executions_needed(target), math.fsum(step.executions for step in steps)
    if len(steps) < 5 or there < needed:
        raise UnfitError(
            "too_little_data",
            f"{there:.0f} executions in {len(steps)} steps are too few: {needed} in at least 5 steps are needed "
            f"for a target of {target:.4g}, since the configuration last changed",
        )


def _rows(steps: Sequence[Step]) -> int:
    """Return the inferences of a request."""
    each = math.fsum(step.inferences for step in steps) / math.fsum(step.requests for step in steps)
    if abs(each - round(each)) > 0.03 * each or each < 0.5:
        raise UnfitError(
            "mixed_batches", f"requests have {each:.2f} inferences on average: the mix of sizes is not known"
        )
    return round(each)


def _service(steps: Sequence[Step], rows: int) -> Service:
    """Return the service time by least squares over all executions, of which the counters have the sums.

    The slope is 0 where batches do not vary. Sums over steps would mislead: a slow execution makes the next batch large.
    """
    executions, requests, of_requests, squares = _sums(steps, rows)
    busy = math.fsum(step.busy_seconds for step in steps)
    spread = squares - requests * requests / executions
    each = (of_requests - requests * busy / executions) / spread if spread > 0.01 * executions else 0.0
    each = min(max(0.0, each), busy / requests)
    mean = Service(max(0.0, busy - each * requests) / executions, each)
    return replace(mean, cv2=_variation(steps, mean))


def _sums(steps: Sequence[Step], rows: int) -> tuple[float, float, float, float]:
    """Return sums over executions: 1, requests, requests * seconds, and requests squared."""
    return (
        math.fsum(step.executions for step in steps),
        math.fsum(step.requests for step in steps),
        math.fsum(step.compute_seconds for step in steps),
        math.fsum(step.squares for step in steps) / rows**2,
    )


def _slope_error(steps: Sequence[Step], rows: int, service: Service) -> float:
    """Return the standard error of the time that a request adds; infinite where batches do not vary."""
    executions, requests, _, squares = _sums(steps, rows)
    spread = squares - requests * requests / executions
    if spread <= 0.01 * executions:
        return math.inf
    mean = requests / executions
    seconds = service.seconds(mean)
    apart = READ_APART / math.fsum(step.seconds for step in steps)
    return math.hypot(seconds * (service.cv2 / spread) ** 0.5, apart * mean * seconds * executions / spread)


def _without_disturbances(steps: Sequence[Step], service: Service) -> list[Step]:
    """Return the steps of the parts of the time in which executions took what they take in most."""
    ordered = sorted(steps, key=lambda step: step.at)
    size = max(1, math.ceil(len(ordered) / BLOCKS))
    blocks = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    ratios = [
        math.fsum(step.busy_seconds for step in block) / math.fsum(_expected(step, service) for step in block)
        for block in blocks
    ]
    middle = median(ratios)
    noise = 1.5 * median(abs(ratio - middle) for ratio in ratios)
    limit = max(STRANGE * middle, 4 * noise)
    kept = [
        step
        for block, ratio in zip(blocks, ratios, strict=True)
        if abs(ratio - middle) <= limit
        for step in block
    ]
    if len(kept) < len(steps) / 2 or noise > 3 * STRANGE * middle:
        raise UnfitError(
            "unsteady",
            "executions take longer at some times than at others, and nothing that Triton counts says why",
        )
    return kept


def _expected(step: Step, service: Service) -> float:
    """Return the busy seconds that a step's executions should take."""
    return service.fixed * step.executions + service.each * step.requests


def _refuse_shared_device(steps: Sequence[Step], service: Service) -> None:
    """Raise UnfitError where executions take longer the more another model of the server works."""
    totals: dict[str, float] = defaultdict(float)
    for step in steps:
        for name, share in step.others_busy.items():
            totals[name] += share
    for name in sorted(totals, key=lambda name: -totals[name])[:5]:
        slope, t = _slope(
            [
                (
                    step.executions,
                    step.others_busy.get(name, 0.0),
                    step.busy_seconds / _expected(step, service),
                )
                for step in steps
            ]
        )
        if slope > 0 and t > SHARED_T:
            raise UnfitError(
                "shared_device",
                f"executions take longer while {name} works (t {t:.0f}): they share a device, and what one of "
                "them gains the other loses",
            )


def _slope(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the slope of a weighted regression (weight, x, y), and its t; 0 where x does not vary."""
    weight = math.fsum(w for w, _, _ in points)
    mx, my = (math.fsum(p[0] * p[i] for p in points) / weight for i in (1, 2))
    sxx = math.fsum(w * (x - mx) ** 2 for w, x, _ in points)
    if sxx <= 1e-9 * weight or len(points) < 5:
        return 0.0, 0.0
    slope = math.fsum(w * (x - mx) * (y - my) for w, x, y in points) / sxx
    rest = math.fsum(w * (y - my - slope * (x - mx)) ** 2 for w, x, y in points)
    return slope, slope / max(1e-12, (rest / (len(points) - 2) / sxx) ** 0.5)


def _variation(steps: Sequence[Step], service: Service) -> float:
    """Return the squared variation of executions around their mean, from the spread of the sums.

    What a reading cuts off one step it adds to the next: the products of neighbours take that away again.
    """
    off = {
        _moment(step): (step.busy_seconds - _expected(step, service))
        / (step.busy_seconds / step.executions)
        / step.executions**0.5
        for step in steps
    }
    squares = [value * value for value in off.values()]
    products = [
        off[_moment(step)] * off[server_at]
        for step in steps
        if (server_at := (step.server, step.at + step.seconds)) in off
    ]
    neighbours = 2 * math.fsum(products) / len(products) if products else 0.0
    return max(0.0, math.fsum(squares) / max(1, len(squares) - 2) + min(0.0, neighbours))


def _dispersion(steps: Sequence[Step]) -> tuple[float, float]:
    """Return the index of dispersion of arrivals, and its standard error; slow changes of the rate do not count."""
    counts = {_moment(step): step.requests for step in steps}
    pairs = [
        (counts[_moment(step)], counts[after])
        for step in steps
        if (after := (step.server, step.at + step.seconds)) in counts
    ]
    mean = math.fsum(counts.values()) / len(counts)
    if len(pairs) < 4 or not mean:
        return 1.0, math.inf
    index = math.fsum((b - a) ** 2 for a, b in pairs) / 2 / len(pairs) / mean
    return index, index * (3 / len(pairs)) ** 0.5


def _shares(steps: Sequence[Step]) -> Mapping[str, float]:
    """Return the share of the requests that each server got. Raises UnfitError where they differ much."""
    by_server: dict[str, float] = defaultdict(float)
    for step in steps:
        by_server[step.server] += step.requests
    total = math.fsum(by_server.values())
    shares = {server: requests / total for server, requests in by_server.items() if requests > 0.01 * total}
    if max(shares.values()) * len(shares) > 1.25:
        busiest = max(shares, key=shares.__getitem__)
        raise UnfitError(
            "unbalanced",
            f"{busiest} gets {shares[busiest]:.0%} of the requests of {len(shares)} servers: balance them first",
        )
    return shares


class Played:
    """The mean wait of the present, measured and played, at the rates of its blocks."""

    def __init__(self, setting: Setting, service: Service, steps: Sequence[Step]) -> None:
        self.setting, self.service = setting, service
        ordered = sorted(steps, key=_moment)
        size = max(1, math.ceil(len(ordered) / BLOCKS))
        blocks = [ordered[i : i + size] for i in range(0, len(ordered), size)]
        self.blocks = sorted(
            (
                math.fsum(step.requests for step in block) / math.fsum(step.seconds for step in block),
                math.fsum(step.requests for step in block),
                math.fsum(step.queue_seconds for step in block),
            )
            for block in blocks
        )
        self.requests = math.fsum(requests for _, requests, _ in self.blocks)
        self.wait = math.fsum(queued for _, _, queued in self.blocks) / self.requests

    def waits(self, burst: float) -> tuple[float, float]:
        """Return the modelled mean wait, and how many standard errors the measured one is above it."""
        size = math.ceil(len(self.blocks) / LEVELS)
        modelled = []
        for i in range(0, len(self.blocks), size):
            level = self.blocks[i : i + size]
            rate = math.fsum(rate * requests for rate, requests, _ in level) / math.fsum(
                requests for _, requests, _ in level
            )
            outcome = simulate(self.setting, self.service, Traffic(rate, burst), _SIMULATED)
            modelled += [outcome.mean_wait] * len(level)
        pairs = list(zip(modelled, self.blocks, strict=True))
        mean = math.fsum(wait * requests for wait, (_, requests, _) in pairs) / self.requests
        scale = self.wait / mean if mean else 0.0
        off = [queued - scale * wait * requests for wait, (_, requests, queued) in pairs]
        error = (math.fsum(each * each for each in off) ** 0.5) / self.requests
        # Neither the simulation, of some thousand requests, nor its inputs are exact.
        return mean, (self.wait - mean) / max(1e-9, math.hypot(error, 0.05 * mean))


def _match_wait(
    played: Played, dispersion: float, dispersion_error: float, threshold: float
) -> tuple[float, float, float]:
    """Return the burst with which the model waits as was measured, the wait with it, and z.

    Raises UnfitError where no arrivals that the counts allow explain the wait.
    """
    modelled, z = played.waits(1.0)
    if z < -LARGE_Z and played.wait < 0.75 * modelled:
        raise UnfitError(
            "paced_clients",
            f"requests wait {1000 * played.wait:.3g} ms on average, {1000 * modelled:.3g} ms are expected at this "
            f"rate (z {z:.1f}): clients wait for answers before they send more, or are paced, so that more "
            "clients, not a rate, break the objective",
        )
    matters = played.wait - modelled > 0.1 * threshold
    if z <= LARGE_Z:
        return 1.0, modelled, z
    if dispersion - 2 * dispersion_error > 1:
        burst, least, most = 1.0, 1.0, 2 * (dispersion + 2 * dispersion_error)
        while most - least > 0.05 * least:
            burst = (least + most) / 2
            modelled, z = played.waits(burst)
            least, most = (burst, most) if z > 0 else (least, burst)
        if abs(z) <= LARGE_Z or not matters:
            return burst, modelled, z
    if not matters:
        return 1.0, modelled, z
    idle = (
        "; with a max_queue_size, Triton 2.51 sometimes leaves an instance idle until the next request comes"
        if played.setting.limit
        else ""
    )
    raise UnfitError(
        "other_delay",
        f"requests wait {1000 * played.wait:.3g} ms on average, {1000 * modelled:.3g} ms are expected at this rate "
        f"(z {z:.1f}), and they do not come in bursts: something else delays them{idle}",
    )
