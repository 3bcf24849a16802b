"""Decide how often the requests of each model are traced: all rates here are Triton's, one request in how many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from triton_exporter.tracing.request_rates import Traffic

SAFE_TRACES_PER_SECOND = 20.0
"""Traced requests a second that a real server took without trouble, with a wide margin."""

MAX_REQUESTS_PER_SECOND = 2000.0
"""More than this in all is not traced: Triton 2.51 ended at 8,000 requests/s with every 100th traced."""

IDLE_SECONDS = 60.0
"""Time without requests after which a model is not traced."""

MAX_MODELS = 100
"""Models that are traced at the same time: those with the most requests."""

RENEWAL_SECONDS = 5.0
"""Minimum seconds between two settings of the same rate for a model, and between two reductions of its rate."""

_TOO_OFTEN, _TOO_SELDOM = 1.25, 0.6
"""A model is given another rate if that is higher or lower by these factors, so that small changes of its traffic
cost no setting. To trace too often does harm, so the first is nearer to 1."""


@dataclass(frozen=True, slots=True)
class SentSetting:
    """Setting that was sent for a model `at` some time (seconds), when `total` of its requests had ended."""

    rate: int
    count: int
    at: float
    total: float


def allot(requests_per_second: Mapping[str, float], traces_per_second: float) -> dict[str, int]:
    """Return the rate of each model at which all of them together have so many traces a second.

    A model with little traffic is traced whole, and what it leaves is shared evenly by the others.
    """
    rates: dict[str, int] = {}
    left = traces_per_second
    ascending = sorted(requests_per_second.items(), key=lambda entry: entry[1])
    for number, (model, requests) in enumerate(ascending):
        share = min(requests, left / (len(ascending) - number))
        left -= share
        rates[model] = max(1, math.ceil(requests / share)) if share > 0 else 1
    return rates


def wanted_rates(
    traffic: Mapping[str, Traffic], traces_per_second: float, now: float, *, was_busy: bool
) -> dict[str, int] | None:
    """Return the rate of each model that is to be traced; None while Triton is too busy for traces.

    One that `was_busy` must have half as many requests before traces begin again.
    """
    limit = MAX_REQUESTS_PER_SECOND / (2 if was_busy else 1)
    if sum(model.per_second for model in traffic.values()) > limit:
        return None
    active = {name: model.per_second for name, model in traffic.items() if now - model.seen < IDLE_SECONDS}
    busiest = sorted(active, key=active.__getitem__, reverse=True)[:MAX_MODELS]
    return allot({name: active[name] for name in busiest}, traces_per_second)


def rates_to_send(
    wanted: Mapping[str, int], sent: Mapping[str, SentSetting], traffic: Mapping[str, Traffic], now: float
) -> list[tuple[str, int]]:
    """Return models and the rates to send for them now; first those that are traced too often."""
    models = sorted(wanted, key=lambda model: model not in sent or wanted[model] <= sent[model].rate)
    rates = {model: _rate_to_send(wanted[model], sent.get(model), traffic[model], now) for model in models}
    return [(model, rate) for model, rate in rates.items() if rate is not None]


def _rate_to_send(wanted: int, sent: SentSetting | None, traffic: Traffic, now: float) -> int | None:
    """Return the rate to send for a model, or None if its setting can stay."""
    if sent is None or wanted > _TOO_OFTEN * sent.rate:
        return wanted
    if now - sent.at < RENEWAL_SECONDS:
        return None
    if wanted < _TOO_SELDOM * sent.rate:
        return wanted
    traced = (traffic.total - sent.total) / sent.rate
    return sent.rate if traced >= sent.count / 2 or traffic.total < sent.total else None
