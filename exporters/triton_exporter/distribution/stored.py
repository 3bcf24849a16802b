"""The stored state of the histograms, from which they go on after a restart: values and Triton's counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from triton_exporter.distribution.buckets import Signal
from triton_exporter.distribution.histogram import Estimated, within

_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Amount = Annotated[float, Field(ge=0, lt=2**53)]
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

ALIKE = 1.5
"""Requests whose mean is further than this factor from that of the last minutes are not like them."""


@dataclass(frozen=True, slots=True)
class StoredHistogram:
    """One histogram, with the requests that still waited for a shape entered at their mean.

    `recent` is what its counts, and `recent_sum` what its sum, gained in the last minutes. `within` contains each
    threshold with the fewest and the most requests within it; `held` requests, seconds and independent units
    that were not in the histogram.
    """

    __pydantic_config__ = _STRICT

    bounds: tuple[_Amount, ...]
    counts: tuple[_Count, ...]
    sum: _Amount
    recent: tuple[_Count, ...]
    recent_sum: _Amount
    within: tuple[tuple[_Amount, _Amount, _Amount], ...]
    held: tuple[_Amount, _Amount, _Amount]

    def recent_shape(self, requests: float, seconds: float) -> Estimated | None:
        """Return the shape of `requests` that took `seconds` if they are like the recent ones, or else None.

        It stays within what the sum guarantees.
        """
        total = sum(self.recent)
        if not total:
            return None
        usual, mean = self.recent_sum / total, seconds / requests
        if not usual / ALIKE <= mean <= usual * ALIKE:
            return None
        shares = []
        for bound, below in zip(self.bounds, accumulate(self.recent), strict=False):
            least, most = within(bound, requests, seconds)
            shares.append(min(max(below / total, least / requests), most / requests))
        return Estimated(shares)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model version, and what Triton's counters (requests, executions, microseconds by signal) were."""

    __pydantic_config__ = _STRICT

    model: str
    version: str
    requests: _Amount
    executions: _Amount
    micros: dict[Signal, _Amount]
    histograms: dict[Signal, StoredHistogram]


@dataclass(frozen=True, slots=True)
class StoredState:
    """All model versions of the Triton with the metrics URL `triton`.

    `boot` identifies the start of the machine on which it was written; `ended` is true if the exporter wrote it
    as its last act, and then to the disk itself.
    """

    __pydantic_config__ = _STRICT

    triton: str
    boot: str
    ended: bool
    models: list[StoredModel]
    format: Literal[1] = field(default=1, kw_only=True)


class UnusableStateError(Exception):
    """A stored state that this version cannot continue from; the message has the reason."""


_JSON = TypeAdapter(StoredState)


def encode_state(state: StoredState) -> bytes:
    """Return the state as JSON."""
    return _JSON.dump_json(state)


def decode_state(body: bytes) -> StoredState:
    """Read what `encode_state` wrote. Raises UnusableStateError."""
    try:
        state = _JSON.validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UnusableStateError(f"{place}: {first['msg']}" if place else first["msg"]) from error
    for stored in (histogram for model in state.models for histogram in model.histograms.values()):
        if not len(stored.recent) == len(stored.counts) == len(stored.bounds) + 1:
            raise UnusableStateError(f"{len(stored.counts)} counts for {len(stored.bounds)} bounds")
    return state
