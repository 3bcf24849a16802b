"""Burn rates, budgets, shares and causes as people read them, everywhere in one notation."""

from __future__ import annotations

import math
import re

WHOLE_PERIOD = 0.95
"""The share of a period from which on its data count as complete: the first minutes of a group are idle."""


def burn_rate(times: float) -> str:
    """Return how many times the allowed rate a budget burns at: 0.56x, 14.4x, 1000x."""
    return f"{times:.0f}x" if times >= 100 else f"{times:.3g}x"


def budget_left(share: float) -> str:
    """Return the share of a budget that is left, 61.3%; of an overspent one what is spent of it, 1.12x spent."""
    if share >= -0.0005:
        return f"{max(0.0, share):.1%}"
    return f"{burn_rate(1 - share)} spent"


def ratio(value: float | None) -> str:
    """Return a share in percent with as many digits as its distance from 100 % needs."""
    if value is None:
        return "unknown"
    missing = (1 - value) * 100
    digits = max(2, math.ceil(-math.log10(missing))) if missing > 1e-9 else 2
    return f"{value:.{digits}%}"


_KIND = r"\b(?:state|failure):"
_NO_ANSWER = ("state:unknown", "Triton does not answer")
"""A cause whose name does not explain itself, and its words."""
WORDS = f'reReplaceAll "{_NO_ANSWER[0]}" "{_NO_ANSWER[1]}" | reReplaceAll `{_KIND}` "" | reReplaceAll "_" " "'
"""The end of a pipeline in a template of Alertmanager that writes causes as `cause_words` does."""


def cause_words(cause: str) -> str:
    """Return a cause's name for people: `state:unavailable` is unavailable, `compute_infer` compute infer.

    A model's name (`queue of my_model`) is left as it is.
    """
    name, of, model = re.sub(_KIND, "", cause.replace(*_NO_ANSWER)).partition(" of ")
    return name.replace("_", " ") + of + model
