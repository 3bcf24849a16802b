"""Decode NVIDIA's bit mask of reasons that reduce the clocks."""

from __future__ import annotations

from triton_exporter.catalogue.gpu import THROTTLE_REASONS

BITS = {1 << position: reason for position, reason in enumerate(THROTTLE_REASONS)}
"""Bit -> reason. https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"""


def decode(mask: int) -> dict[str, bool]:
    """Return which reasons apply now; bits that have no name yet are ignored."""
    return {reason: bool(mask & bit) for bit, reason in BITS.items()}
