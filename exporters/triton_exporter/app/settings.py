"""Settings of the exporter: one frozen value, passed down from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from triton_exporter.distribution.buckets import Buckets
from triton_exporter.http.certificates import Certificates
from triton_exporter.http.client import MAX_BODY_BYTES
from triton_exporter.probe.probe_settings import ProbeSettings

RelayChoice = Literal["all", "needed"]
GpuChoice = Literal["auto", "dcgm", "nvml", "triton", "none"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one exporter; times are seconds, URLs have no trailing slash.

    The defaults here are those of the command line, and its help shows them.
    """

    triton_url: str
    metrics_url: str
    gpu: GpuChoice = "auto"
    dcgm_url: str = ""
    dcgm_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    dcgm_certificates: Certificates = field(default_factory=Certificates)
    gpu_interval_seconds: float = 5.0
    gpu_devices: tuple[str, ...] = ()
    gpu_models: tuple[str, ...] = ()
    pod_name: str = ""
    listen_host: str = "127.0.0.1"
    listen_port: int = 9401
    # None: as short as the budget allows, which is a share of one core for the exporter and Triton together.
    sampling_interval_seconds: float | None = None
    sampling_budget: float = 0.02
    state_interval_seconds: float = 1.0
    timeout_seconds: float = 5.0
    max_body_bytes: int = MAX_BODY_BYTES
    relay: RelayChoice = "all"
    expected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    expected_file: Path | None = None
    triton_log: Path | None = None
    triton_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificates: Certificates = field(default_factory=Certificates)
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    buckets: Buckets = field(default_factory=Buckets)
    # Where Triton may post traces (host, port), and the file it may write them to; None: not traced.
    otlp_listen: tuple[str, int] | None = None
    trace_file: Path | None = None
    # Where the histograms are stored, to go on from after a restart of the exporter.
    state_file: Path | None = None
