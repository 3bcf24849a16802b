"""The exporter's options: on the command line and, under the same names, in a settings file."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from triton_exporter.app.settings import GpuChoice, Settings
from triton_exporter.distribution.buckets import Buckets, ThresholdError, thresholds
from triton_exporter.duration import duration_between, duration_text
from triton_exporter.http.certificates import CertificateError, Certificates
from triton_exporter.lifecycle.expectations import parse_expected
from triton_exporter.options import host_and_port, is_loopback, is_web_address, with_scheme
from triton_exporter.probe.payload import PayloadError, Tensor, load_payloads
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.yaml_faults import YAML_FAULTS, fault, read_yaml
from triton_slo.problem import Problem
from tritonwatch.command_error import UsageError

HEADERS_VARIABLE = "TRITON_HEADERS"
"""Environment variable with headers for Triton's restricted endpoints: `name: value`, one a line."""

CERTIFICATES = ("triton_ca_file", "triton_cert_file", "triton_key_file")
"""Options that an environment variable of the same name, in capitals, gives where nothing else does."""

TRITON_OPTIONS = ("triton", "triton_metrics", "triton_headers_file", *CERTIFICATES)
"""Options that give access to a Triton."""

DOCTOR_OPTIONS = (*TRITON_OPTIONS, "gpu", "dcgm_url", "gpu_devices", "gpu_models")
"""Options of what examines a Triton and its GPUs."""


class Form(NamedTuple):
    """Form of an option's value; a `repeated` option can be given several times, a `switch` has no value.

    `default_text` writes a default for the `{default}` of the help.
    """

    metavar: str
    repeated: bool = False
    switch: bool = False
    default_text: Callable[[Any], str] = str


class OptionsError(Exception):
    """Mistakes in the options, all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen settings, and the web config file if there is one."""

    settings: Settings
    web_config: Path | None


# Readers of single values: each raises ValueError with what is wrong.


def _url(text: str) -> str:
    url = with_scheme(text)
    if not is_web_address(url):
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    parts = urlsplit(url)
    if "@" in parts.netloc:
        # The message does not repeat the address, which may contain a password.
        raise ValueError("an address takes no user and password; give headers by --triton-headers-file")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a ? or a #; give the address without it")
    return url.rstrip("/")


def _number(text: str, least: float, most: float, wanted: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise ValueError(f"{text!r} is not {wanted}")
    return number


def _per_second(text: str) -> float:
    return _number(text, 0.1, 100, "a number of traced requests a second from 0.1 to 100")


def _percent(text: str) -> float:
    try:
        return _number(text.removesuffix("%"), 0.01, 100, "a share") / 100
    except ValueError:
        raise ValueError(f"{text!r} is not a share such as 2%, from 0.01% to 100%") from None


def _words(raw: object) -> tuple[str, ...]:
    words = raw if isinstance(raw, list) else str(raw).split(",")
    return tuple(str(word).strip() for word in words if str(word).strip())


def _model_buckets(text: str) -> tuple[str, tuple[float, ...]]:
    model, _, bounds = text.rpartition("=")
    try:
        seconds = tuple(float(bound) for bound in bounds.split(","))
    except ValueError:
        seconds = ()
    if not model or not seconds or not all(0 < bound < float("inf") for bound in seconds):
        raise ValueError(f"{text!r} is not MODEL=SECONDS,..., such as embedder=0.005,0.01,0.05")
    return model, seconds


def _expectation(text: str) -> str:
    parse_expected([text])
    return text.strip()


def _word(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def _grpc(text: str) -> str:
    tls = "grpcs://" if text.startswith("grpcs://") else ""
    host, port = host_and_port(text.removeprefix(tls))
    return f"{tls}[{host}]:{port}" if ":" in host else f"{tls}{host}:{port}"


def _path(text: str) -> Path:
    if not text:
        raise ValueError("is empty")
    return Path(text)


def _single(read: Callable[[str], Any]) -> BeforeValidator:
    def checked(raw: object) -> Any:
        if isinstance(raw, list | dict):
            raise ValueError(f"{raw!r} is not a single value")
        return read(str(raw))

    return BeforeValidator(checked)


def _each(read: Callable[[str], Any]) -> BeforeValidator:
    return BeforeValidator(
        lambda raw: tuple(read(str(item)) for item in (raw if isinstance(raw, list) else [raw]))
    )


Url = Annotated[str, _single(_url), Form("URL")]
File = Annotated[Path | None, _single(_path), Form("FILE")]
Folder = Annotated[Path | None, _single(_path), Form("DIR")]
Address = Annotated[
    tuple[str, int],
    _single(host_and_port),
    Form("HOST:PORT", default_text=lambda address: f"{address[0]}:{address[1]}"),
]
Duration = Annotated[
    float, _single(duration_between(0.05, 3600)), Form("DURATION", default_text=duration_text)
]
Percent = Annotated[
    float, _single(_percent), Form("PERCENT", default_text=lambda share: f"{100 * share:g}%%")
]
Patterns = Annotated[tuple[str, ...], _each(_word), Form("PATTERN", repeated=True)]


_DEFAULTS = Settings(triton_url="", metrics_url="")


class ExporterOptions(BaseModel):
    """Every option by its name in a settings file; the docstring of a field is its help."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    triton: Url
    """address of Triton's HTTP API, such as http://127.0.0.1:8000"""
    triton_metrics: Url = ""
    """Triton's metrics endpoint (default: /metrics on port 8002 of the same host)"""
    triton_headers_file: File = None
    """headers for Triton's restricted endpoints, one `name: value` per line (default: $TRITON_HEADERS)"""
    triton_ca_file: File = None
    """CA certificates (PEM) for Triton instead of the system's (default: $TRITON_CA_FILE)"""
    triton_cert_file: File = None
    """client certificate (PEM), where Triton's proxy asks for one (default: $TRITON_CERT_FILE)"""
    triton_key_file: File = None
    """private key of the client certificate (default: $TRITON_KEY_FILE, or in the certificate file)"""
    triton_log: File = None
    """Triton's log, a file or a pipe: some load failures are reported nowhere else"""
    listen: Address = (_DEFAULTS.listen_host, _DEFAULTS.listen_port)
    """address to serve /metrics on (default: {default})"""
    web_config: File = None
    """TLS and basic authentication of the exporter: a web config file of exporter-toolkit"""
    expect: Annotated[tuple[str, ...], _each(_expectation), Form("MODEL[:VERSION]", repeated=True)] = ()
    """a model that should be served: an alert fires when it is missing (repeatable)"""
    expect_file: File = None
    """file of models that should be served, one per line; read again when it changes"""
    sampling_interval: Annotated[float | None, _single(duration_between(0.05, 3600)), Form("DURATION")] = None
    """fixed interval between two samples of Triton's metrics (default: what --sampling-budget allows)"""
    sampling_budget: Percent = _DEFAULTS.sampling_budget
    """share of one core for sampling, the work of the exporter and of Triton together (default: {default})"""
    state_interval: Duration = _DEFAULTS.state_interval_seconds
    """interval between two polls of Triton's API; longer where the API is slow (default: {default})"""
    timeout: Duration = _DEFAULTS.timeout_seconds
    """timeout of a request to Triton (default: {default})"""
    gpu: Annotated[GpuChoice, Form("{auto,dcgm,nvml,triton,none}")] = _DEFAULTS.gpu
    """source of GPU metrics (default: {default}, the best one available)"""
    dcgm_url: Url = ""
    """metrics endpoint of dcgm-exporter (default: port 9400 of this machine)"""
    gpu_devices: Annotated[tuple[str, ...], BeforeValidator(_words), Form("GPU-UUID[/INSTANCE],...")] = ()
    """GPUs of Triton, in the order of its CUDA devices (default: inferred)"""
    gpu_models: Annotated[tuple[str, ...], BeforeValidator(_words), Form("PATTERN,...")] = ()
    """models that certainly use the GPUs of their instance_group, such as 'embed*'"""
    probe: Patterns = ()
    """send small inference requests to these models, such as '*' (repeatable)"""
    probe_exclude: Patterns = ()
    """models to exclude from --probe (repeatable)"""
    probe_interval: Duration = _DEFAULTS.probe.interval_seconds
    """interval between two probes of a model (default: {default})"""
    probe_timeout: Duration = _DEFAULTS.probe.timeout_seconds
    """timeout of a probe (default: {default})"""
    probe_payloads: Folder = None
    """folder of requests to send instead of zeros: <model>.json, a KServe v2 inference request"""
    probe_grpc: Annotated[str, _single(_grpc), Form("HOST:PORT")] = ""
    """Triton's gRPC address, to probe decoupled models; grpcs://HOST:PORT for TLS"""
    buckets: Annotated[
        tuple[tuple[str, tuple[float, ...]], ...],
        _each(_model_buckets),
        Form("MODEL=SECONDS,...", repeated=True),
    ] = ()
    """bucket bounds of a model's latency and queue histograms, such as embedder=0.005,0.01,0.05 (repeatable)"""
    buckets_from: Folder = None
    """folder of objectives: each threshold becomes a bucket bound of the histograms"""
    state_file: File = None
    """file that stores the histograms across restarts of the exporter (default: none, they start at zero)"""
    otlp_listen: Annotated[tuple[str, int] | None, _single(host_and_port), Form("HOST:PORT")] = None
    """address to receive Triton's traces on (OTLP over HTTP), such as 127.0.0.1:4318"""
    otlp_allow_remote: Annotated[bool, Form("{true,false}", switch=True)] = False
    """allow --otlp-listen on an address that other machines reach; they can send forged traces"""
    trace_file: File = None
    """the trace-file of Triton's trace mode `triton`"""
    govern_traces: Annotated[float | None, _single(_per_second), Form("PER_SECOND")] = None
    """let the exporter set Triton's trace rates to trace about this many requests a second, such as 20"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Add every option to a parser; none has a default there, so that a settings file can give it."""
    declare_some(parser, ExporterOptions.model_fields)
    parser.add_argument(
        "--config", metavar="FILE", help="settings file (YAML): these options by name, with _ for -"
    )


def declare_some(parser: argparse.ArgumentParser | argparse._ArgumentGroup, keys: Iterable[str]) -> None:
    """Add the options with these keys, for a verb that polls a Triton as the exporter does."""
    for key in keys:
        text, form = _help(key), _form(key)
        if form.switch:
            parser.add_argument(_flag(key), help=text, action="store_const", const="true")
        else:
            action = "append" if form.repeated else "store"
            parser.add_argument(_flag(key), help=text, metavar=form.metavar, action=action)


def chosen(args: argparse.Namespace) -> Chosen:
    """Join command line, settings file and environment. Raises OptionsError."""
    return choose(vars(args), os.environ)


def chosen_some(args: argparse.Namespace, keys: Iterable[str]) -> Settings:
    """Join them for the options that `declare_some` added. Raises UsageError with every mistake."""
    try:
        return choose({key: getattr(args, key) for key in keys}, os.environ).settings
    except OptionsError as error:
        raise UsageError(*error.problems) from error


def choose(given: Mapping[str, Any], environment: Mapping[str, str]) -> Chosen:
    """Join flags (first), settings file, environment and defaults. Raises OptionsError with every mistake."""
    problems: list[Problem] = []
    variables = {key: value for key in CERTIFICATES if (value := environment.get(key.upper()))}
    file = Path(str(given["config"])) if given.get("config") else None
    content = _content(file, problems) if file else {}
    flags = {key: given[key] for key in ExporterOptions.model_fields if given.get(key) is not None}
    # Where each value was given: every message names it.
    places = (
        {key: f"${key.upper()}" for key in variables}
        | {key: f"{file}: {key}" for key in content}
        | {key: _flag(key) for key in flags}
    )
    options = _validated({**variables, **content, **flags}, places, problems)
    settings = _settings(options, environment, places, problems)
    if problems:
        raise OptionsError(problems)
    return Chosen(settings, options.web_config)


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _help(key: str) -> str:
    field = ExporterOptions.model_fields[key]
    return str(field.description).replace("{default}", _form(key).default_text(field.default))


def _form(key: str) -> Form:
    return next(entry for entry in ExporterOptions.model_fields[key].metadata if isinstance(entry, Form))


def _content(path: Path, problems: list[Problem]) -> dict[str, Any]:
    try:
        content = read_yaml(path)
    except (OSError, *YAML_FAULTS) as error:
        problems.append(Problem(str(path), fault(error), "write a YAML mapping of options"))
        return {}
    if content is not None and not isinstance(content, dict):
        problems.append(Problem(str(path), "is not a mapping", "write a YAML mapping of options"))
        return {}
    return {str(key): value for key, value in (content or {}).items()}


def _validated(raw: Mapping[str, Any], places: Mapping[str, str], problems: list[Problem]) -> ExporterOptions:
    """Return the options, with the default for those that are wrong."""
    try:
        return ExporterOptions.model_validate(raw)
    except ValidationError as error:
        mistakes = {str(detail["loc"][0]): detail for detail in error.errors()}
    for key, mistake in mistakes.items():
        if mistake["type"] == "missing":
            problems.append(Problem(_flag(key), "is missing", f"{_flag(key)} http://127.0.0.1:8000"))
        elif mistake["type"] == "extra_forbidden":
            known = ", ".join(sorted(ExporterOptions.model_fields))
            problems.append(Problem(places[key], "is not an option", f"one of {known}"))
        else:
            reason = str(mistake.get("ctx", {}).get("error") or f"{raw[key]!r}: {mistake['msg'].lower()}")
            problems.append(Problem(places[key], reason, f"write it as {_form(key).metavar}"))
    right = {key: value for key, value in raw.items() if key not in mistakes}
    return ExporterOptions.model_validate({"triton": "http://127.0.0.1:8000"} | right)


def _settings(
    options: ExporterOptions,
    environment: Mapping[str, str],
    places: Mapping[str, str],
    problems: list[Problem],
) -> Settings:
    otlp = options.otlp_listen
    if otlp and not (options.otlp_allow_remote or is_loopback(otlp[0])):
        reason = f"other machines can reach {otlp[0]} and send forged traces"
        problems.append(Problem("--otlp-listen", reason, "127.0.0.1:4318, or add --otlp-allow-remote"))
    if options.govern_traces and not otlp:
        problems.append(
            Problem(
                places["govern_traces"],
                "needs --otlp-listen to receive the traces",
                "--otlp-listen 127.0.0.1:4318",
            )
        )
    if options.probe and importlib.util.find_spec("tritonclient") is None:
        problems.append(Problem("--probe", "needs Triton's client", "pip install 'tritonwatch[probe]'"))
    host, port = options.listen
    return Settings(
        triton_url=options.triton,
        metrics_url=options.triton_metrics or metrics_url(options.triton),
        gpu=options.gpu,
        dcgm_url=options.dcgm_url,
        gpu_devices=options.gpu_devices,
        gpu_models=options.gpu_models,
        pod_name=environment.get("POD_NAME", ""),
        listen_host=host,
        listen_port=port,
        sampling_interval_seconds=options.sampling_interval,
        sampling_budget=options.sampling_budget,
        state_interval_seconds=options.state_interval,
        timeout_seconds=options.timeout,
        expected=parse_expected(options.expect),
        expected_file=options.expect_file,
        log=options.triton_log,
        triton_headers=_headers(options.triton_headers_file, environment, problems),
        certificates=_certificates(options, places, problems),
        probe=ProbeSettings(
            models=options.probe,
            exclude=options.probe_exclude,
            interval_seconds=options.probe_interval,
            timeout_seconds=options.probe_timeout,
            grpc_address=options.probe_grpc,
            payloads=_payloads(options.probe_payloads, problems),
        ),
        buckets=_buckets(options.buckets_from, options.buckets, problems),
        otlp_listen=otlp,
        trace_file=options.trace_file,
        govern_traces=options.govern_traces,
        state_file=options.state_file,
    )


def metrics_url(triton_url: str) -> str:
    """Triton's metrics on its default port, on the same host as its API."""
    host = urlsplit(triton_url).hostname or ""
    return f"http://[{host}]:8002/metrics" if ":" in host else f"http://{host}:8002/metrics"


def _headers(path: Path | None, environment: Mapping[str, str], problems: list[Problem]) -> dict[str, str]:
    place, text = f"${HEADERS_VARIABLE}", environment.get(HEADERS_VARIABLE, "")
    if path is not None:
        place = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(place, str(getattr(error, "strerror", None) or "is not UTF-8")))
            return {}
    headers = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        # The line itself may be a secret: it is never part of a message.
        if not colon or not name.strip() or not name.strip().replace("-", "").isalnum() or not line.isascii():
            problems.append(Problem(f"{place}:{number}", "is not a header", "write it as name: value"))
        else:
            headers[name.strip()] = value.strip()
    return headers


def _certificates(
    options: ExporterOptions, places: Mapping[str, str], problems: list[Problem]
) -> Certificates:
    given = [places[name] for name in CERTIFICATES if name in places]
    certificates = Certificates(options.triton_ca_file, options.triton_cert_file, options.triton_key_file)
    if certificates.key and not certificates.own:
        problems.append(Problem(given[-1], "is a key without a certificate", "name it: --triton-cert-file"))
    urls = (options.triton, options.triton_metrics, options.probe_grpc)
    if given and not any(url.startswith(("https://", "grpcs://")) for url in urls):
        problems.append(Problem(given[0], "would not be used: no URL is https", "--triton https://HOST:PORT"))
    try:
        certificates.check()
    except CertificateError as error:
        problems += [Problem(*problem) for problem in error.problems]
    return certificates


def _payloads(folder: Path | None, problems: list[Problem]) -> Mapping[str, tuple[Tensor, ...]]:
    try:
        return load_payloads(folder) if folder else {}
    except OSError as error:
        problems.append(Problem(str(folder), str(error.strerror), "name a folder of <model>.json files"))
    except PayloadError as error:
        problems += [Problem(*problem.split(": ", 1)) for problem in error.problems]
    return {}


def _buckets(
    path: Path | None, per_model: Sequence[tuple[str, tuple[float, ...]]], problems: list[Problem]
) -> Buckets:
    try:
        return Buckets(per_model=dict(per_model), thresholds=thresholds(path) if path else {})
    except ThresholdError as error:
        problems.append(Problem("--buckets-from", str(error)))
        return Buckets()
