"""Predictions that `--save` kept, beside what came after the configuration was changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from triton_exporter.common.duration import measured_text
from triton_exporter.common.moments import utc_text
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.advise.advice import Advice, Play
from triton_slo.advise.fit import LARGE_Z, Played
from triton_slo.advise.measured import Measured, total
from triton_slo.advise.report import rate, row
from triton_slo.amounts import ratio

ENOUGH = 200
"""Requests since the change, with fewer of which nothing is compared."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What was predicted at Unix time `at`."""

    at: float
    advice: Sequence[Advice]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prediction beside what came; `open` says why there is nothing to compare yet."""

    model: str
    version: str
    slo: str
    predicted_at: float
    changed: str = ""
    open: str = ""
    rate: float = 0.0
    wait: float = 0.0
    predicted_wait: float = 0.0
    good: float | None = None
    predicted_good: float = 0.0
    came_true: bool | None = None


def read(place: str, text: str) -> Saved:
    """Return the predictions of a file. Raises ProblemsError."""
    try:
        return TypeAdapter(Saved).validate_json(text)
    except ValidationError as error:
        fix = "name a file that `tritonwatch advise --save FILE` wrote"
        raise ProblemsError(Problem(place, "is not a file of predictions", fix), code=1) from error


def compare(advice: Advice, at: float, measured: Measured, good: float | None) -> Comparison:
    """Return a prediction, made at Unix time `at`, beside what came since; `good` is the measured share."""
    promise, before, now, fit = advice.promise, advice.configuration, measured.configuration, advice.fit

    def comparison(**values: object) -> Comparison:
        return Comparison(advice.model, advice.version, promise.slo, at, **values)  # type: ignore[arg-type]

    if fit is None or before is None:
        return comparison(open=f"nothing was predicted: {advice.text} ({advice.unknown})")
    if now is None or now == before:
        return comparison(open="the configuration is as it was" if now else "the model is not ready")
    was = asdict(before)
    changed = "; ".join(
        f"{name} {value}, was {was[name]}" for name, value in asdict(now).items() if value != was[name]
    )
    steps = [step for step in measured.steps if step.requests and step.at - step.seconds >= at]
    sums, servers = total(steps), len({step.server for step in steps})
    if sums.requests < ENOUGH:
        few = f"{sums.requests:.0f} requests since the change; {ENOUGH} are needed"
        return comparison(changed=changed, open=few)
    played = Played(now.setting(fit.rows), steps)
    predicted, z = played.waits(fit.service, fit.burst)
    one = sums.requests / sums.seconds
    play = Play(fit, promise)
    return comparison(
        changed=changed,
        rate=one * servers,
        wait=played.wait,
        predicted_wait=predicted,
        good=good,
        predicted_good=1 - play.bad(play.outcome(now, one)),
        came_true=abs(played.wait - predicted) <= max(0.1 * promise.threshold, 0.25 * predicted)
        or abs(z) <= LARGE_Z,
    )


def checked_text(found: Comparison) -> str:
    """Return a comparison as people read it."""
    lines = [f"{found.model} {found.version}, {found.slo}: predicted {utc_text(found.predicted_at)}"]
    lines += row("changed", found.changed)
    if found.open:
        return "\n".join(lines + row("open", found.open))
    measured, predicted = measured_text(found.wait), measured_text(found.predicted_wait)
    lines += row("wait", f"mean {measured} at {rate(found.rate)} requests/s, predicted {predicted}")
    if found.good is not None:
        lines += row("good", f"{ratio(found.good)}, predicted {ratio(found.predicted_good)}")
    return "\n".join(lines + row("verdict", "as predicted" if found.came_true else "not as predicted"))
