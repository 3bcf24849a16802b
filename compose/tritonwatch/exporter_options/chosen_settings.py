"""The exporter's settings, chosen by command line, settings file, environment and defaults, with every mistake."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from triton_exporter.app.settings import Settings
from triton_exporter.common.options import is_loopback
from triton_exporter.common.problem import Problem
from triton_exporter.common.yaml_files import YAML_FAULTS, fault, read_yaml
from triton_exporter.distribution.buckets import Buckets, ThresholdError, thresholds
from triton_exporter.http.certificates import CertificateError, Certificates
from triton_exporter.lifecycle.expectations import parse_expected
from triton_exporter.probe.payload import PayloadError, Tensor, load_payloads
from triton_exporter.probe.probe_settings import ProbeSettings
from tritonwatch.command_error import UsageError
from tritonwatch.exporter_options.declared_options import CERTIFICATES, ExporterOptions, flag, form


class OptionsError(Exception):
    """Mistakes in the options, all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class ChosenSettings:
    """The chosen settings, and the web config file if there is one."""

    settings: Settings
    web_config: Path | None


def settings_of_arguments(args: argparse.Namespace) -> ChosenSettings:
    """Join command line, settings file and environment. Raises OptionsError with every mistake."""
    return choose(vars(args), os.environ)


def some_settings_of_arguments(args: argparse.Namespace, keys: Iterable[str]) -> Settings:
    """Return the settings of the options that `declare_some` added. Raises UsageError with every mistake."""
    try:
        return choose({key: getattr(args, key) for key in keys}, os.environ).settings
    except OptionsError as error:
        raise UsageError(*error.problems) from error


def choose(given: Mapping[str, Any], environment: Mapping[str, str]) -> ChosenSettings:
    """Join flags (first), settings file, environment and defaults. Raises OptionsError with every mistake."""
    problems: list[Problem] = []
    variables = {key: value for key in CERTIFICATES if (value := environment.get(key.upper()))}
    file = Path(str(given["config"])) if given.get("config") else None
    content = _yaml_content(file, problems) if file else {}
    flags = {key: given[key] for key in ExporterOptions.model_fields if given.get(key) is not None}
    # Messages name the place of a wrong value: there are three in which it may have been given.
    places = (
        {key: f"${key.upper()}" for key in variables}
        | {key: f"{file}: {key}" for key in content}
        | {key: flag(key) for key in flags}
    )
    options = _validated({**variables, **content, **flags}, places, problems)
    settings = _settings(options, environment, places, problems)
    if problems:
        raise OptionsError(problems)
    return ChosenSettings(settings, options.web_config)


def _yaml_content(path: Path, problems: list[Problem]) -> dict[str, Any]:
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
            problems.append(Problem(flag(key), "is missing", f"{flag(key)} http://127.0.0.1:8000"))
        elif mistake["type"] == "extra_forbidden":
            known = ", ".join(sorted(ExporterOptions.model_fields))
            problems.append(Problem(places[key], "is not an option", f"one of {known}"))
        else:
            reason = str(mistake.get("ctx", {}).get("error") or f"{raw[key]!r}: {mistake['msg'].lower()}")
            problems.append(Problem(places[key], reason, f"write it as {form(key).metavar}"))
    right = {key: value for key, value in raw.items() if key not in mistakes}
    return ExporterOptions.model_validate({"triton": "http://127.0.0.1:8000"} | right)


def _check_together(options: ExporterOptions, problems: list[Problem]) -> None:
    """Note options that need another one, or a package."""
    otlp = options.otlp_listen
    if otlp and not (options.otlp_allow_remote or is_loopback(otlp[0])):
        reason = f"other machines can reach {otlp[0]} and send forged traces"
        problems.append(Problem("--otlp-listen", reason, "127.0.0.1:4318, or add --otlp-allow-remote"))
    if options.probe and importlib.util.find_spec("tritonclient") is None:
        problems.append(Problem("--probe", "needs Triton's client", "pip install 'tritonwatch[probe]'"))


def _settings(
    options: ExporterOptions,
    environment: Mapping[str, str],
    places: Mapping[str, str],
    problems: list[Problem],
) -> Settings:
    _check_together(options, problems)
    host, port = options.listen
    triton_urls = (options.triton, options.triton_metrics, options.probe_grpc)
    return Settings(
        triton_url=options.triton,
        metrics_url=options.triton_metrics or metrics_url(options.triton),
        gpu=options.gpu,
        dcgm_url=options.dcgm_url,
        dcgm_headers=_headers(options.dcgm_headers_file, "DCGM_HEADERS", environment, problems),
        dcgm_certificates=_certificates(
            "dcgm",
            Certificates(options.dcgm_ca_file, options.dcgm_cert_file, options.dcgm_key_file),
            (options.dcgm_url,),
            places,
            problems,
        ),
        gpu_devices=options.gpu_devices,
        gpu_models=options.gpu_models,
        pod_name=environment.get("POD_NAME", ""),
        listen_host=host,
        listen_port=port,
        sampling_interval_seconds=options.sampling_interval,
        sampling_budget=options.sampling_budget,
        state_interval_seconds=options.state_interval,
        timeout_seconds=options.timeout,
        relay=options.relay,
        expected=parse_expected(options.expect),
        expected_file=options.expect_file,
        triton_log=options.triton_log,
        triton_headers=_headers(options.triton_headers_file, "TRITON_HEADERS", environment, problems),
        certificates=_certificates(
            "triton",
            Certificates(options.triton_ca_file, options.triton_cert_file, options.triton_key_file),
            triton_urls,
            places,
            problems,
        ),
        probe=_probe(options, problems),
        buckets=_chosen_buckets(options.buckets_from, options.buckets, problems),
        otlp_listen=options.otlp_listen,
        trace_file=options.trace_file,
        state_file=options.state_file,
    )


def _probe(options: ExporterOptions, problems: list[Problem]) -> ProbeSettings:
    return ProbeSettings(
        models=options.probe,
        exclude=options.probe_exclude,
        interval_seconds=options.probe_interval,
        timeout_seconds=options.probe_timeout,
        grpc_address=options.probe_grpc,
        payloads=_payloads(options.probe_payloads, problems),
    )


def metrics_url(triton_url: str) -> str:
    """Return the URL of Triton's metrics on its default port, on the same host as its API."""
    host = urlsplit(triton_url).hostname or ""
    return f"http://[{host}]:8002/metrics" if ":" in host else f"http://{host}:8002/metrics"


def _headers(
    path: Path | None, variable: str, environment: Mapping[str, str], problems: list[Problem]
) -> dict[str, str]:
    """Return headers from a file or, without one, from an environment variable: `name: value`, one a line."""
    place, text = f"${variable}", environment.get(variable, "")
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
    peer: Literal["triton", "dcgm"],
    certificates: Certificates,
    urls: Iterable[str],
    places: Mapping[str, str],
    problems: list[Problem],
) -> Certificates:
    """Check the certificates for one peer, which is reached at these URLs."""
    given = [places[name] for name in CERTIFICATES if name in places and name.startswith(peer)]
    if certificates.key and not certificates.own:
        problems.append(Problem(given[-1], "is a key without a certificate", f"name it: --{peer}-cert-file"))
    if given and not any(url.startswith(("https://", "grpcs://")) for url in urls):
        option = "--triton" if peer == "triton" else "--dcgm-url"
        problems.append(
            Problem(given[0], "would not be used: no URL is https", f"{option} https://HOST:PORT")
        )
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


def _chosen_buckets(
    path: Path | None, per_model: Sequence[tuple[str, tuple[float, ...]]], problems: list[Problem]
) -> Buckets:
    try:
        return Buckets(per_model=dict(per_model), thresholds=thresholds(path) if path else {})
    except ThresholdError as error:
        problems.append(Problem("--buckets-from", str(error)))
        return Buckets()
