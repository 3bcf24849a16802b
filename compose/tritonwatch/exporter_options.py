"""The exporter's options: on the command line and, under the same names, in a settings file."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from triton_exporter.app.settings import Settings
from triton_exporter.distribution.buckets import Buckets, ThresholdError, thresholds
from triton_exporter.http.certificates import CertificateError, Certificates
from triton_exporter.lifecycle.expectations import parse_expected
from triton_exporter.probe.payload import PayloadError, Tensor, load_payloads
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.yaml_faults import YAML_FAULTS, fault
from triton_slo.problem import Problem

HEADERS_VARIABLE = "TRITON_HEADERS"
"""Environment variable with headers for Triton's restricted endpoints: `name: value`, one a line."""


class Option(NamedTuple):
    """One option; `read` turns its text into a value and raises ValueError with what is wrong."""

    name: str
    read: Callable[[str], Any]
    metavar: str
    help: str
    default: Any = None
    many: bool = False
    variable: str = ""  # environment variable; the command line and the settings file take precedence
    switch: bool = False  # on the command line it takes no value

    @property
    def key(self) -> str:
        """Its name in a settings file and in a namespace."""
        return self.name.replace("-", "_")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen settings, and the web config file if there is one."""

    settings: Settings
    web_config: Path | None


class OptionsError(Exception):
    """Mistakes in the options, all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def declare(parser: argparse.ArgumentParser) -> None:
    """Add every option to a parser; none has a default there, so that a settings file can give it."""
    declare_some(parser, [option.key for option in OPTIONS])
    parser.add_argument(
        "--config", metavar="FILE", help="settings file (YAML): these options by name, with _ for -"
    )


def declare_some(parser: argparse.ArgumentParser, keys: Collection[str]) -> None:
    """Add the options with these keys, for a verb that polls a Triton as the exporter does."""
    for option in OPTIONS:
        if option.key in keys:
            if option.switch:
                parser.add_argument(f"--{option.name}", help=option.help, action="store_const", const="true")
                continue
            parser.add_argument(
                f"--{option.name}",
                metavar=option.metavar,
                help=option.help,
                action="append" if option.many else "store",
            )


def choose(given: Mapping[str, Any], environment: Mapping[str, str]) -> Chosen:
    """Join command line (first), settings file and defaults. Raises OptionsError with every mistake."""
    problems: list[Problem] = []
    texts: dict[str, tuple[str, Any]] = {
        option.key: (f"${option.variable}", environment[option.variable])
        for option in OPTIONS
        if environment.get(option.variable)
    }
    if given.get("config"):
        texts |= _from_file(Path(str(given["config"])), problems)
    texts |= {
        option.key: (f"--{option.name}", given[option.key])
        for option in OPTIONS
        if given.get(option.key) is not None
    }
    values = {option.key: _value(option, texts, problems) for option in OPTIONS}
    if "triton" not in texts:
        problems.append(Problem("--triton", "is missing", "--triton http://127.0.0.1:8000"))
    headers = _headers(values["triton_headers_file"], environment, problems)
    buckets = _buckets(values["buckets_from"], values["buckets"], problems)
    payloads = _payloads(values["probe_payloads"], problems)
    certificates = _certificates(values, texts, problems)
    otlp = values["otlp_listen"]
    if otlp and not (values["otlp_allow_remote"] or _is_loopback(otlp[0])):
        reason = f"other machines can reach {otlp[0]} and send forged traces"
        problems.append(Problem("--otlp-listen", reason, "127.0.0.1:4318, or add --otlp-allow-remote"))
    if values["probe"] and importlib.util.find_spec("tritonclient") is None:
        problems.append(Problem("--probe", "needs Triton's client", "pip install 'tritonwatch[probe]'"))
    if problems:
        raise OptionsError(problems)
    host, port = values["listen"]
    settings = Settings(
        triton_url=values["triton"],
        metrics_url=values["triton_metrics"] or metrics_url(values["triton"]),
        gpu=values["gpu"],
        dcgm_url=values["dcgm_url"] or "",
        gpu_devices=values["gpu_devices"],
        gpu_models=values["gpu_models"],
        pod_name=environment.get("POD_NAME", ""),
        listen_host=host,
        listen_port=port,
        sampling_interval_seconds=values["sampling_interval"],
        state_interval_seconds=values["state_interval"],
        timeout_seconds=values["timeout"],
        expected=parse_expected(values["expect"]),
        expected_file=values["expect_file"],
        log=values["triton_log"],
        triton_headers=headers,
        certificates=certificates,
        probe=ProbeSettings(
            models=tuple(values["probe"]),
            exclude=tuple(values["probe_exclude"]),
            interval_seconds=values["probe_interval"],
            timeout_seconds=values["probe_timeout"],
            grpc_address=values["probe_grpc"] or "",
            payloads=payloads,
        ),
        buckets=buckets,
        otlp_listen=otlp,
        trace_file=values["trace_file"],
    )
    return Chosen(settings, values["web_config"])


def metrics_url(triton_url: str) -> str:
    """Triton's metrics on its default port, on the same host as its API."""
    host = urlsplit(triton_url).hostname or ""
    return f"http://[{host}]:8002/metrics" if ":" in host else f"http://{host}:8002/metrics"


def _from_file(path: Path, problems: list[Problem]) -> dict[str, tuple[str, Any]]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, *YAML_FAULTS) as error:
        problems.append(Problem(str(path), fault(error), "write a YAML mapping of options"))
        return {}
    if content is not None and not isinstance(content, dict):
        problems.append(Problem(str(path), "is not a mapping", "write a YAML mapping of options"))
        return {}
    known = {option.key for option in OPTIONS}
    for key in content or {}:
        if key not in known:
            problems.append(
                Problem(f"{path}: {key}", "is not an option", f"one of {', '.join(sorted(known))}")
            )
    return {key: (f"{path}: {key}", value) for key, value in (content or {}).items() if key in known}


def _value(option: Option, texts: Mapping[str, tuple[str, Any]], problems: list[Problem]) -> Any:
    if option.key not in texts:
        return option.default
    place, raw = texts[option.key]
    words = raw if isinstance(raw, list) else [raw]
    if isinstance(raw, dict) or (isinstance(raw, list) and not (option.many or option.read is _words)):
        problems.append(Problem(place, f"{raw!r} is not a single value", f"write it as {option.metavar}"))
        return option.default
    try:
        if option.many:
            return [option.read(str(word)) for word in words]
        return option.read(",".join(str(word) for word in words))
    except ValueError as error:
        problems.append(Problem(place, str(error), f"write it as {option.metavar}"))
        return option.default


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
    values: Mapping[str, Any], texts: Mapping[str, tuple[str, Any]], problems: list[Problem]
) -> Certificates:
    names = ("triton_ca_file", "triton_cert_file", "triton_key_file")
    given = [texts[name][0] for name in names if name in texts]
    certificates = Certificates(*(values[name] for name in names))
    if certificates.key and not certificates.own:
        problems.append(Problem(given[-1], "is a key without a certificate", "name it: --triton-cert-file"))
    urls = (str(values[name] or "") for name in ("triton", "triton_metrics", "probe_grpc"))
    if given and not any(url.startswith(("https://", "grpcs://")) for url in urls):
        problems.append(Problem(given[0], "would not be used: no URL is https", "--triton https://HOST:PORT"))
    try:
        certificates.context()
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


def _url(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(character.isspace() for character in url):
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    if "@" in parts.netloc:
        # Not repeated: it may hold a password.
        raise ValueError("an address takes no user and password; give headers by --triton-headers-file")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a ? or a #; give the address without it")
    return url.rstrip("/")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9401")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _yes_or_no(text: str) -> bool:
    answers = {"true": True, "yes": True, "false": False, "no": False}
    if text.lower() not in answers:
        raise ValueError(f"{text!r} is neither true nor false")
    return answers[text.lower()]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise ValueError(f"{text!r} is not a number of seconds from 0.05 to 3600")
    return seconds


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


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


def _gpu(text: str) -> str:
    if text not in ("auto", "dcgm", "nvml", "triton", "none"):
        raise ValueError(f"{text!r} is not one of auto, dcgm, nvml, triton, none")
    return text


def _word(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def _grpc(text: str) -> str:
    tls = "grpcs://" if text.startswith("grpcs://") else ""
    host, port = _address(text.removeprefix(tls))
    return f"{tls}[{host}]:{port}" if ":" in host else f"{tls}{host}:{port}"


def _path(text: str) -> Path:
    if not text:
        raise ValueError("is empty")
    return Path(text)


OPTIONS = (
    Option("triton", _url, "URL", "address of Triton's HTTP API, such as http://127.0.0.1:8000"),
    Option(
        "triton-metrics",
        _url,
        "URL",
        "Triton's metrics endpoint (default: /metrics on port 8002 of the same host)",
    ),
    Option(
        "triton-headers-file",
        _path,
        "FILE",
        f"headers for Triton's restricted endpoints, one `name: value` per line (default: ${HEADERS_VARIABLE})",
    ),
    Option(
        "triton-ca-file",
        _path,
        "FILE",
        "CA certificates (PEM) for Triton instead of the system's (default: $TRITON_CA_FILE)",
        variable="TRITON_CA_FILE",
    ),
    Option(
        "triton-cert-file",
        _path,
        "FILE",
        "client certificate (PEM), where Triton's proxy asks for one (default: $TRITON_CERT_FILE)",
        variable="TRITON_CERT_FILE",
    ),
    Option(
        "triton-key-file",
        _path,
        "FILE",
        "private key of the client certificate (default: $TRITON_KEY_FILE, or in the certificate file)",
        variable="TRITON_KEY_FILE",
    ),
    Option(
        "triton-log",
        _path,
        "FILE",
        "Triton's log, a file or a pipe: some load failures are reported nowhere else",
    ),
    Option(
        "listen",
        _address,
        "HOST:PORT",
        "address to serve /metrics on (default: 127.0.0.1:9401)",
        default=("127.0.0.1", 9401),
    ),
    Option(
        "web-config",
        _path,
        "FILE",
        "TLS and basic authentication of the exporter: a web config file of exporter-toolkit",
    ),
    Option(
        "expect",
        _expectation,
        "MODEL[:VERSION]",
        "a model that should be served: an alert fires when it is missing (repeatable)",
        default=(),
        many=True,
    ),
    Option(
        "expect-file",
        _path,
        "FILE",
        "file of models that should be served, one per line; read again when it changes",
    ),
    Option(
        "sampling-interval",
        _seconds,
        "SECONDS",
        "interval between two samples of Triton's metrics (default: 1)",
        default=1.0,
    ),
    Option(
        "state-interval",
        _seconds,
        "SECONDS",
        "interval between two polls of Triton's API; longer where the API is slow (default: 1)",
        default=1.0,
    ),
    Option("timeout", _seconds, "SECONDS", "timeout of a request to Triton (default: 5)", default=5.0),
    Option(
        "gpu",
        _gpu,
        "{auto,dcgm,nvml,triton,none}",
        "source of GPU metrics (default: auto, the best one available)",
        default="auto",
    ),
    Option("dcgm-url", _url, "URL", "metrics endpoint of dcgm-exporter (default: port 9400 of this machine)"),
    Option(
        "gpu-devices",
        _words,
        "GPU-UUID[/INSTANCE],...",
        "GPUs of Triton, in the order of its CUDA devices (default: inferred)",
        default=(),
    ),
    Option(
        "gpu-models",
        _words,
        "PATTERN,...",
        "models that certainly use the GPUs of their instance_group, such as 'embed*'",
        default=(),
    ),
    Option(
        "probe",
        _word,
        "PATTERN",
        "send small inference requests to these models, such as '*' (repeatable)",
        default=(),
        many=True,
    ),
    Option(
        "probe-exclude",
        _word,
        "PATTERN",
        "models to exclude from --probe (repeatable)",
        default=(),
        many=True,
    ),
    Option(
        "probe-interval",
        _seconds,
        "SECONDS",
        "interval between two probes of a model (default: 30)",
        default=30.0,
    ),
    Option("probe-timeout", _seconds, "SECONDS", "timeout of a probe (default: 5)", default=5.0),
    Option(
        "probe-payloads",
        _path,
        "DIR",
        "folder of requests to send instead of zeros: <model>.json, a KServe v2 inference request",
    ),
    Option(
        "probe-grpc",
        _grpc,
        "HOST:PORT",
        "Triton's gRPC address, to probe decoupled models; grpcs://HOST:PORT for TLS",
    ),
    Option(
        "buckets",
        _model_buckets,
        "MODEL=SECONDS,...",
        "bucket bounds of a model's latency and queue histograms, such as embedder=0.005,0.01,0.05 (repeatable)",
        default=(),
        many=True,
    ),
    Option(
        "buckets-from",
        _path,
        "DIR",
        "folder of objectives: each threshold becomes a bucket bound of the histograms",
    ),
    Option(
        "otlp-listen",
        _address,
        "HOST:PORT",
        "address to receive Triton's traces on (OTLP over HTTP), such as 127.0.0.1:4318",
    ),
    Option(
        "otlp-allow-remote",
        _yes_or_no,
        "{true,false}",
        "allow --otlp-listen on an address that other machines reach; they can send forged traces",
        default=False,
        switch=True,
    ),
    Option("trace-file", _path, "FILE", "the trace-file of Triton's trace mode `triton`"),
)


TRITON_OPTIONS = (
    "triton",
    "triton_metrics",
    "triton_headers_file",
    "triton_ca_file",
    "triton_cert_file",
    "triton_key_file",
)
"""Options that give access to a Triton."""


def chosen(args: argparse.Namespace) -> Chosen:
    """Join command line, settings file and environment. Raises OptionsError."""
    return choose(vars(args), os.environ)


def chosen_some(args: argparse.Namespace, keys: Iterable[str]) -> Settings:
    """Join them for the options that `declare_some` added. Raises OptionsError."""
    return choose({key: getattr(args, key) for key in keys}, os.environ).settings
