"""Outcome of one probe."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEAD = re.compile(r"Stub process .*is not healthy")
"""Answer of Triton's python backend for a model whose process has died, whatever the input.

https://github.com/triton-inference-server/python_backend/blob/main/src/python_be.cc
"""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """One of the catalogue's RESULTS, the duration, and Triton's text unless it worked."""

    result: str
    seconds: float
    text: str = ""

    @property
    def of_dead_process(self) -> bool:
        """True if the model's process is dead, whether its input has ever worked or not."""
        return self.result == "failed" and bool(_DEAD.search(self.text))
