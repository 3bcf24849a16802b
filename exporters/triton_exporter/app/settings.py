"""The options of the exporter, and of what else polls a Triton: `doctor`, `init` and the web page."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from triton_exporter.common.duration import duration_between
from triton_exporter.common.options import (
    Address,
    Duration,
    File,
    Form,
    HeadersFile,
    MetricsUrl,
    OptionsModel,
    Patterns,
    Percent,
    Rare,
    Switch,
    Variable,
    api_url,
    each,
    grpc_address,
    host_and_port,
    is_grpc,
    is_loopback,
    path,
    single,
    words,
)
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.distribution.buckets import Buckets, Signal, thresholds
from triton_exporter.http.certificates import Certificates
from triton_exporter.lifecycle.expectations import Expected, parse_expected
from triton_exporter.probe.payload import Tensor, load_payloads
from triton_exporter.probe.probe_settings import ProbeSettings

_DEFAULT_METRICS_PORT = 8002


def _expectation(text: str) -> str:
    parse_expected([text])
    return text.strip()


def _read_folder(read: Callable[[Path], object]) -> BeforeValidator:
    return BeforeValidator(lambda raw: raw if isinstance(raw, Mapping) else read(path(str(raw))))


def _model_buckets(text: str) -> tuple[str, tuple[float, ...]]:
    model, _, bounds = text.rpartition("=")
    try:
        seconds = tuple(float(bound) for bound in bounds.split(","))
    except ValueError:
        seconds = ()
    if not model or not seconds or not all(0 < bound < float("inf") for bound in seconds):
        raise ValueError(f"{text!r} is not MODEL=SECONDS,..., such as embedder=0.005,0.01,0.05")
    return model, seconds


def lacks_client(triton: str) -> bool:
    """Return whether the API at this address needs a package that is not installed."""
    return is_grpc(triton) and not all(map(importlib.util.find_spec, ("grpc", "tritonclient")))


class TritonAccess(OptionsModel):
    """Access to a Triton; URLs have no trailing slash."""

    section = "exporter"

    triton: Annotated[str, single(api_url), Form("URL")] = ""
    """URL of Triton's API, such as http://127.0.0.1:8000, or grpc://127.0.0.1:8001 where it has no HTTP; where only
    the metrics can be reached, leave it out and give --triton-metrics"""
    triton_metrics: MetricsUrl = ""
    """Triton's metrics endpoint, by default with the path /metrics (default: port 8002 of the same host)"""
    triton_headers_file: Annotated[Rare[HeadersFile], Variable("TRITON_HEADERS", has_content=True)] = Field(
        default_factory=dict, repr=False
    )
    """headers for Triton's restricted endpoints, one `name: value` per line (default: $TRITON_HEADERS)"""
    triton_ca_file: Annotated[Rare[File], Variable("TRITON_CA_FILE")] = None
    """CA certificates (PEM) to trust for Triton, instead of those of the system (default: $TRITON_CA_FILE)"""
    triton_cert_file: Annotated[Rare[File], Variable("TRITON_CERT_FILE")] = None
    """client certificate (PEM), if Triton or its proxy requires one (default: $TRITON_CERT_FILE)"""
    triton_key_file: Annotated[Rare[File], Variable("TRITON_KEY_FILE")] = None
    """private key of the client certificate (default: $TRITON_KEY_FILE, or in the certificate file)"""
    timeout: Rare[Duration] = 5.0
    """timeout of a request to Triton, and of one poll of Triton's API (default: {default})"""
    max_body_bytes: int = 64 * 1024 * 1024

    @property
    def address(self) -> str:
        """What a person knows this Triton by: the URL of its API, else of its metrics."""
        return self.triton or self.triton_metrics

    @property
    def metrics_url(self) -> str:
        """URL of Triton's metrics, by default on its port of the same host as its API."""
        host = urlsplit(self.triton).hostname or ""
        host = f"[{host}]" if ":" in host else host
        return self.triton_metrics or f"http://{host}:{_DEFAULT_METRICS_PORT}/metrics"

    @property
    def certificates(self) -> Certificates:
        """What is trusted for Triton, and shown to it."""
        return Certificates(self.triton_ca_file, self.triton_cert_file, self.triton_key_file)

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return what is wrong with the addresses and the certificates."""
        if not (self.triton or self.triton_metrics or places.keys() & {"triton", "triton_metrics"}):
            fix = "give --triton URL, or --triton-metrics URL where only the metrics can be reached"
            yield Problem("--triton", "is missing", fix)
        if lacks_client(self.triton):
            yield Problem(places["triton"], "needs Triton's client", "pip install 'tritonwatch[exporter]'")
        urls = self.triton, self.triton_metrics, getattr(self, "probe_grpc", "")
        yield from _certificate_problems("triton", self.certificates, urls, places, "--triton")


class DoctorSettings(TritonAccess):
    """A Triton, and the GPUs that it uses."""

    section = "exporter"

    triton_log: File = None
    """Triton's log (a file or a pipe), for load failures that Triton reports only in its log"""
    gpu: Annotated[
        Literal["auto", "dcgm", "nvml", "triton", "none"], Form("{auto,dcgm,nvml,triton,none}")
    ] = "auto"
    """source of GPU metrics (default: {default}, the best one available)"""
    dcgm_url: MetricsUrl = ""
    """metrics endpoint of dcgm-exporter, by default with the path /metrics (default: port 9400 of this machine)"""
    dcgm_headers_file: Annotated[Rare[HeadersFile], Variable("DCGM_HEADERS", has_content=True)] = Field(
        default_factory=dict, repr=False
    )
    """headers for dcgm-exporter, one `name: value` per line, such as Authorization (default: $DCGM_HEADERS)"""
    dcgm_ca_file: Annotated[Rare[File], Variable("DCGM_CA_FILE")] = None
    """CA certificates (PEM) to trust for dcgm-exporter (default: $DCGM_CA_FILE, else those of the system)"""
    dcgm_cert_file: Annotated[Rare[File], Variable("DCGM_CERT_FILE")] = None
    """client certificate (PEM), if dcgm-exporter requires one (default: $DCGM_CERT_FILE)"""
    dcgm_key_file: Annotated[Rare[File], Variable("DCGM_KEY_FILE")] = None
    """private key of that certificate (default: $DCGM_KEY_FILE, or in the certificate file)"""
    gpu_devices: Annotated[
        Rare[tuple[str, ...]], BeforeValidator(words), Form("GPU-UUID[/INSTANCE],...")
    ] = ()
    """UUIDs of the GPUs that Triton uses, in the order of Triton's CUDA device numbers (default: inferred)"""
    gpu_models: Annotated[Rare[tuple[str, ...]], BeforeValidator(words), Form("PATTERN,...")] = ()
    """models that are known to use the GPUs of their instance_group, such as 'embed*'"""
    gpu_interval_seconds: float = 5.0
    pod_name: Annotated[str, Variable("POD_NAME")] = ""

    @property
    def dcgm_certificates(self) -> Certificates:
        """What is trusted for dcgm-exporter, and shown to it."""
        return Certificates(self.dcgm_ca_file, self.dcgm_cert_file, self.dcgm_key_file)

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return what is wrong with the certificates."""
        yield from super().problems(places)
        yield from _certificate_problems(
            "dcgm", self.dcgm_certificates, (self.dcgm_url,), places, "--dcgm-url"
        )


class Settings(DoctorSettings):
    """Every option of the exporter; times are in seconds."""

    section = "exporter"

    listen: Address = ("127.0.0.1", 9401)
    """address to serve /metrics on (default: {default})"""
    web_config: File = None
    """TLS and basic authentication of the exporter: a web config file of exporter-toolkit"""
    expect: Annotated[tuple[str, ...], each(_expectation), Form("MODEL[:VERSION]", repeated=True)] = ()
    """model that should be served; an alert fires while this model is missing (repeatable)"""
    expect_file: Rare[File] = None
    """file of models that should be served, one per line; read again when it changes"""
    sampling_interval: Annotated[
        Rare[float | None], single(duration_between(0.05, 3600)), Form("DURATION")
    ] = None
    """fixed interval between two samples of Triton's metrics (default: as short as --sampling-budget allows)"""
    sampling_budget: Rare[Percent] = 0.02
    """CPU time that samples may take, including Triton's for them, as a share of one core (default: {default})"""
    state_interval: Rare[Duration] = 1.0
    """interval between two polls of Triton's API; longer if the API is slow (default: {default})"""
    relay: Annotated[Rare[Literal["all", "needed"]], Form("{all,needed}")] = "needed"
    """all: also relay the summaries of Triton, which no rule or dashboard reads (default: {default})"""
    probe: Patterns = ()
    """send small inference requests to these models, such as '*' (repeatable)"""
    probe_exclude: Rare[Patterns] = ()
    """models to exclude from --probe (repeatable)"""
    probe_interval: Rare[Duration] = 30.0
    """interval between two probes of a model (default: {default})"""
    probe_timeout: Rare[Duration] = 5.0
    """timeout of a probe (default: {default})"""
    probe_payloads: Annotated[
        Rare[Mapping[str, tuple[Tensor, ...]]],
        _read_folder(load_payloads),
        Form("DIR"),
    ] = Field(default_factory=dict)
    """folder of probe requests: <model>.json, a KServe v2 inference request (default: inputs of zeros)"""
    probe_grpc: Annotated[Rare[str], single(grpc_address), Form("HOST:PORT")] = ""
    """Triton's gRPC address, to probe decoupled models; grpcs://HOST:PORT for TLS"""
    buckets: Annotated[
        Rare[tuple[tuple[str, tuple[float, ...]], ...]],
        each(_model_buckets),
        Form("MODEL=SECONDS,...", repeated=True),
    ] = ()
    """bucket bounds of a model's latency and queue histograms, such as embedder=0.005,0.01,0.05 (repeatable)"""
    buckets_from: Annotated[Mapping[Signal, tuple[float, ...]], _read_folder(thresholds), Form("DIR")] = (
        Field(default_factory=dict)
    )
    """folder of objectives: each threshold becomes a bucket bound of the histograms"""
    state_file: File = None
    """file that stores the histograms, so that they continue after a restart (default: none, restart at zero)"""
    otlp_listen: Annotated[Rare[tuple[str, int] | None], single(host_and_port), Form("HOST:PORT")] = None
    """address to receive Triton's traces on (OTLP over HTTP), such as 127.0.0.1:4318"""
    otlp_allow_remote: Rare[Switch] = False
    """allow --otlp-listen on an address that other machines can reach; any of them can then send forged traces"""

    @property
    def expected(self) -> Expected:
        return parse_expected(self.expect)

    @property
    def probes(self) -> ProbeSettings:
        return ProbeSettings(
            models=self.probe,
            exclude=self.probe_exclude,
            interval_seconds=self.probe_interval,
            timeout_seconds=self.probe_timeout,
            grpc_address=self.probe_grpc or (grpc_address(self.triton) if is_grpc(self.triton) else ""),
            payloads=self.probe_payloads,
        )

    @property
    def bucket_bounds(self) -> Buckets:
        return Buckets(per_model=dict(self.buckets), thresholds=self.buckets_from)

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return what needs another option, or a package."""
        yield from super().problems(places)
        if self.otlp_listen and not (self.otlp_allow_remote or is_loopback(self.otlp_listen[0])):
            reason = f"other machines can reach {self.otlp_listen[0]} and send forged traces"
            yield Problem("--otlp-listen", reason, "127.0.0.1:4318, or add --otlp-allow-remote")
        for name in ("expect", "expect_file", "probe"):
            if places.get(name) and not self.triton:
                yield Problem(places[name], "needs Triton's API", "give --triton URL, or leave this out")
        if self.probe and importlib.util.find_spec("tritonclient") is None:
            yield Problem("--probe", "needs Triton's client", "pip install 'tritonwatch[exporter]'")


def _certificate_problems(
    peer: str, certificates: Certificates, urls: Iterable[str], places: Mapping[str, str], option: str
) -> Iterator[Problem]:
    """Yield what is wrong with the certificates for a peer, which is reached at these URLs."""
    names = (f"{peer}_ca_file", f"{peer}_cert_file", f"{peer}_key_file")
    given = [places[name] for name in names if name in places]
    if certificates.key and not certificates.own:
        yield Problem(given[-1], "is a key without a certificate", f"name it: --{peer}-cert-file")
    if given and not any(each.startswith(("https://", "grpcs://")) for each in urls):
        yield Problem(given[0], "would not be used: no URL is https", f"{option} https://HOST:PORT")
    try:
        certificates.check()
    except ProblemsError as error:
        yield from error.problems
