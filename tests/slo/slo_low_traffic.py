"""Measure what waiting for several failures saves: models within their objective, replayed for a month."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slo.slo_scenarios import OBJECTIVE
from triton_slo.artifact import Options
from triton_slo.backtest.generated_policy import replayed
from triton_slo.backtest.history import History
from triton_slo.backtest.policy_run import run_policy
from triton_slo.fields import error_budget
from triton_slo.objective.model import Objective

MODELS, DAYS = 50, 30
RATES = (1, 10, 100)
CHOICES = ((1, 0.5), (2, 0.95), (3, 0.95), (5, 0.95))
"""Minimum failures and confidence; 1 and 50 % guard against nothing, 5 and 95 % are the defaults."""
_PACE = 0.5
"""Of the budget: no alert is expected."""


@dataclass(frozen=True)
class Noise:
    """False alerts for each model and month."""

    rate: int
    min_failures: int
    confidence: float
    pages: float
    tickets: float


def noise() -> Iterator[Noise]:
    """Our alerts under several guards on models that fail at half of the pace that their budget allows."""
    random = np.random.default_rng(1)
    steps = DAYS * 1440
    keys = tuple(("errors", f"m{number}", "1") for number in range(MODELS))
    for rate in RATES:
        total = random.poisson(rate, (MODELS, steps)).astype(float)
        bad = random.binomial(total.astype(int), _PACE * error_budget(OBJECTIVE.target)).astype(float)
        history = History(keys, 60.0 * np.arange(1, steps + 1), bad, total)
        for min_failures, confidence in CHOICES:
            alerting = {"min_failures": min_failures, "confidence": confidence}
            document = {"name": "errors", "target": "99.9%", "indicator": "errors", "alerting": alerting}
            policy = replayed(Objective.model_validate(document), Options()).policy
            severities = [
                episode.severity for episode in run_policy(history, policy, [OBJECTIVE.target] * MODELS)
            ]
            pages, tickets = (severities.count(severity) / MODELS for severity in ("page", "ticket"))
            yield Noise(rate, min_failures, confidence, pages, tickets)


def noise_table(results: Sequence[Noise]) -> str:
    """Rows are guards, columns are traffic."""
    rates = sorted({result.rate for result in results})
    head = [f"{rate} a minute" for rate in rates]
    lines = ["| at least | confidence | " + " | ".join(head) + " |", "|---|---|" + "---|" * len(rates)]
    for min_failures, confidence in CHOICES:
        row = [
            result
            for result in results
            if (result.min_failures, result.confidence) == (min_failures, confidence)
        ]
        cells = (f"{result.pages:g} pages, {result.tickets:g} tickets" for result in row)
        lines.append(f"| {min_failures} failures | {confidence:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
