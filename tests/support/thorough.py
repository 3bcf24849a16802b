"""Choose how many examples a costly property gets: few fixed ones in `make test`, many on request."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

THOROUGH = bool(os.environ.get("TRITONWATCH_THOROUGH"))


def examples(few: int, *, thorough: int) -> settings:
    """Return settings for a property whose examples take seconds: `TRITONWATCH_THOROUGH=1` runs more, at random.

    The first example that Hypothesis makes is the least there is, such as no traffic; 0: only those of `@example`.
    """
    return settings(
        max_examples=thorough if THOROUGH else max(few, 1),
        derandomize=not THOROUGH,
        phases=(Phase.explicit, Phase.generate) if few or THOROUGH else (Phase.explicit,),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
