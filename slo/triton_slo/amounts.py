"""Burn rates, budgets, shares and causes as people read them, everywhere in one notation."""

from __future__ import annotations

import math
import re

from triton_exporter.common.duration import DAY, in_words

WHOLE_PERIOD = 0.95
"""The share of a period from which on its data count as complete: the first minutes of a group are idle."""
LEAST_RECORDED = 0.1
"""The share of a window that must be recorded before a number of it is shown."""


def not_known_yet(recorded_seconds: float | None, days: float | None) -> str:
    """Return why a budget of so many days is not shown; an empty text where enough of the period is recorded.

    12 minutes of failures in the first 15 are 1000 times the budget of these minutes, and a quarter of a month's.
    """
    if recorded_seconds is None or days is None or recorded_seconds >= LEAST_RECORDED * days * DAY:
        return ""
    return f"not known yet: {in_words(recorded_seconds)} of data, of {days:.3g}d"


def digits(value: float, most: int = 2) -> str:
    """Return a number in so many significant digits, a large one in all of its own, never as 1e+02: 0.46, 12, 1234."""
    text = f"{value:.{most}g}"
    return f"{value:.0f}" if "e+" in text else text


def percent(share: float) -> str:
    """Return a share in two digits: 4.1 %, 12 %, 0.1 %."""
    return f"{digits(100 * share)} %"


def burn_rate(times: float) -> str:
    """Return how many times the allowed rate a budget burns at: 0.56x, 14.4x, 1000x."""
    return f"{digits(times, 3)}x"


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
_UNCLEAR = {
    "state:unknown": "Triton does not answer",
    "state:unavailable": "failed to load",
    "state:missing": "not listed by Triton",
    "failure:BACKEND": "error in the model",
    "failure:REJECTED": "timeout in the queue",
    "failure:QUEUE_FULL": "full queue",
    "failure:OTHER": "other errors",
    "compute_input": "preparing inputs",
    "compute_infer": "executing the model",
    "compute_output": "copying outputs",
    "no_bucket": "no bucket at the threshold",
}
"""Causes whose names do not explain themselves, and their words."""
WORDS = " | ".join(
    [
        *(f'reReplaceAll "{cause}" "{words}"' for cause, words in _UNCLEAR.items()),
        f'reReplaceAll `{_KIND}` "" | reReplaceAll "_" " "',
    ]
)
"""The end of a pipeline in a template of Alertmanager that writes causes as `cause_words` does."""


def cause_words(cause: str) -> str:
    """Return a cause's name for people: `failure:REJECTED` is timeout in the queue, `missing_file` missing file.

    A model's name (`queue of my_model`) is left as it is.
    """
    name, of, model = cause.partition(" of ")
    for unclear, words in _UNCLEAR.items():
        name = name.replace(unclear, words)
    return re.sub(_KIND, "", name).replace("_", " ") + of + model
