"""Put the GPU part together from the operator's settings."""

from __future__ import annotations

from triton_exporter.app.settings import Settings
from triton_exporter.gpu.choice import Choice
from triton_exporter.gpu.gpus import Gpus, Options
from triton_exporter.gpu.sources import dcgm_metrics as dcgm
from triton_exporter.gpu.sources import native, nvml
from triton_exporter.gpu.sources.dcgm_source import DEFAULT_URL, DcgmSource
from triton_exporter.gpu.sources.source import Source


def assemble(settings: Settings) -> tuple[Gpus, ...]:
    """The GPU part, or nothing where the operator wants none.

    `auto` asks dcgm-exporter (where the operator says, else where it listens by default), then NVML, then
    Triton's own series.
    """
    if settings.gpu == "none":
        return ()
    options = Options(
        settings.gpu_interval_seconds,
        settings.gpu_max_age_seconds,
        settings.gpu_devices,
        settings.gpu_models,
        settings.pod_name,
    )
    own = native.NativeSource(settings.gpu_max_age_seconds)
    by_name: dict[str, Source] = {
        dcgm.SOURCE: DcgmSource(settings.dcgm_url or DEFAULT_URL, settings.timeout_seconds),
        nvml.SOURCE: nvml.NvmlSource(),
        native.SOURCE: own,
    }
    if settings.gpu == "auto":
        wanted = {dcgm.SOURCE} if settings.dcgm_url else set()
        return (Gpus(Choice(tuple(by_name.values()), frozenset(wanted)), own, options),)
    return (Gpus(Choice((by_name[settings.gpu],), frozenset({settings.gpu})), own, options),)
