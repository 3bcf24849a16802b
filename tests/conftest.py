"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is the machine's affair: speed belongs to tests/bench.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
