"""Arguments that several verbs take, declared the same way everywhere."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from fractions import Fraction

from triton_exporter.common import options
from triton_exporter.common.duration import parse_seconds
from triton_exporter.common.moments import parse_moment, parse_past_moment
from triton_exporter.common.options import adder, parsed


def whole(text: str) -> int:
    """Return a whole number, not below 0."""
    value = _finite_number(text, "a whole number")
    if value < 0 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 0 or more")
    return int(value)


seconds = parsed(parse_seconds)
"""A duration such as 5m, in seconds."""

moment = parsed(parse_moment)
"""A moment such as 2026-05-01T09:30Z, in Unix seconds."""


path = parsed(options.path)
"""Type of an argument that is a path."""


def add_objective_filter(parser: argparse.ArgumentParser) -> None:
    """Declare the flag by which a verb shows or judges some objectives only."""
    add = adder(parser.add_argument)
    add("--objective NAME...", "use only this objective (repeatable)")


def add_group_filter(parser: argparse.ArgumentParser, text: str, **how: object) -> None:
    """Declare the flags by which a verb shows or judges some objectives, and the groups of one model, only."""
    add_objective_filter(parser)
    adder(parser.add_argument)("--model NAME", text, **how)


def add_at(add: Callable[..., None], use: str = "time to evaluate at") -> None:
    """Declare the flag that gives the time a verb is about, None for now; `add` is from `adder`."""
    add("--at TIME", f"{use}: 2026-05-01T09:30Z or Unix seconds (default: now)", parsed(parse_past_moment))


def _finite_number(text: str, kind: str) -> float:
    try:
        # Not Fraction for all: it would work out every digit of 1e999999999.
        value = float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind}")
    return value
