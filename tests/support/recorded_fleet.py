"""Make a week of a fleet whose truth is known minute by minute, as rules recorded it, up to now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from support.history import Series
from triton_exporter.catalogue import triton
from triton_slo import names
from triton_slo.artifact import Format, Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

MINUTE, HOUR, DAY = 60, 3600, 86_400
TARGET = 0.99
OBJECTIVE = Objective.model_validate(
    {"name": "errors", "target": TARGET, "indicator": "errors", "window": "7d"}
)
LENGTH = 8 * DAY
LOADED = 26 * HOUR
"""Before the end: when the rules of `young` fleets were loaded."""
Points = list[tuple[float, float]]


def rules(format: Format = "prometheus") -> str:
    """Return the generated rules of the objective."""
    made = artifacts([OBJECTIVE], Options(format=format))
    return next(
        artifact.text for artifact in made if artifact.name == "slo-errors.yml" and artifact.part == "rules"
    )


@dataclass(frozen=True)
class RecordedFleet:
    """Two models; in `load_test` seconds before the end half of the requests of one fail.

    `young`: the rules were loaded `LOADED` before the end, and Prometheus has the counters of the whole time.
    `recorded`: what rules recorded at the end is there, too, for a server that evaluates none.
    """

    load_test: tuple[int, int] = (50 * HOUR, 47 * HOUR)
    young: bool = False
    recorded: bool = False
    end: float = field(default_factory=lambda: time.time() // 1)

    @property
    def stretch(self) -> tuple[float, float]:
        """Unix times of the load test."""
        return self.end - self.load_test[0], self.end - self.load_test[1]

    def events(self, model: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Failures and requests in each minute."""
        random = np.random.default_rng(len(model))
        minutes = LENGTH // MINUTE
        requests = random.poisson(300 if model == "tested" else 40, minutes)
        share = np.full(minutes, 0.004)
        if model == "tested":
            share[(LENGTH - self.load_test[0]) // MINUTE : (LENGTH - self.load_test[1]) // MINUTE] = 0.5
        return random.binomial(requests, share).astype(float), requests.astype(float)

    def truth(self, model: str, *, without_test: bool = False) -> tuple[float, float]:
        """Failures and requests of the last seven days."""
        failed, every = self.events(model)
        counted = np.ones(len(every), dtype=bool)
        counted[: (LENGTH - 7 * DAY) // MINUTE] = False
        if without_test:
            counted[(LENGTH - self.load_test[0]) // MINUTE : (LENGTH - self.load_test[1]) // MINUTE] = False
        return float(failed[counted].sum()), float(every[counted].sum())

    def lately(self, value: float) -> Points:
        """Return samples of the last minutes: VictoriaMetrics leaves out the newest 30 s."""
        return [(self.end - back, value) for back in range(120, -1, -15)]

    def series(self) -> Iterator[Series]:
        """Name, labels and samples: counters, and what rules recorded."""
        start = self.end - LENGTH
        recorded_from = LENGTH - LOADED if self.young else 0
        for model in ("tested", "other"):
            group = {"model": model, "version": "1"}
            own = {names.SLO: "errors", names.INDICATOR: "errors", **group}
            grown = [np.concatenate([[0.0], np.cumsum(events)]) for events in self.events(model)]
            failed, every = grown
            scraped = np.arange(0 if self.young else LENGTH - 7 * HOUR, LENGTH + 1, 60 if self.young else 15)
            minutes = np.arange(len(every)) * MINUTE
            for metric, extra, values in (
                (triton.REQUEST_SUCCESS, {}, every - failed),
                (triton.REQUEST_FAILURE, {"reason": "BACKEND"}, failed),
            ):
                counter = np.interp(scraped, minutes, values)
                yield str(metric), {**group, "instance": "a", **extra}, _points(start, scraped, counter)
            shown = minutes[minutes >= recorded_from]
            for event, values in ((names.ERROR, failed), (names.TOTAL, every)):
                # A sum begins with the hour before.
                base = values[max(0, recorded_from - HOUR) // MINUTE] if self.young else 0.0
                yield (
                    names.SLI_EVENTS_SUM,
                    {**own, names.EVENT: event},
                    _points(start, shown, values[shown // MINUTE] - base),
                )
                if self.recorded:
                    week = (values[-1] - values[-1 - 7 * DAY // MINUTE]) / (7 * DAY)
                    yield names.sli_events("7d"), {**own, names.EVENT: event}, self.lately(float(week))
            if self.recorded:
                yield names.OBJECTIVE_RATIO, own, self.lately(TARGET)
                yield names.INFO, {**own, "window": "7d"}, self.lately(1.0)
            since = start + recorded_from if self.young else start - 20 * DAY
            yield (
                names.SLI_EVENTS_SINCE,
                own,
                [(self.end - back, since) for back in range(2 * HOUR, -1, -MINUTE)],
            )


def _points(start: float, at: NDArray[np.int64], values: NDArray[np.float64]) -> Points:
    return [(start + float(when), float(value)) for when, value in zip(at, values, strict=True)]
