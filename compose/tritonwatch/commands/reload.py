"""`tritonwatch reload`: load edited objectives into a running Prometheus, or keep the old rules."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from triton_alerts.alertmanager_client import Alertmanager, ReloadableServer
from tritonwatch import access, output
from tritonwatch.generation import by_path, generated
from tritonwatch.parser import declare
from tritonwatch.project import Reloading
from tritonwatch.reloading import CHECKERS, check, write_and_load

EXAMPLE = (
    "tritonwatch reload --objectives slo/objectives --out generated --prometheus http://127.0.0.1:9090 "
    "--alertmanager http://127.0.0.1:9093"
)
OPTIONS = Reloading
EXIT_CODES = {0: "the new files are loaded", 1: "failed; the old files stay loaded"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Generate the files, check them, write them and reload."""
    reached = access.from_arguments(args, os.environ)
    prometheus = ReloadableServer("Prometheus", reached)
    alertmanager = None
    if args.alertmanager:
        alertmanager = Alertmanager(replace(reached, url=args.alertmanager))
    files = by_path(generated(args, "prometheus"))
    accepting = check(files)
    for name in CHECKERS:
        print(f"{name}: {'the new files are valid' if name in accepting else 'not installed, check skipped'}")
    # Of two at once, each would take the other's files for its own, and restore them for those before.
    with output.locked(args.out):
        write_and_load(args.out, files, prometheus, alertmanager)
    servers = "Prometheus and Alertmanager" if alertmanager else "Prometheus"
    print(f"wrote {len(files)} files to {args.out}; {servers} loaded them")
    return 0
