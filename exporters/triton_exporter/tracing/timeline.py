"""The timestamps of one traced request, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from triton_exporter.snapshot import ModelVersion
from triton_exporter.tracing.trace import TracedRequest

_NANO = 1e-9
_LATEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Timeline:
    """Nanoseconds since 1970 of what happened to one request to one model version; None where it did not.

    `seen_until` is the last moment known of it; `has_steps` that other models ran for it (an ensemble).
    Event names: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/trace.html
    """

    model: ModelVersion
    trace_id: str
    request_start: int
    request_end: int | None
    queue_start: int | None
    compute_start: int | None
    seen_until: int
    has_steps: bool = False

    def request(self) -> TracedRequest | None:
        """Return the request; None where the moments contradict each other."""
        ended = self.seen_until if self.request_end is None else self.request_end
        if not 0 < self.request_start <= ended < _LATEST:
            return None
        executed = self.compute_start is not None or self.has_steps
        queue = None
        if self.compute_start is not None and self.queue_start is not None:
            queue = max(0, self.compute_start - self.queue_start) * _NANO
        return TracedRequest(
            self.model,
            # A request that does not fit in the queue is refused before it has an end.
            "queue_full" if self.request_end is None else "completed" if executed else "not_executed",
            ended * _NANO,
            (ended - self.request_start) * _NANO,
            queue,
            self.trace_id,
        )
