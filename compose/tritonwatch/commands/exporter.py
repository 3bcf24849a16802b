"""`tritonwatch exporter`: serve the enriched series of one Triton."""

from __future__ import annotations

import argparse
import logging
import sys

from triton_exporter.app.exporter import Exporter
from triton_exporter.app.memory import give_back_large_buffers
from triton_exporter.app.state_file import StateFileInUseError
from triton_exporter.http.server import Server
from triton_exporter.http.web_config import WebConfigError, load_web_config
from tritonwatch.command_error import CommandError
from tritonwatch.exporter_options.chosen_settings import OptionsError, settings_of_arguments
from tritonwatch.exporter_options.declared_options import declare

_TURN_SECONDS = 0.0005
"""Python's thread switch interval. The default of 5 ms is as long as Triton needs for a whole response, and
would delay threads that only relay bytes."""

EXAMPLE = "tritonwatch exporter --triton http://127.0.0.1:8000"
EXIT_CODES = {0: "stopped by SIGTERM or Ctrl-C", 1: "a mistake in the settings file, or --listen is in use"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    give_back_large_buffers()
    sys.setswitchinterval(_TURN_SECONDS)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        choice = settings_of_arguments(args)
        web = load_web_config(choice.web_config) if choice.web_config else None
    except (OptionsError, WebConfigError) as error:
        on_command_line = any(str(problem).startswith("--") for problem in error.problems)
        raise CommandError(*error.problems, code=2 if on_command_line else 1) from error
    settings = choice.settings
    try:
        exporter = Exporter(settings)
    except StateFileInUseError as error:
        raise CommandError(error) from error
    except OSError as error:
        raise CommandError(f"cannot receive traces: {error.strerror}") from error
    host, port = settings.listen_host, settings.listen_port
    try:
        server = Server(host, port, exporter.pages(), web, exporter.connections)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    with server:
        print(f"serving {server.url}/metrics for {settings.triton_url}", file=sys.stderr, flush=True)
        exporter.start()
        server.serve_until_signal()
    exporter.stop()
    return 0
