"""The facts about one Triton that are examined, and a finding about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from triton_exporter.catalogue import Metric
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.common.printable import listed, printable
from triton_exporter.exposition.parse import Exposition
from triton_exporter.snapshot import Snapshot
from triton_exporter.tracing.trace_setting import TraceSetting

Grade = Literal["problem", "advice"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to change: what is seen, what to do about it (a flag or snippet), and what that costs.

    `models` are those that it is about; empty: the server, with all of its models.
    """

    grade: Grade
    title: str
    seen: str
    do: str = ""
    cost: str = ""
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TritonFacts:
    """The facts about one Triton.

    `statuses` has the HTTP status of every endpoint that was asked, `first` and `second` its metrics,
    `watched_seconds` apart; `metrics_failure` is why they are missing. `start_failure` is the error in Triton's
    log that ended its start. `logging` is its setting of the log, `traces` that of traces for all models, and
    `model_traces` those of models for which another one applies.
    `gpu` has what was found of GPUs.
    """

    url: str
    metrics_url: str
    snapshot: Snapshot
    statuses: Mapping[str, int] = field(default_factory=dict)
    first: Exposition | None = None
    second: Exposition | None = None
    watched_seconds: float = 0.0
    metrics_failure: str = ""
    start_failure: str = ""
    logging: Mapping[str, object] = field(default_factory=dict)
    traces: TraceSetting | None = None
    model_traces: Mapping[str, TraceSetting] = field(default_factory=dict)
    gpu: tuple[Finding, ...] = ()

    def setting_of(self, model: str) -> TraceSetting | None:
        """Return the setting of traces that applies to a model."""
        return self.model_traces.get(model, self.traces)

    @property
    def release(self) -> tuple[int, int]:
        """Version of the server, such as (2, 51); (0, 0) when it is unknown."""
        match = re.match(r"(\d+)\.(\d+)", self.snapshot.triton_version)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def is_other_server(self) -> bool:
        """True if another server than Triton answers, and no metrics of Triton do."""
        return self.snapshot.api_failure == NOT_TRITON and self.first is None

    def has(self, metric: Metric) -> bool:
        """Return whether Triton shows this family."""
        return self.first is not None and metric.name in self.first.families


def first_names(names: Iterable[str]) -> str:
    """Return the first five names as text for a person, and how many more there are."""
    return listed([printable(name) for name in names], 5)
