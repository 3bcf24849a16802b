"""How many examples a costly property gets: few in `make test`, the same ones each time; many when asked for."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

THOROUGH = bool(os.environ.get("TRITONWATCH_THOROUGH"))


def examples(few: int, *, thorough: int) -> settings:
    """Settings for a property of which an example takes seconds: `TRITONWATCH_THOROUGH=1` runs more, at random."""
    return settings(
        max_examples=thorough if THOROUGH else few,
        derandomize=not THOROUGH,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
