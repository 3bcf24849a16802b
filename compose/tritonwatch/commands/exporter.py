"""`tritonwatch exporter`: serve the enriched series of one Triton."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from triton_exporter.app.exporter import Exporter, give_back_large_buffers
from triton_exporter.app.settings import Settings
from triton_exporter.common.options import NO_FILE, read_file
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.distribution.state_file import StateFileInUseError
from triton_exporter.http.server import Server
from triton_exporter.http.web_config import load_web_config

_TURN_SECONDS = 0.0005
"""Python's thread switch interval. The default of 5 ms is as long as Triton needs for a whole response, and
would delay threads that only relay bytes."""

_NEW_OBJECTS = 50_000
"""New objects after which Python looks for cycles, of which there are few. With its default of 700 what a page needs for a
moment soon counts as old, and to look through all that is old takes 70 ms with 1,000 models."""


def settings_of(args: argparse.Namespace) -> Settings:
    """Join command line, environment and settings file. Raises ProblemsError with every mistake."""
    if args.config and not os.path.exists(args.config):
        raise ProblemsError(
            Problem("--config", f"{args.config} does not exist", "name a settings file (YAML)")
        )
    keys = [option.key for option in Settings.options().values()]
    file = read_file(Path(args.config), keys, Settings.section) if args.config else NO_FILE
    return Settings.read(vars(args), os.environ, file)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    give_back_large_buffers()
    sys.setswitchinterval(_TURN_SECONDS)
    gc.set_threshold(_NEW_OBJECTS)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    settings = settings_of(args)
    web = load_web_config(settings.web_config) if settings.web_config else None
    try:
        exporter = Exporter(settings)
    except StateFileInUseError as error:
        raise ProblemsError(Problem("", str(error))) from error
    except OSError as error:
        raise ProblemsError(Problem("", f"cannot receive traces: {error.strerror}")) from error
    host, port = settings.listen
    try:
        server = Server(host, port, exporter.pages(), web, exporter.connections)
    except OSError as error:
        raise ProblemsError(Problem("", f"cannot listen on {host}:{port}: {error.strerror}")) from error
    with server:
        print(f"serving {server.url}/metrics for {settings.address}", file=sys.stderr, flush=True)
        if not settings.triton_metrics and urlsplit(settings.triton).port not in (8000, 8001):
            print(
                f"its metrics are read at {settings.metrics_url}, the default port: is that of this Triton? "
                "(else give --triton-metrics URL)",
                file=sys.stderr,
                flush=True,
            )
        exporter.start()
        server.serve_until_signal()
    exporter.stop()
    return 0
