"""The options, example and exit codes of every verb: all that its help needs.

First what several verbs take, then a function for each verb, and `VERBS` with all of them.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from triton_exporter.app.settings import DoctorSettings, Settings, TritonAccess
from triton_exporter.common import options
from triton_exporter.common.duration import DAY, duration_between, parse_seconds
from triton_exporter.common.moments import parse_past_moment, time_zone
from triton_exporter.common.options import (
    Form,
    Key,
    OptionsModel,
    Variable,
    adder,
    api_url,
    each,
    host_and_port,
    metrics_page,
    parsed,
)
from triton_exporter.common.problem import Problem
from triton_slo.problem_words import count
from triton_slo.sources import CAVEATS
from tritonwatch import project
from tritonwatch.parser import declare, did_you_mean

seconds = parsed(parse_seconds)
path = parsed(options.path)


def whole(text: str) -> int:
    """Return a whole number, not below 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    if value < 0 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 0 or more")
    return int(value)


def _ratio(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0% to 100%")
    return value


class _Once(argparse.Action):
    """Stores a value, and refuses a second one."""

    def __call__(self, parser: Any, namespace: Any, values: object, option: str | None = None) -> None:
        if getattr(namespace, self.dest):
            parser.error(f"{option} is given twice; it takes one value")
        if not values:
            parser.error(f"{option} is empty; name one, or leave it out")
        setattr(namespace, self.dest, values)


def _add_group_filter(add: Callable[..., None], text: str) -> None:
    """Add the options by which a verb shows or judges some objectives, and the groups of one model, only."""
    add("--objective NAME...", "use only this objective (repeatable)")
    add("--model NAME", text, action=_Once)


def _add_at(add: Callable[..., None], use: str = "time to evaluate at") -> None:
    """Add the option for the time that a verb is about; None for now."""
    add("--at TIME", f"{use}: 2026-05-01T09:30Z or Unix seconds (default: now)", parsed(parse_past_moment))


def _demo(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    add("--once", "stop after the last step (default: run until Ctrl-C)")
    add("--dir DIR", "empty folder for all files of the demo (default: a new one in /tmp)", Path)
    add(
        "--port-base PORT", "first of 8 consecutive ports on 127.0.0.1 (default: 19400)", _port, default=19400
    )
    add(
        "--time-scale F",
        "factor by which every window of the rules is multiplied (default: 1/60, which makes an hour a minute)",
        parsed(project.scale),
        default=1 / 60,
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 1024 <= int(text) <= 65535 - 7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1024 to {65535 - 7}")
    return int(text)


def _exporter(parser: argparse.ArgumentParser) -> None:
    declare(parser, Settings)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings file (YAML) with these options as keys, written with _ instead of -",
    )


Access = TypeVar("Access", bound=TritonAccess)


def _triton(text: str) -> tuple[str, str | None]:
    # In a project file the Tritons to watch are EXPORTER=TRITON[,METRICS].
    triton, _, metrics = (text.partition("=")[2] or text).partition(",")
    return api_url(triton), metrics_page(metrics) if metrics else None


class Tritons(OptionsModel):
    section = "exporter"

    triton: Annotated[
        tuple[tuple[str, str | None], ...],
        each(_triton),
        Form("URL", repeated=True),
        Key("tritons"),
        Variable("TRITONWATCH_EXPORTER_TRITON"),
    ] = ()
    """URL of Triton's API, such as http://127.0.0.1:8000 or grpc://127.0.0.1:8001 (repeat for each Triton; default: the tritons of the
    project file); where only the metrics can be reached, leave it out and give --triton-metrics"""
    triton_metrics: Annotated[tuple[str, ...], each(metrics_page), Form("URL", repeated=True)] = ()
    """metrics endpoint of each Triton, in the same order, by default with the path /metrics (default: port 8002 of the
    same host)"""

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return what is wrong with the two together."""
        if not (self.triton or self.triton_metrics):
            fix = f"give --triton URL, or write it into {project.FILE} as tritons"
            yield Problem("--triton", "is missing", fix)
        urls = [url for url, metrics in self.triton if not metrics]
        hosts = {urlsplit(url).hostname for url in urls}
        if len(hosts) < len(urls) and not self.triton_metrics:
            reason = f"is missing: {' and '.join(urls)} cannot all have their metrics at port 8002"
            yield Problem("--triton-metrics", reason, "give it once for each --triton, in the same order")
        if self.triton and self.triton_metrics and len(self.triton_metrics) != len(self.triton):
            reason = f"{len(self.triton_metrics)} addresses for {count(len(self.triton), 'Triton')}"
            yield Problem(places["triton_metrics"], reason, "one for each --triton, in the same order")

    @classmethod
    def read_each(cls, args: argparse.Namespace, access: type[Access]) -> list[Access]:
        """Return the access to each Triton that the command line names, or else the project file."""
        tritons = cls.read(vars(args), os.environ, args.project_file)
        pages = tritons.triton_metrics or [page for _, page in tritons.triton]
        return [
            access.read({**vars(args), "triton": address, "triton_metrics": page}, os.environ)
            for address, page in zip_longest((url for url, _ in tritons.triton), pages)
        ]


def _doctor(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    declare(parser, Tritons)
    declare(parser, DoctorSettings, DoctorSettings.options().keys() - {"triton", "triton_metrics"})
    project.declare_project(parser)
    add(
        "--watch DURATION",
        "time for which Triton's traffic is observed (default: 2s)",
        parsed(duration_between(0, 60)),
        default=2.0,
    )
    add("--json", "write the findings as JSON")


def _init(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    declare(parser, Tritons)
    declare(parser, TritonAccess, TritonAccess.options().keys() - {"triton", "triton_metrics", "timeout"})
    add(
        "--out FILE",
        "file to write, or - for standard output (default: proposed.yaml in the folder of objectives of the project)",
    )
    add("--force", "replace an existing file")
    declare(parser, project.PrometheusAccess)


def _convert(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    add("files FILE", "YAML file, or a folder of them", path, nargs="+")
    add("--from", "format of the files", dest="source", choices=("sloth", "openslo"), required=True)
    add("--out FILE", "file to write (default: standard output)", path)
    add("--force", "overwrite --out if it exists")
    add(
        "--window DURATION",
        "period of SLOs whose file does not contain a period, as with Sloth (default: 30d)",
        _window_text,
        default="30d",
    )


def _window_text(text: str) -> str:
    from triton_slo.objective.model import Rolling  # takes long to load, and the help does without

    try:
        return Rolling(rolling=text).rolling
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a window of 7 to 90 whole days, such as 28d"
        ) from None


def _check(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Checked)
    add = adder(parser.add_argument)
    add(
        "files FILE",
        "objectives file or alerts.yaml, or a folder of them (default: those of the project file)",
        path,
        nargs="*",
    )
    add(
        "--retention DURATION",
        "retention time of Prometheus, such as 15d; check then reports objectives that need a longer "
        "retention time",
        seconds,
    )
    add("--offline", "check the files only, and ask no server")
    add("--json", "write JSON instead of text")


PARTS = ("rules", "alertmanager", "dashboards", "targets", "autoscaling")
"""Subfolders of the generated files."""


def _generate(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Generation)
    add = adder(parser.add_argument)
    add("--only", "write only this kind of file, directly into --out", choices=PARTS)
    add("--check", "write nothing; exit with 1 if the files in --out differ from what would be generated")
    add(
        "--format",
        "format of the rules: files for Prometheus or vmalert, resources for prometheus-operator, or a "
        "values file for the Helm chart that also contains the objectives and the Tritons to watch from outside; keda "
        "writes those for Prometheus and, into autoscaling, objects that scale Triton on traffic over break rate; "
        "compose writes nothing, and prints an override for docker compose with an exporter for each of the tritons "
        "(default: prometheus)",
        choices=("prometheus", "operator", "vmalert", "helm", "keda", "compose"),
        default="prometheus",
    )


def _reload(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Reloading)
    parser.set_defaults(only=None, format="prometheus")  # of `generate`


def _dashboards(parser: argparse.ArgumentParser) -> None:
    from triton_dashboards.delivery import FOLDER_TITLE  # it loads the YAML parser

    declare(parser, project.Dashboards)
    add = adder(parser.add_argument)
    add(
        "action",
        "list the dashboards, write them to --out, or push them to --grafana",
        choices=("list", "write", "push"),
    )
    add(
        "--per-model",
        "also generate one dashboard for each model that has series in the Prometheus of --prometheus",
    )
    add("--folder FOLDER", f"title of the Grafana folder (default for a new folder: {FOLDER_TITLE})", _title)
    add = adder(parser.add_argument_group("write").add_argument)
    add("--out DIR", "folder to write to", Path)
    add(
        "--format",
        "JSON files, ConfigMaps for the Grafana sidecar, or JSON files to share, whose import asks for the data "
        "source (default: json)",
        choices=("json", "configmap", "share"),
        default="json",
    )
    add("--namespace NAMESPACE", "namespace of the ConfigMaps", _namespace, default="")
    add = adder(parser.add_argument_group("push").add_argument)
    add("--dry-run", "show what would change, and change nothing; exit with 1 if anything would change")
    add(
        "--prune",
        "delete the dashboards of models that no longer have series in the Prometheus of --prometheus",
    )


def _title(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("the title is empty; give a title")
    return text


def _namespace(text: str) -> str:
    if text and not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a Kubernetes namespace: at most 63 of a-z, 0-9 and - inside"
        )
    return text


def _status(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Standing)
    add = adder(parser.add_argument)
    add("--json", "write JSON instead of a table")
    _add_group_filter(add, "show only this model")
    add("--top N", "show only the N most urgent rows (default: all)", whole, default=0)
    _add_at(add)
    add(
        "--fail-on STATE",
        "exit with 1 if a row is in this state: exhausted, unknown, or burning (burn rate above 1x now) "
        "(repeatable)",
        choices=("exhausted", "burning", "unknown"),
        action="append",
        default=[],
    )


class Doctor(DoctorSettings):
    group = "a Triton server, to show the findings of `tritonwatch doctor` on the pages of its models"


DOCTOR_OPTIONS = Doctor.options().keys() - {"timeout"}


def _web(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Pages)
    declare(parser, Doctor, DOCTOR_OPTIONS)


def _gate(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Standing)
    parser.description = (
        "Decide whether to promote, hold or roll back a release. If data is unknown or old, the verdict is "
        "never `promote`."
    )
    add = adder(parser.add_argument)
    _add_group_filter(add, "use only this model (required with --canary)")
    add("--version V", "use only this version")
    add("--max-age DURATION", "hold if the data is older than this (default: 5m)", seconds, default=300.0)
    add(
        "--min-budget PERCENT",
        "hold if the error budget left is at or below this share (default: 0%%)",
        _ratio,
        default=0.0,
    )
    add(
        "--trust SOURCE...",
        "accept this source of the numbers, although it estimates events or does not count all events, see "
        "docs/slo-live.md (repeatable): " + ", ".join(CAVEATS),
        choices=sorted(CAVEATS),
    )
    add("--json", "write JSON instead of text")
    _add_at(add)
    add = adder(parser.add_argument_group("comparison of two versions over the same time").add_argument)
    add("--canary V", "the new version")
    add("--baseline V", "the version that --canary is compared with")
    add("--window DURATION", "length of the compared time (default: 1h)", seconds, default=3600.0)
    add("--confidence PERCENT", "confidence of the comparison (default: 95%%)", _ratio, default=0.95)
    add(
        "--margin PERCENT",
        "allowed increase of the error ratio, such as 0.1%% (default: the error budget)",
        _ratio,
    )
    add("--min-events N", "hold if a version has fewer events than this (default: 50)", float, default=50)


CHANGEABLE = ("instances", "max_batch_size", "batching", "delay_ms", "max_queue_size", "replicas")
"""What `advise --if` may set."""


def _advise(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Advised)
    add = adder(parser.add_argument)
    _add_group_filter(add, "advise on this model only (default: all)")
    add(
        "--if CHANGE",
        f"predict this change of one or more of {', '.join(CHANGEABLE)}; such as "
        "instances=2,max_batch_size=16",
        _changed,
        dest="changed",
        action=_Once,
    )
    add("--last DURATION", "length of the time that is measured (default: 1h)", seconds, default=3600.0)
    _add_at(add, "end of the time that is measured")
    add(
        "--check FILE",
        "compare what --json wrote to this file with what came after a change of configuration",
        path,
    )
    add("--json", "write JSON instead of text")
    add(
        "--watch DURATION",
        "serve the headroom as series for Prometheus at --listen, and look so often whether it changed",
        parsed(duration_between(1, 3600)),
    )
    add("--listen HOST:PORT", "address of --watch", parsed(host_and_port))


def _changed(text: str) -> dict[str, float]:
    changed: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        name = name.strip()
        if name not in CHANGEABLE:
            raise argparse.ArgumentTypeError(
                f"{name!r} is not one of {', '.join(CHANGEABLE)}{did_you_mean(name, CHANGEABLE)}"
            )
        try:
            value = float({"on": "1", "off": "0"}.get(number, number) if name == "batching" else number)
        except ValueError:
            value = math.nan
        least = 0 if name in ("delay_ms", "max_queue_size", "batching") else 1
        most = {"batching": 1, "instances": 1000, "replicas": 1000}.get(name, 1_000_000)
        if not least <= value <= most or (name != "delay_ms" and value != int(value)):
            form = "on or off" if name == "batching" else f"a number of {least} to {most}"
            raise argparse.ArgumentTypeError(f"{part!r}: {number!r} is not {form}")
        if changed.setdefault(name, value) != value:
            raise argparse.ArgumentTypeError(f"{name} is given twice")
    return changed


def _backtest(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Replay)
    add = adder(parser.add_argument)
    add(
        "--history FILE",
        "replay this CSV file, such as one written by --save, instead of data from Prometheus",
    )
    add("--save FILE", "save the replayed data to this CSV file; an existing file is never overwritten")
    add("--last DURATION", "length of the history (default: 30d)", seconds, default=30.0 * DAY)
    _add_at(add, "end of the history")
    add("--step DURATION", "resolution of the history (default: 1m)", seconds, default=60.0)
    add(
        "--incidents FILE",
        "CSV file of known incidents, to compute precision, recall and detection time of the alerts",
    )
    add("--top N", "number of alerts to list (default: 40)", whole, default=40)
    add("--json", "write JSON instead of tables")


def _bridge(parser: argparse.ArgumentParser) -> None:
    from triton_alerts.bridge.settings import BridgeSettings, SlackSettings  # they load the library of TLS

    declare(parser, BridgeSettings)
    project.declare_project(parser)
    test = parser.add_subparsers(dest="subcommand", metavar="test").add_parser(
        "test",
        help="send a sample incident to Slack, firing and resolved",
        epilog="example: tritonwatch bridge test --dry-run",
    )
    declare(test, SlackSettings)


def _mcp(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve the Model Context Protocol to an AI assistant, on standard input and output. The "
        "assistant starts this command itself (docs/web.md). The command changes nothing: it only "
        "queries Prometheus and reads incidents."
    )
    declare(parser, project.Asked)


def _incidents(parser: argparse.ArgumentParser) -> None:
    # argparse.SUPPRESS: the default of a subcommand would undo an option given before it.
    _add_list(parser, json=None, last="7d")
    subcommands = parser.add_subparsers(dest="subcommand", metavar="list | show ID")
    every = subcommands.add_parser(
        "list",
        help="list incidents (the default)",
        epilog="example: tritonwatch incidents list --data /var/lib/tritonwatch-bridge",
    )
    _add_list(every, json=argparse.SUPPRESS, last=argparse.SUPPRESS)
    show = subcommands.add_parser(
        "show",
        help="show one incident: cause, acknowledgement, timeline",
        epilog="example: tritonwatch incidents show 1f9c3a --data /var/lib/tritonwatch-bridge",
    )
    adder(show.add_argument)("id", "id of the incident, as in the list and in Slack, or its first characters")
    _add_shared(show, json=argparse.SUPPRESS)


def _add_list(parser: argparse.ArgumentParser, json: str | None, last: str) -> None:
    _add_shared(parser, json)
    adder(parser.add_argument)(
        "--last DURATION",
        "list the incidents of the last DURATION, and all open incidents (default: 7d)",
        seconds,
        default=last,
    )


def _add_shared(parser: argparse.ArgumentParser, json: str | None) -> None:
    declare(parser, project.Incidents)
    adder(parser.add_argument)("--json", "write JSON: an object for each incident", default=json)


def _report(parser: argparse.ArgumentParser) -> None:
    declare(parser, project.Reported)
    add = adder(parser.add_argument)
    add(
        "--period PERIOD",
        "month or quarter: 2026-10, 2026-Q3, last-month, this-month, last-quarter or this-quarter (default: "
        "last-month, and this-month while nothing is recorded of the last)",
    )
    add(
        "--timezone ZONE",
        "time zone of the period; objectives with a calendar window use their own time zone (default: UTC)",
        parsed(lambda zone: str(time_zone(zone))),
        default="UTC",
    )
    add("--owner NAME...", "report only the objectives and incidents of this owner (repeatable)")
    add(
        "--format",
        "format of the report (default: markdown)",
        choices=("markdown", "json"),
        default="markdown",
    )
    add("--out FILE", "file to write instead of standard output; an existing file is overwritten", path)


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the shell completion script for commands, options and file names."
    adder(parser.add_argument)("shell", "the shell", choices=("bash", "zsh"))


class Usage(NamedTuple):
    """What a verb does, and how it is used. `exit_codes` lack 2, which is wrong usage in every verb."""

    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    example: str
    exit_codes: Mapping[int, str]
    options: type[OptionsModel] | None = None
    """Those of its options that the project file may have, too."""


VERBS = {
    "demo": Usage(
        "run a real Triton on this machine, with a model that fails and recovers, and the alerts about it",
        _demo,
        "tritonwatch demo --once --port-base 21000",
        {
            0: "every step succeeded, or Ctrl-C",
            1: "a step failed, a program is missing or a port is in use",
            130: "Ctrl-C with --once",
        },
    ),
    "exporter": Usage(
        "export metrics of one Triton for Prometheus",
        _exporter,
        "tritonwatch exporter --triton http://127.0.0.1:8000",
        {0: "stopped by SIGTERM or Ctrl-C", 1: "a mistake in the settings file, or --listen is in use"},
    ),
    "doctor": Usage(
        "recommend Triton settings that expose more metrics",
        _doctor,
        "tritonwatch doctor --triton http://127.0.0.1:8000",
        {
            0: "no problems were found; there may be recommendations",
            1: "problems were found, or Triton did not respond",
        },
    ),
    "init": Usage(
        "propose objectives for the models of a running Triton",
        _init,
        "tritonwatch init --triton http://127.0.0.1:8000 --prometheus http://127.0.0.1:9090",
        {0: "written", 1: "Triton or Prometheus did not respond; nothing was written"},
        project.PrometheusAccess,
    ),
    "convert": Usage(
        "convert SLOs of Sloth or OpenSLO to objectives",
        _convert,
        "tritonwatch convert --from sloth slos.yaml --out objectives/converted.yaml",
        {
            0: "converted",
            1: "mistakes in the files",
            3: "converted, except fields that objectives cannot express",
        },
    ),
    "check": Usage(
        "validate objectives and alert settings, and the path of a page to the bridge",
        _check,
        "tritonwatch check slo/objectives/*.yaml --retention 35d",
        {0: "no mistakes", 1: "mistakes were found, or a server did not respond"},
        project.Checked,
    ),
    "generate": Usage(
        "write rules, Alertmanager configuration and dashboards from objectives",
        _generate,
        "tritonwatch generate --objectives slo/objectives --out generated",
        {0: "written", 1: "mistakes in the files, or --check found a difference"},
        project.Generation,
    ),
    "reload": Usage(
        "generate rules and load them into a running Prometheus and Alertmanager; on any error, keep the old files",
        _reload,
        "tritonwatch reload --objectives slo/objectives --out generated --prometheus http://127.0.0.1:9090 "
        "--alertmanager http://127.0.0.1:9093",
        {0: "the new files are loaded", 1: "failed; the old files stay loaded"},
        project.Reloading,
    ),
    "dashboards": Usage(
        "list, write or push the Grafana dashboards",
        _dashboards,
        "tritonwatch dashboards push --grafana https://grafana.example.org --grafana-token-file token --dry-run",
        {0: "done", 1: "failed, or --dry-run found a change"},
        project.Dashboards,
    ),
    "status": Usage(
        "show the status and the error budget of every objective",
        _status,
        "tritonwatch status --prometheus http://127.0.0.1:9090 --top 20",
        {
            0: "printed",
            1: "a row is, or may be, in a state of --fail-on, rules are not loaded, or Prometheus did not respond",
        },
        project.Standing,
    ),
    "web": Usage(
        "serve web pages: status, error budgets, causes of failures, alert conditions and incidents",
        _web,
        "tritonwatch web --prometheus http://127.0.0.1:9090 --objectives slo/objectives",
        {0: "stopped by SIGTERM or Ctrl-C", 1: "a mistake in a file, or --listen is in use"},
        project.Pages,
    ),
    "gate": Usage(
        "decide whether to promote, hold or roll back a release",
        _gate,
        "tritonwatch gate --prometheus http://127.0.0.1:9090 --model classifier --canary 2 --baseline 1",
        {
            0: "promote",
            1: "cannot tell: there is no data, rules are not loaded, or Prometheus did not respond",
            3: "hold",
            4: "rollback",
        },
        project.Standing,
    ),
    "advise": Usage(
        "say at what traffic each objective breaks, and which change of a configuration helps",
        _advise,
        "tritonwatch advise --prometheus http://127.0.0.1:9090 --model classifier --if instances=2",
        {
            0: "printed, also where it is unknown; or --watch was stopped by SIGTERM or Ctrl-C",
            1: "there is no data of such a model, a file has a mistake, Prometheus did not respond, or --listen is in use",
            3: "a prediction of --check did not come true",
        },
        project.Advised,
    ),
    "backtest": Usage(
        "replay past data and list the alerts that would have fired",
        _backtest,
        "tritonwatch backtest --prometheus http://127.0.0.1:9090 --last 30d --incidents incidents.csv",
        {0: "printed", 1: "there is no history, a file has a mistake, or Prometheus did not respond"},
        project.Replay,
    ),
    "bridge": Usage(
        "store Alertmanager notifications and deliver them to Slack, one message per incident",
        _bridge,
        "tritonwatch bridge --dry-run --listen 127.0.0.1:9096",
        {
            0: "stopped by SIGTERM or Ctrl-C, or the test succeeded",
            1: "the bridge or the test failed, or Slack rejected the request",
        },
    ),
    "mcp": Usage(
        "serve the Model Context Protocol to AI assistants (read-only)",
        _mcp,
        "tritonwatch mcp --prometheus http://127.0.0.1:9090 --bridge-data /var/lib/tritonwatch-bridge",
        {0: "standard input ended"},
        project.Asked,
    ),
    "incidents": Usage(
        "list the incidents of a bridge, or show one incident",
        _incidents,
        "tritonwatch incidents --data /var/lib/tritonwatch-bridge --last 1d",
        {0: "printed", 1: "not found or not readable"},
        project.Incidents,
    ),
    "report": Usage(
        "report which objectives were met or missed in a month or quarter",
        _report,
        "tritonwatch report --prometheus http://127.0.0.1:9090 --period 2026-10 --out report.md",
        {0: "written", 1: "nothing is recorded, or Prometheus did not respond"},
        project.Reported,
    ),
    "completion": Usage(
        "print the shell completion script for bash or zsh",
        _completion,
        "tritonwatch completion bash > ~/.local/share/bash-completion/completions/tritonwatch",
        {0: "printed"},
    ),
}
