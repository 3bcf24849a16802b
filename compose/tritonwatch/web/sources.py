"""Sources of the pages, prepared once when the server starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_slo.artifact import Options
from triton_slo.group_status import GroupStatus
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from tritonwatch.bridge_incidents import DATA_OPTION, BridgeAddress, incidents_of
from tritonwatch.web.readers.bridge_reader import BridgeReader
from tritonwatch.web.readers.doctor_reader import DoctorReader
from tritonwatch.web.readers.prometheus_reader import CachedAnswer, PrometheusReader


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses at which a browser reaches the other servers of the stack; empty where not known."""

    prometheus: str = ""
    alertmanager: str = ""
    grafana: str = ""


def _all_loaded(_rows: Sequence[GroupStatus]) -> str:
    return ""


@dataclass(frozen=True)
class Sources:
    """Everything that a page may read.

    `objectives` are those of --objectives, `options` how their rules were generated. `not_loaded` returns what
    Prometheus has not loaded of them, given the status of all; `bridge_data` is the folder of the Slack bridge, or
    its address; `doctor` examines the Triton of --triton.
    """

    reader: PrometheusReader
    objectives: tuple[Objective, ...] = ()
    options: Options = field(default_factory=Options)
    not_loaded: Callable[[Sequence[GroupStatus]], str] = _all_loaded
    addresses: Addresses = Addresses()
    bridge_data: Path | BridgeAddress | None = None
    doctor: DoctorReader | None = None

    def incidents(self) -> CachedAnswer[list[RecordedIncident]]:
        """Return the incidents of the bridge, the oldest first; `read_at` is None without a bridge."""
        return CachedAnswer([], None) if self._bridge is None else self._bridge.incidents()

    @cached_property
    def _bridge(self) -> BridgeReader | None:
        bridge = self.bridge_data
        return None if bridge is None else BridgeReader(lambda: incidents_of(bridge, DATA_OPTION))

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """The objectives by name, each with the options of its rules."""
        return {objective.name: Plan(objective, self.options) for objective in self.objectives}
