"""The project file `tritonwatch.yaml`, and the options that several verbs read from it.

It says once where the servers are, which Tritons are watched, and where alerts go. A class of options below is a part of
it: the key of an option is its name, in the section of the class. Every verb reads the file of the working folder or of
the nearest folder above it, or `--project FILE`; a flag wins over a variable, and a variable over the file.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from triton_exporter.common.duration import DAY, duration_between, duration_text
from triton_exporter.common.options import (
    Address,
    File,
    Folder,
    Form,
    Key,
    OptionsFile,
    OptionsModel,
    Rare,
    Switch,
    Url,
    api_url,
    each,
    host_and_port,
    is_grpc,
    is_web_address,
    metrics_page,
    read_file,
    single,
    url,
    with_scheme,
)
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.names import RUNBOOK_URL

FILE = Path("tritonwatch.yaml")
VARIABLE = "TRITONWATCH_PROJECT"


def load(args: argparse.Namespace, environment: Mapping[str, str]) -> OptionsFile:
    """Return what the project file has; nothing without one. Raises ProblemsError if a named one is not there."""
    named = getattr(args, "project", None) or environment.get(VARIABLE)
    above = [Path(), *(Path(*[".."] * up) for up in range(1, len(Path.cwd().parts)))]
    found = next((folder / FILE for folder in above if (folder / FILE).is_file()), None)
    if not named and found is None:
        return OptionsFile(FILE, {})
    every = [(model.section, option) for model in _classes() for option in model.options().values()]
    form = {option.key: option.form.metavar for _, option in reversed(every)}
    renamed = {
        f"{section}{option.name}": f"{option.key.removesuffix('.url')}: {form[option.key]}"
        for own, option in every
        for section in ("", f"{own}.")
        if section or len({other.key for _, other in every if other.name == option.name}) == 1
    }
    return read_file(Path(named or found or FILE), form.keys(), renamed=renamed)


def _classes() -> tuple[type[OptionsModel], ...]:
    """Return classes that have every key of a project file."""
    from triton_alerts.bridge.settings import BridgeSettings

    return Dashboards, Generation, Reloading, Pages, BridgeSettings


def mistakes(file: OptionsFile) -> list[Problem]:
    """Return the values in a project file that some verb refuses; files that it names may be on other machines."""
    places, found = {given.place for given in file.given.values()}, []
    for model in _classes():
        try:
            model.read({}, {}, file)
        except ProblemsError as error:
            found += [problem for problem in error.problems if problem.place in places]
    return list(dict.fromkeys(found))


def fill(
    args: argparse.Namespace, model: type[OptionsModel], environment: Mapping[str, str] = os.environ
) -> None:
    """Set every option of a class in the arguments: as given, from the variables and the project file, or its default.

    Raises ProblemsError with every mistake.
    """
    project = load(args, environment)
    options = model.read(vars(args), environment, project)
    args.flags = {name for name in model.options() if hasattr(args, name)}
    args.project_file = project
    for name in model.options():
        setattr(args, name, getattr(options, name))


def declare_project(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the project file."""
    parser.add_argument(
        "--project",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"project file (default: {FILE} in the working folder, or the nearest folder above it)",
    )


def _selector(text: str) -> str:
    from triton_slo.promql import parse_selector  # the parser of PromQL takes long to load

    if text:
        parse_selector(text)
    return text


def scale(text: str) -> float:
    """Return a factor above 0 and at most 1, as 0.005 or 1/120."""
    numerator, _, denominator = text.partition("/")
    try:
        value = float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError):
        value = 0.0
    if not 0 < value <= 1:
        raise ValueError(f"{text!r} is not a number such as 0.005 or 1/120, above 0 and at most 1")
    return value


def _web_address(text: str) -> str:
    if not is_web_address(text):
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:9096/alertmanager")
    return text


def _runbook(text: str) -> str:
    try:
        _web_address(text.format(alert="TritonServerDown"))
    except (LookupError, AttributeError, ValueError):
        raise ValueError(f"{text!r} is not a URL such as https://wiki.example.org/{{alert}}") from None
    return text


def _dashboard_url(text: str) -> str:
    # The bridge completes a path with its own --grafana.
    return text if not text or text.startswith("/") else _web_address(text)


def _link(raw: object) -> tuple[str, str]:
    if isinstance(raw, tuple):
        return raw
    title, _, url = str(raw).partition("=")
    if not title.strip() or not (url.startswith("/") or is_web_address(url)):
        raise ValueError(f"{raw!r} is not a link such as Logs=https://logs.example.org/?q=${{model}}")
    return title.strip(), url


EXPORTER_PORT = 9401
"""Where an exporter listens unless it is told otherwise; those of the stack and of the chart do."""


class Target(NamedTuple):
    """Where an exporter is scraped, and the URLs of its Triton; no metrics: those of port 8002 of the same host."""

    exporter: str
    triton: str
    metrics: str

    @property
    def instance(self) -> str:
        """HOST:PORT of the Triton, its name in every series and message."""
        return urlsplit(self.triton).netloc.rpartition("@")[2]


def target(text: str) -> Target:
    """Read EXPORTER=TRITON[,METRICS]. Raises ValueError."""
    exporter, _, urls = text.partition("=")
    triton, _, metrics = urls.partition(",")
    if not triton:
        raise ValueError(f"{text!r} is not EXPORTER=TRITON, such as exporter:9401=http://triton:8000")
    host_and_port(exporter)
    triton = triton if is_grpc(triton) else with_scheme(triton)
    (api_url if is_grpc(triton) else _web_address)(triton)
    return Target(exporter, triton, metrics and metrics_page(metrics))


def _target(text: str) -> str:
    target(text)
    return text


def _each_once(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the list of targets. Raises ValueError where two have the same exporter, or the same Triton."""
    seen: dict[tuple[str, str], str] = {}
    for text in texts:
        one = target(text)
        for key in (("exporter", one.exporter.lower()), ("Triton", one.instance.lower())):
            if key in seen:
                reason = f"{seen[key]} and {text} are the same {key[0]}: its requests would count twice"
                raise ValueError(reason, "write each Triton once, with an exporter of its own")
            seen[key] = text
    return texts


def _receiver(text: str) -> str:
    from triton_alerts import alertmanager  # it takes long to load

    if text:
        alertmanager.integration(text)
    return text


def _first(raw: object) -> object:
    """Return the first URL of several: the bridge asks all Alertmanagers, a reload concerns one."""
    return raw[0] if isinstance(raw, list) and raw else raw


Selector = Annotated[Rare[str], single(_selector), Form("MATCHERS")]
ScrapeInterval = Annotated[
    Rare[float], single(duration_between(0.001, DAY)), Form("DURATION", default_text=duration_text)
]
TimeScale = Annotated[Rare[float], single(scale), Form("F", default_text=lambda scale: f"{scale:g}")]


class PrometheusAccess(OptionsModel):
    """Prometheus, and how to log in there. A secret is never an option, because every user can read those."""

    group = "access to Prometheus"
    section = "prometheus"

    prometheus: Annotated[Url, Key("prometheus.url")] = ""
    """URL of Prometheus, such as http://127.0.0.1:9090, with its path if it has one (or the variable
    TRITONWATCH_PROMETHEUS)"""
    timeout: Annotated[
        Rare[float], single(duration_between(0.001, 3600)), Form("DURATION", default_text=duration_text)
    ] = 10.0
    """timeout of a request (default: {default})"""
    token_file: Rare[File] = None
    """file with a bearer token (or the variable TRITONWATCH_PROMETHEUS_TOKEN)"""
    user: Annotated[Rare[str], single(str), Form("USER")] = ""
    """user name for basic authentication"""
    password_file: Rare[File] = None
    """file with the password of --user (or the variable TRITONWATCH_PROMETHEUS_PASSWORD)"""
    header: Annotated[Rare[tuple[str, ...]], each(str), Form("'NAME: VALUE'", repeated=True)] = ()
    """HTTP header to add to each request, for example for a tenant; 'NAME: @FILE' reads the value from a file
    (repeatable)"""
    ca_file: Rare[File] = None
    """CA certificates to trust (PEM)"""
    cert_file: Rare[File] = None
    """client certificate (PEM)"""
    key_file: Rare[File] = None
    """private key of the client certificate, if not in the same file"""
    insecure: Rare[Switch] = False
    """do not verify the server's certificate"""


class Files(OptionsModel):
    objectives: Folder = None
    """folder of objectives (YAML)"""
    alerts: File = None
    """alert settings (alerts.yaml): disables alerts, or changes their threshold, `for` or severity"""


class Rules(OptionsModel):
    """What the rules depend on, besides the objectives."""

    selector: Selector = ""
    """PromQL label matchers to add to every selector, such as 'cluster="eu1"'"""
    scrape_interval: ScrapeInterval = 15.0
    """scrape interval of Prometheus (default: {default})"""
    time_scale: TimeScale = 1.0
    """factor by which every window and every `for` of the rules is multiplied, such as 1/60 for demos and tests
    (default: {default})"""
    runbook_url: Annotated[Rare[str], single(_runbook), Form("URL")] = RUNBOOK_URL
    """URL of a runbook; {alert} is replaced by the alert's name (default: {default})"""


class Links(OptionsModel):
    link: Annotated[Rare[tuple[tuple[str, str], ...]], each(_link), Form("TITLE=URL", repeated=True)] = ()
    """link to show at the top of every dashboard, such as to logs or traces: a URL, or a path in Grafana; Grafana
    replaces variables such as ${model} and ${__from} (repeatable)"""


def _bridge(text: str) -> str:
    if "@" in text:
        raise ValueError(
            "a URL takes no user and password", "name the file of the bridge's token as token_file"
        )
    base = url(text)
    if base.endswith("/alertmanager"):
        raise ValueError(f"{text!r} ends with /alertmanager, which is added to it", "write it without")
    return base


WebAddress = Annotated[str, single(lambda text: text and _web_address(text)), Form("URL")]
Receiver = Annotated[str, single(_receiver), Form("URL")]
Receivers = Annotated[tuple[str, ...], each(_receiver), Form("URL", repeated=True)]

WebhookUrl = Annotated[
    str,
    single(_web_address),
    Form("URL"),
    Key(
        "receivers.webhook_url",
        other="bridge.url",
        derive=lambda bridge, _: _bridge(bridge) + "/alertmanager",
    ),
]


class RequiredPrometheus(PrometheusAccess):
    """A Prometheus, without which a verb has nothing to say."""

    prometheus: Annotated[Url, Key("prometheus.url")]
    """URL of Prometheus, such as http://127.0.0.1:9090, with its path if it has one (or the variable
    TRITONWATCH_PROMETHEUS)"""


class _Receiving(OptionsModel):
    group = "receivers of alerts"
    section = "receivers"

    webhook_url: WebhookUrl = ""
    """URL of the bridge's webhook, to which Alertmanager sends (default: http://bridge:9096/alertmanager)"""
    webhook_token_file: Annotated[
        Rare[str],
        single(str),
        Form("PATH"),
        # Absolute, because Alertmanager looks beside its configuration.
        Key(
            "receivers.webhook_token_file",
            other="bridge.token_file",
            derive=lambda file, folder: str((folder / file).absolute()),
        ),
    ] = ""
    """file with the bearer token for --webhook-url, on the machine of Alertmanager (default: bridge.token_file of the
    project file)"""
    fallback: Rare[Receiver] = ""
    """second receiver of alerts about the bridge and Alertmanager, in the same format as --page-to"""
    page_to: Receivers = ()
    """receiver of pages in addition to the bridge, such as pagerduty:///run/secrets/key (repeatable; docs/on-call.md
    lists the forms)"""
    ticket_to: Receivers = ()
    """receiver of tickets in addition to the bridge, in the same format as --page-to (repeatable)"""
    watchdog_url: Rare[WebAddress] = ""
    """webhook that receives the Watchdog alert: a dead man's switch outside this stack"""


class Generation(PrometheusAccess, _Receiving, Links, Rules, Files):
    """What files are generated from, and where they are written."""

    objectives: Folder
    """folder of objectives (YAML)"""
    out: Folder
    """folder for the generated files, in subfolders such as rules, alertmanager and dashboards"""
    target: Annotated[
        tuple[str, ...],
        AfterValidator(_each_once),
        each(_target),
        Form("EXPORTER=TRITON", repeated=True),
        Key("tritons"),
    ] = ()
    """add this exporter to targets/triton.yml (for file_sd_configs of Prometheus), with the address of its Triton as
    the label `instance`, such as exporter:9401=http://triton:8000; with --format compose or helm, those whose name has
    no dot are started by the stack, and ,URL at the end names metrics that are not on port 8002 (repeatable)"""
    dashboard_url: Annotated[
        Rare[str], single(_dashboard_url), Form("URL"), Key("dashboard_url", other="grafana.url")
    ] = ""
    """URL of Grafana, for links in alerts"""


class Reloading(RequiredPrometheus, Generation):
    """What is generated, and the servers that load it."""

    alertmanager: Annotated[Url, BeforeValidator(_first), Key("alertmanager.url")] = ""
    """URL of an Alertmanager to reload too, with the same credentials as --prometheus"""


class Dashboards(PrometheusAccess, Links, Files):
    """What dashboards are made of, and the Grafana that gets them."""

    selector: Selector = ""
    """PromQL label matchers to add to every selector, such as 'cluster="eu1"'"""
    grafana: Annotated[Url, Key("grafana.url")] = ""
    """URL of Grafana, with its path if it has one"""
    grafana_token_file: Annotated[File, Key("grafana.token_file")] = None
    """file with a service account token (or the variable TRITONWATCH_GRAFANA_TOKEN)"""


class Bridge(OptionsModel):
    """A bridge, by its folder or its URL, for what reads its incidents."""

    bridge_data: Annotated[Folder, Key("bridge.data")] = None
    """data folder of the bridge, to read its incidents"""
    bridge_url: Annotated[str, single(_bridge), Form("URL"), Key("bridge.url")] = ""
    """URL of the bridge, to read its incidents where its data folder is on another machine"""
    bridge_token_file: Annotated[Rare[File], Key("bridge.token_file")] = None
    """file with the bearer token for --bridge-url (the bridge's --token-file)"""
    bridge_ca_file: Annotated[Rare[File], Key("bridge.ca_file")] = None
    """CA certificates to trust for --bridge-url (PEM)"""


class Recorded(RequiredPrometheus):
    """What rules have recorded, and the objectives to compare it with."""

    objectives: Folder = None
    """folder of objectives (YAML), to report those that Prometheus has not loaded or has loaded with other values"""


class Standing(Recorded):
    """The same, and what the windows of the rules are multiplied by."""

    time_scale: TimeScale = 1.0
    """factor by which the windows of the rules are multiplied, as for `generate` (default: {default})"""


class _Measured(OptionsModel):
    objectives: Folder = None
    """folder of objectives (YAML) (default: those of the project file, else those that
    tritonwatch ships)"""
    scrape_interval: ScrapeInterval = 15.0
    """scrape interval of Prometheus (default: {default})"""


class Replay(_Measured, PrometheusAccess):
    """What is replayed: from Prometheus, or from a file."""


class Advised(_Measured, RequiredPrometheus):
    """What advice is about."""


class Checked(Replay, Files):
    objectives: Folder = None
    """folder of objectives (YAML)"""
    alertmanager: Annotated[
        tuple[str, ...], each(url), Form("URL", repeated=True), Key("alertmanager.url")
    ] = ()
    """URL of an Alertmanager, to check that it sends to the bridge, with the same credentials as --prometheus
    (repeat for each)"""
    webhook_url: WebhookUrl = ""
    """URL of the bridge's webhook, to check that a bridge receives there (default: that of bridge.url)"""
    bridge_ca_file: Annotated[Rare[File], Key("bridge.ca_file")] = None
    """CA certificates to trust for --webhook-url (PEM)"""


class Incidents(OptionsModel):
    """The folder of a bridge."""

    data: Annotated[Folder, Key("bridge.data")] = None
    """data folder of the bridge (its --data); required"""


class Reported(Bridge, Recorded):
    """What a report is made of."""


class Asked(Recorded):
    """What an assistant may ask about."""

    bridge_data: Annotated[Folder, Key("bridge.data")] = None
    """data folder of a bridge, to read its incidents"""
    scrape_interval: ScrapeInterval = 15.0
    """scrape interval of Prometheus (default: {default})"""


class Pages(Bridge, Rules, Recorded):
    """What the web pages show."""

    listen: Annotated[Address, Key("web.listen")] = ("127.0.0.1", 9097)
    """address to serve the pages on (default: {default})"""
    web_config: Annotated[File, Key("web.web_config")] = None
    """TLS and basic authentication: a web config file of exporter-toolkit"""
    grafana: Annotated[Url, Key("grafana.url")] = ""
    """URL of Grafana for links, as seen from a browser"""
    alertmanager: Annotated[Url, BeforeValidator(_first), Key("alertmanager.url")] = ""
    """URL of Alertmanager for links, as seen from a browser"""
    prometheus_link: Annotated[Rare[WebAddress], Key("web.prometheus_link")] = ""
    """URL of Prometheus for links, as seen from a browser (default: that of --prometheus)"""
