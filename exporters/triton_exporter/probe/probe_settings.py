"""Settings of probes: models, inputs, interval and timeout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from triton_exporter.probe.payload import Tensor


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Patterns are shell patterns over model names, the gRPC address is host:port."""

    models: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    interval_seconds: float = 30.0
    timeout_seconds: float = 5.0
    grpc_address: str = ""
    payloads: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)

    def covers(self, model: str) -> bool:
        """Return whether a model is to be probed."""
        wanted = any(fnmatchcase(model, pattern) for pattern in self.models)
        return wanted and not any(fnmatchcase(model, pattern) for pattern in self.exclude)
