"""`tritonwatch web`: serve pages about error budgets, their causes, and the alerts on them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from triton_exporter.app.doctor_facts import gather
from triton_exporter.app.settings import DoctorSettings
from triton_exporter.common.options import adder, host_and_port, parsed
from triton_exporter.http.web_config import WebConfig, load_web_config
from triton_slo.group_status import GroupStatus
from triton_slo.prometheus import Prometheus
from tritonwatch import access, objective_files
from tritonwatch.arguments import (
    AS_GENERATED,
    add_rule_options,
    add_runbook_url,
    checked,
    path,
    rule_options,
    web_address,
)
from tritonwatch.command_error import CommandError, UsageError
from tritonwatch.objective_files import add_objectives
from tritonwatch.parser import declare
from tritonwatch.review.bridge_location import add_bridge, bridge_of
from tritonwatch.web.app import create_app
from tritonwatch.web.readers.doctor_reader import DoctorReader
from tritonwatch.web.readers.prometheus_reader import PrometheusReader
from tritonwatch.web.server import http_server
from tritonwatch.web.sources import Addresses, Sources

_WATCH_SECONDS = 0.5
"""Seconds for which Triton's traffic is observed; short, because a page waits for it."""
EXAMPLE = "tritonwatch web --prometheus http://127.0.0.1:9090 --objectives slo/objectives"
EXIT_CODES = {0: "stopped by SIGTERM or Ctrl-C", 1: "a mistake in a file, or --listen is in use"}


class _Doctor(DoctorSettings):
    group = "a Triton server, to show the findings of `tritonwatch doctor` on the pages of its models"


_DOCTOR_OPTIONS = _Doctor.options().keys() - {"timeout"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add = adder(parser.add_argument)
    add(
        "--listen HOST:PORT",
        "address to serve the pages on (default: 127.0.0.1:9097)",
        parsed(host_and_port),
        default=("127.0.0.1", 9097),
    )
    add("--web-config FILE", "TLS and basic authentication: a web config file of exporter-toolkit", path)
    add_objectives(
        add, ", to show their alert conditions and to report objectives whose rules are not loaded"
    )
    add_bridge(add)
    add = adder(parser.add_argument_group("URLs for links, as seen from a browser").add_argument)
    address = checked(web_address)
    add("--grafana URL", "URL of Grafana", address, default="")
    add("--alertmanager URL", "URL of Alertmanager", address, default="")
    add("--prometheus-link URL", "URL of Prometheus (default: that of --prometheus)", address, default="")
    add_runbook_url(add)
    add_rule_options(adder(parser.add_argument_group(AS_GENERATED).add_argument))
    declare(parser, _Doctor, _DOCTOR_OPTIONS)
    access.add_prometheus(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; a Prometheus that does not answer is a banner on every page."""
    web = load_web_config(args.web_config) if args.web_config else WebConfig()
    with Prometheus(access.from_arguments(args, os.environ)) as prometheus:
        host, port = args.listen
        try:
            server = http_server(create_app(_sources(args, prometheus)), host, port, web)
        except OSError as error:
            raise CommandError(
                f"cannot listen on --listen {host}:{port}: {error.strerror}; choose another address"
            ) from error
        with server:
            print(f"serving {server.url}/ for {args.prometheus}", file=sys.stderr, flush=True)
            server.serve_until_signal()
    return 0


def _sources(args: argparse.Namespace, prometheus: Prometheus) -> Sources:
    objectives = objective_files.load(args.objectives)

    def not_loaded(rows: Sequence[GroupStatus]) -> str:
        return objective_files.not_loaded_message(objectives, rows, args) if objectives else ""

    return Sources(
        reader=PrometheusReader(prometheus, args.scrape_interval),
        objectives=objectives,
        options=replace(rule_options(args), runbook_url=args.runbook_url),
        not_loaded=not_loaded,
        addresses=Addresses(args.prometheus_link or args.prometheus, args.alertmanager, args.grafana),
        bridge_data=bridge_of(args),
        doctor=_doctor(args),
    )


def _doctor(args: argparse.Namespace) -> DoctorReader | None:
    given = [name for name in _DOCTOR_OPTIONS if getattr(args, name, None)]
    if not getattr(args, "triton", ""):
        if given:
            raise UsageError(
                f"--{given[0].replace('_', '-')} needs --triton URL, the Triton server to examine"
            )
        return None
    settings = _Doctor.read(vars(args), os.environ)
    return DoctorReader(settings.triton, lambda: gather(settings, _WATCH_SECONDS), args.scrape_interval)
