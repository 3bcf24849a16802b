"""`tritonwatch web`: serve pages about error budgets, their causes, and the alerts on them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from triton_exporter.app.doctor_facts import gather
from triton_exporter.app.settings import lacks_client
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.http.web_config import WebConfig, load_web_config
from triton_slo.group_status import GroupStatus
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from tritonwatch import access, objective_files
from tritonwatch.arguments import rule_options
from tritonwatch.bridge_incidents import bridge_of
from tritonwatch.usage import DOCTOR_OPTIONS, Doctor
from tritonwatch.web.app import create_app
from tritonwatch.web.server import http_server
from tritonwatch.web.sources import Addresses, DoctorReader, PrometheusReader, Sources

_WATCH_SECONDS = 0.5
"""Seconds for which Triton's traffic is observed; short, because a page waits for it."""


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; a Prometheus that does not answer is a banner on every page."""
    doctor = _doctor(args)
    web = load_web_config(args.web_config) if args.web_config else WebConfig()

    def not_loaded(objectives: Sequence[Objective], rows: Sequence[GroupStatus]) -> str:
        return objective_files.not_loaded_message(objectives, rows, args) if objectives else ""

    with Prometheus(access.from_arguments(args, os.environ)) as prometheus:
        host, port = args.listen
        try:
            sources = Sources(
                reader=PrometheusReader(prometheus, args.scrape_interval),
                files=objective_files.ObjectiveFiles(args.objectives),
                options=replace(rule_options(args), runbook_url=args.runbook_url),
                not_loaded=not_loaded,
                addresses=Addresses(args.prometheus_link or args.prometheus, args.alertmanager, args.grafana),
                bridge_data=bridge_of(args),
                doctor=doctor,
            )
            server = http_server(create_app(sources), host, port, web, args.scrape_interval)
        except OSError as error:
            reason = f"cannot be used: {error.strerror}"
            raise ProblemsError(
                Problem(f"--listen {host}:{port}", reason, "choose another address"), code=1
            ) from error
        with server:
            print(f"serving {server.url}/ for {args.prometheus}", file=sys.stderr, flush=True)
            server.serve_until_signal()
    return 0


def _doctor(args: argparse.Namespace) -> DoctorReader | None:
    """Return what examines the Triton of --triton; None without it, or without a client to ask it."""
    given = [name for name in DOCTOR_OPTIONS if getattr(args, name, None)]
    triton = getattr(args, "triton", None) or os.environ.get(Doctor.options()["triton"].variable.name)
    if given and not triton:
        option = f"--{given[0].replace('_', '-')}"
        raise ProblemsError(Problem(option, "needs --triton URL, the Triton server to examine"))
    if triton and lacks_client(triton):
        # The image of the compose stack: its other pages need no Triton.
        print(
            "tritonwatch web: no findings of the doctor without: pip install 'tritonwatch[exporter]'",
            file=sys.stderr,
        )
        triton = None
    if not triton:
        return None
    settings = Doctor.read(vars(args), os.environ)
    return DoctorReader(settings.triton, lambda: gather(settings, _WATCH_SECONDS), args.scrape_interval)
