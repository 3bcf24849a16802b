"""The parts of one exporter that its settings choose (interfaces: `app.exporter`), and their clients of Triton."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable

from triton_exporter.app.settings import DoctorSettings, Settings, TritonAccess
from triton_exporter.common.options import is_grpc
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.estimate.estimator import Estimator
from triton_exporter.gpu import dcgm, native, nvml
from triton_exporter.gpu.gpu_reading import GpuSource, SourceChoice
from triton_exporter.gpu.gpus import GpuOptions, Gpus
from triton_exporter.http.certificates import ReloadedTls
from triton_exporter.http.client import Client, Limits
from triton_exporter.lifecycle.expectations import ExpectedFile
from triton_exporter.lifecycle.tracker import BackendFailures, Lifecycle
from triton_exporter.lifecycle.triton_log import LogReader, LogTail
from triton_exporter.model_series import Configurations, StatisticsCounters
from triton_exporter.probe.prober import Prober
from triton_exporter.tracing.otlp import TraceReceiver
from triton_exporter.tracing.trace import Mailbox
from triton_exporter.tracing.trace_setting import MAX_SETTING_BYTES, TraceRate


def triton_client(settings: TritonAccess, url: str, max_body_bytes: int | None = None) -> Client:
    """Return a client of Triton; a body may have `max_body_bytes`, or else as many as the settings allow."""
    limits = Limits(settings.timeout, max_body_bytes or settings.max_body_bytes)
    if is_grpc(url):
        # Imported here: gRPC is an extra, and takes a tenth of a second and 20 MB.
        from triton_exporter.triton.over_grpc import GrpcClient

        return GrpcClient(url, limits, settings.triton_headers_file, certificates=settings.certificates)
    return Client(url, limits, settings.triton_headers_file, ReloadedTls(settings.certificates))


def optional_parts(settings: Settings) -> tuple[object, ...]:
    """Build the parts beside the state of models: configurations, counters, distributions, GPUs, processes.

    Raises OSError when a port to listen on is taken.
    """
    parts: list[object] = [
        Configurations(),
        StatisticsCounters(),
        *distribution_parts(settings),
        *gpu_parts(settings),
    ]
    if importlib.util.find_spec("psutil") is not None:
        # Imported here: psutil is an extra.
        from triton_exporter.processes import Processes

        parts.append(Processes(settings.metrics_url))
    return tuple(parts)


def lifecycle_sources(settings: Settings, lifecycle: Lifecycle) -> Iterable[object]:
    """Yield the sources of the lifecycle other than Triton's API."""
    if settings.expect_file is not None:
        yield ExpectedFile(settings.expect_file, settings.expected, lifecycle)
    if settings.triton_log is not None:
        yield LogReader(LogTail(settings.triton_log), lifecycle, settings.state_interval)
    if settings.probe:
        # Imported here: the official client is an extra that only probing needs.
        from triton_exporter.probe.send import sender

        send = sender(settings.triton, settings.probes, settings.triton_headers_file, settings.certificates)
        yield Prober(settings.probes, lifecycle, send, random.random)
    yield BackendFailures(lifecycle)


def distribution_parts(settings: Settings) -> tuple[object, ...]:
    """Build the histograms and, where asked for, what receives traces. Raises OSError: a port is taken."""
    estimator = Estimator(settings.bucket_bounds)
    mailbox = Mailbox() if settings.otlp_listen is not None else None
    histograms = Distributions(settings.bucket_bounds, mailbox, estimator=estimator)
    parts: list[object] = [histograms, estimator]
    if settings.otlp_listen is not None and mailbox is not None:
        parts.append(TraceReceiver(*settings.otlp_listen, mailbox))
        # How many requests Triton traces.
        if settings.triton:
            parts.append(TraceRate(triton_client(settings, settings.triton, MAX_SETTING_BYTES), mailbox))
    return tuple(parts)


def gpu_parts(settings: DoctorSettings) -> tuple[Gpus, ...]:
    """Return the GPU part, or nothing where the operator wants none.

    `auto` asks dcgm-exporter (at the operator's address, else where it listens by default), then NVML, then
    Triton's own series.
    """
    if settings.gpu == "none":
        return ()
    options = GpuOptions(
        interval_seconds=settings.gpu_interval_seconds,
        devices=settings.gpu_devices,
        trusted_models=settings.gpu_models,
        pod=settings.pod_name,
    )
    own = native.NativeSource(options.max_age_seconds)
    by_name: dict[str, GpuSource] = {
        dcgm.SOURCE: dcgm.DcgmSource(
            settings.dcgm_url or dcgm.DEFAULT_URL,
            settings.timeout,
            settings.dcgm_headers_file,
            settings.dcgm_certificates,
        ),
        nvml.SOURCE: nvml.NvmlSource(),
        native.SOURCE: own,
    }
    if settings.gpu == "auto":
        wanted = {dcgm.SOURCE} if settings.dcgm_url else set()
        return (Gpus(SourceChoice(tuple(by_name.values()), frozenset(wanted)), own, options),)
    return (Gpus(SourceChoice((by_name[settings.gpu],), frozenset({settings.gpu})), own, options),)
