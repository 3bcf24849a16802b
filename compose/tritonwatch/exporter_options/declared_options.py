"""Every option of the exporter, and its declaration on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from triton_exporter.app.settings import GpuChoice, RelayChoice, Settings
from triton_exporter.common.duration import duration_between
from triton_exporter.common.options import host_and_port
from tritonwatch.exporter_options.option_values import (
    Address,
    Duration,
    File,
    Folder,
    Form,
    Patterns,
    Percent,
    Url,
    each,
    expectation,
    grpc,
    model_buckets,
    single,
    words,
)

_TRITON_CERTIFICATES = ("triton_ca_file", "triton_cert_file", "triton_key_file")
_DCGM_CERTIFICATES = ("dcgm_ca_file", "dcgm_cert_file", "dcgm_key_file")
CERTIFICATES = (*_TRITON_CERTIFICATES, *_DCGM_CERTIFICATES)
"""Options that an environment variable of the same name, in capitals, gives where nothing else does."""

TRITON_OPTIONS = ("triton", "triton_metrics", "triton_headers_file", *_TRITON_CERTIFICATES)
"""Options that give access to a Triton."""

DOCTOR_OPTIONS = (
    *TRITON_OPTIONS,
    *("triton_log", "gpu", "dcgm_url", "dcgm_headers_file", *_DCGM_CERTIFICATES, "gpu_devices", "gpu_models"),
)
"""Options of what examines a Triton and its GPUs."""

_DEFAULTS = Settings(triton_url="", metrics_url="")


class ExporterOptions(BaseModel):
    """Every option by its name in a settings file; the docstring of a field is its help."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    triton: Url
    """URL of Triton's HTTP API, such as http://127.0.0.1:8000; Triton must run with HTTP, its default"""
    triton_metrics: Url = ""
    """Triton's metrics endpoint (default: /metrics on port 8002 of the same host)"""
    triton_headers_file: File = None
    """headers for Triton's restricted endpoints, one `name: value` per line (default: $TRITON_HEADERS)"""
    triton_ca_file: File = None
    """CA certificates (PEM) to trust for Triton, instead of those of the system (default: $TRITON_CA_FILE)"""
    triton_cert_file: File = None
    """client certificate (PEM), if Triton or its proxy requires one (default: $TRITON_CERT_FILE)"""
    triton_key_file: File = None
    """private key of the client certificate (default: $TRITON_KEY_FILE, or in the certificate file)"""
    triton_log: File = None
    """Triton's log (a file or a pipe), for load failures that Triton reports only in its log"""
    listen: Address = (_DEFAULTS.listen_host, _DEFAULTS.listen_port)
    """address to serve /metrics on (default: {default})"""
    web_config: File = None
    """TLS and basic authentication of the exporter: a web config file of exporter-toolkit"""
    expect: Annotated[tuple[str, ...], each(expectation), Form("MODEL[:VERSION]", repeated=True)] = ()
    """model that should be served; an alert fires while this model is missing (repeatable)"""
    expect_file: File = None
    """file of models that should be served, one per line; read again when it changes"""
    sampling_interval: Annotated[float | None, single(duration_between(0.05, 3600)), Form("DURATION")] = None
    """fixed interval between two samples of Triton's metrics (default: as short as --sampling-budget allows)"""
    sampling_budget: Percent = _DEFAULTS.sampling_budget
    """CPU time that the exporter may use, including Triton's CPU time for the exporter's requests, as a share
    of one core (default: {default})"""
    state_interval: Duration = _DEFAULTS.state_interval_seconds
    """interval between two polls of Triton's API; longer if the API is slow (default: {default})"""
    timeout: Duration = _DEFAULTS.timeout_seconds
    """timeout of a request to Triton, and of one poll of Triton's API (default: {default})"""
    relay: Annotated[RelayChoice, Form("{all,needed}")] = _DEFAULTS.relay
    """needed: leave out the summaries of Triton that no rule or dashboard reads (default: {default})"""
    gpu: Annotated[GpuChoice, Form("{auto,dcgm,nvml,triton,none}")] = _DEFAULTS.gpu
    """source of GPU metrics (default: {default}, the best one available)"""
    dcgm_url: Url = ""
    """metrics endpoint of dcgm-exporter (default: port 9400 of this machine)"""
    dcgm_headers_file: File = None
    """headers for dcgm-exporter, one `name: value` per line, such as Authorization (default: $DCGM_HEADERS)"""
    dcgm_ca_file: File = None
    """CA certificates (PEM) to trust for dcgm-exporter (default: $DCGM_CA_FILE, else those of the system)"""
    dcgm_cert_file: File = None
    """client certificate (PEM), if dcgm-exporter requires one (default: $DCGM_CERT_FILE)"""
    dcgm_key_file: File = None
    """private key of that certificate (default: $DCGM_KEY_FILE, or in the certificate file)"""
    gpu_devices: Annotated[tuple[str, ...], BeforeValidator(words), Form("GPU-UUID[/INSTANCE],...")] = ()
    """UUIDs of the GPUs that Triton uses, in the order of Triton's CUDA device numbers (default: inferred)"""
    gpu_models: Annotated[tuple[str, ...], BeforeValidator(words), Form("PATTERN,...")] = ()
    """models that are known to use the GPUs of their instance_group, such as 'embed*'"""
    probe: Patterns = ()
    """send small inference requests to these models, such as '*' (repeatable)"""
    probe_exclude: Patterns = ()
    """models to exclude from --probe (repeatable)"""
    probe_interval: Duration = _DEFAULTS.probe.interval_seconds
    """interval between two probes of a model (default: {default})"""
    probe_timeout: Duration = _DEFAULTS.probe.timeout_seconds
    """timeout of a probe (default: {default})"""
    probe_payloads: Folder = None
    """folder of probe requests: <model>.json, a KServe v2 inference request (default: inputs of zeros)"""
    probe_grpc: Annotated[str, single(grpc), Form("HOST:PORT")] = ""
    """Triton's gRPC address, to probe decoupled models; grpcs://HOST:PORT for TLS"""
    buckets: Annotated[
        tuple[tuple[str, tuple[float, ...]], ...],
        each(model_buckets),
        Form("MODEL=SECONDS,...", repeated=True),
    ] = ()
    """bucket bounds of a model's latency and queue histograms, such as embedder=0.005,0.01,0.05 (repeatable)"""
    buckets_from: Folder = None
    """folder of objectives: each threshold becomes a bucket bound of the histograms"""
    state_file: File = None
    """file that stores the histograms, so that they continue after a restart (default: none, restart at zero)"""
    otlp_listen: Annotated[tuple[str, int] | None, single(host_and_port), Form("HOST:PORT")] = None
    """address to receive Triton's traces on (OTLP over HTTP), such as 127.0.0.1:4318"""
    otlp_allow_remote: Annotated[bool, Form("{true,false}", switch=True)] = False
    """allow --otlp-listen on an address that other machines can reach; any of them can then send forged traces"""
    trace_file: File = None
    """trace file that Triton writes in trace mode `triton`"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add every option to a parser; none has a default there, so that a settings file can give it."""
    declare_some(parser, ExporterOptions.model_fields)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings file (YAML) with these options as keys, written with _ instead of -",
    )


def declare_some(parser: argparse.ArgumentParser | argparse._ArgumentGroup, keys: Iterable[str]) -> None:
    """Add the options with these keys, for a verb that polls a Triton as the exporter does."""
    for key in keys:
        text, kind = _help(key), form(key)
        if kind.switch:
            parser.add_argument(flag(key), help=text, action="store_const", const="true")
        else:
            action = "append" if kind.repeated else "store"
            parser.add_argument(flag(key), help=text, metavar=kind.metavar, action=action)


def flag(key: str) -> str:
    """Return the option of the command line: `--gpu-models` of `gpu_models`."""
    return "--" + key.replace("_", "-")


def _help(key: str) -> str:
    field = ExporterOptions.model_fields[key]
    return str(field.description).replace("{default}", form(key).default_text(field.default))


def form(key: str) -> Form:
    """Return the form of an option's value."""
    return next(entry for entry in ExporterOptions.model_fields[key].metadata if isinstance(entry, Form))
