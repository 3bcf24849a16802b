"""Predictions that were kept in a file, beside what came."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.advise.advice import Advice, Play, Promise, Range
from triton_slo.advise.fit import LARGE_Z, Fit, Played
from triton_slo.advise.measured import Configuration, Measured

ENOUGH = 200
"""Requests since the change, with fewer of which nothing is compared."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was known of an objective of a model version at Unix time `at`: everything that predictions come from."""

    at: float
    model: str
    version: str
    promise: Promise
    configuration: Configuration
    fit: Fit


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prediction beside what came; without a change, or without traffic since, `open` says so."""

    prediction: Prediction
    configuration: Configuration
    open: str = ""
    rate: float = 0.0
    breaks: Range | None = None
    wait: float = 0.0
    predicted_wait: float = 0.0
    z: float = 0.0
    good: float | None = None
    predicted_good: float = 0.0

    @property
    def came_true(self) -> bool | None:
        """Whether the mean wait is the predicted one, as nearly as can be measured; None where it is open."""
        if self.open:
            return None
        off = abs(self.wait - self.predicted_wait)
        near = max(0.1 * self.prediction.promise.threshold, 0.25 * self.predicted_wait)
        return off <= near or abs(self.z) <= LARGE_Z


_FILE = TypeAdapter(list[Prediction])


def kept(earlier: Sequence[Prediction], advice: Iterable[Advice], at: float) -> str:
    """Return the text of a file with the newest prediction of each objective of each model version."""
    newest = {_key(prediction): prediction for prediction in earlier}
    for each in advice:
        if each.fit is not None and each.configuration is not None:
            made = Prediction(at, each.model, each.version, each.promise, each.configuration, each.fit)
            newest[_key(made)] = made
    return json.dumps([asdict(prediction) for _, prediction in sorted(newest.items())], indent=1) + "\n"


def read(place: str, text: str) -> list[Prediction]:
    """Return the predictions of a file. Raises ProblemsError."""
    try:
        return _FILE.validate_json(text)
    except ValidationError as error:
        fix = "name a file that `tritonwatch advise --save FILE` wrote"
        raise ProblemsError(Problem(place, "is not a file of predictions", fix), code=1) from error


def compare(prediction: Prediction, measured: Measured, good: float | None) -> Comparison:
    """Return a prediction beside what came since the configuration changed; `good` is the measured share."""
    now = measured.configuration
    if now is None or now == prediction.configuration:
        text = "the configuration is as it was" if now else "the model is not ready"
        return Comparison(prediction, prediction.configuration, text)
    steps = [step for step in measured.steps if step.requests and step.at - step.seconds >= prediction.at]
    requests = math.fsum(step.requests for step in steps)
    if requests < ENOUGH:
        text = f"{requests:.0f} requests since the change; {ENOUGH} are needed"
        return Comparison(prediction, now, text)
    fit = prediction.fit
    played = Played(now.setting(fit.rows), fit.service, steps)
    predicted, z = played.waits(fit.burst)
    servers = len({step.server for step in steps})
    rate = requests / math.fsum(step.seconds for step in steps) * servers
    play = Play(fit, prediction.promise)
    return Comparison(
        prediction,
        now,
        rate=rate,
        breaks=play.breaks(now).times(servers / fit.servers),
        wait=played.wait,
        predicted_wait=predicted,
        z=z,
        good=good,
        predicted_good=1 - play.bad(play.outcome(now, rate / servers)),
    )


def _key(prediction: Prediction) -> tuple[str, str, str]:
    return prediction.model, prediction.version, prediction.promise.slo
