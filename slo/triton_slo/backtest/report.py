"""Replay a history through the alerts of objectives, and score what they would have raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triton_exporter.common.duration import duration_text
from triton_slo.backtest.history import History
from triton_slo.backtest.incident import LabelledIncident
from triton_slo.backtest.replay import Episode, Replayed
from triton_slo.backtest.score import Score, score


@dataclass(frozen=True, slots=True)
class Report:
    """Alerts over a history, the oldest first, and their score against labelled incidents.

    `unknown` is the share of steps without data (0 to 1), counted from when each series first had some, and
    `data_from` the Unix time at which the data of each objective begin.
    """

    series: int
    steps: int
    step_seconds: float
    start: float
    end: float
    unknown: float
    data_from: Mapping[str, float]
    incidents: int
    episodes: tuple[Episode, ...]
    score: Score


def resolution(step_seconds: float) -> str:
    """Return what a replay with such steps does not show of rules that are evaluated more often."""
    return (
        f"steps of {duration_text(step_seconds)}: alerts are dated to the step, shorter bursts are averaged, and "
        f"an alert of less than {duration_text(2 * step_seconds)} may be missed"
    )


def backtest(
    history: History,
    objectives: Mapping[str, Replayed],
    incidents: Sequence[LabelledIncident] = (),
) -> Report:
    """Replay a history; `objectives` has every objective of it."""
    episodes: list[Episode] = []
    for slo in sorted({key[0] for key in history.keys}):
        episodes += objectives[slo].episodes(history.of_objective(slo))
    episodes.sort(key=lambda episode: (episode.started, episode.key, episode.alert))
    return Report(
        series=len(history.keys),
        steps=len(history.times),
        step_seconds=history.step,
        start=float(history.times[0] - history.step),
        end=float(history.times[-1]),
        unknown=_unknown_share(history),
        data_from={
            slo: _data_from(history.of_objective(slo)) for slo in sorted({key[0] for key in history.keys})
        },
        incidents=len(incidents),
        episodes=tuple(episodes),
        score=score(episodes, incidents, float(history.times[-1])),
    )


def _unknown_share(history: History) -> float:
    known = ~np.isnan(history.total)
    there = np.logical_or.accumulate(known, axis=1)
    return float(1 - known.sum() / there.sum()) if there.any() else 1.0


def _data_from(history: History) -> float:
    known = (~np.isnan(history.total)).any(axis=0)
    return float(history.times[known.argmax() if known.any() else -1] - history.step)
