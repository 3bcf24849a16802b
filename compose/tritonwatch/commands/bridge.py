"""`tritonwatch bridge`: deliver Alertmanager notifications to Slack, one message per incident."""

from __future__ import annotations

import argparse

from triton_alerts.bridge import command

EXAMPLE = "tritonwatch bridge --dry-run --listen 127.0.0.1:9096"


def configure(parser: argparse.ArgumentParser) -> None:
    command.configure(parser)


def run(args: argparse.Namespace) -> int:
    return command.run(args)
