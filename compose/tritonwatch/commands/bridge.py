"""Run the bridge, or a subcommand of `tritonwatch bridge`; apart from its options, which `--help` shows quickly."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

from triton_alerts.bridge import slack_setup
from triton_alerts.bridge.assembly import assemble, claimed, slack_transport
from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.messages import Style
from triton_alerts.bridge.deliver.slack import SlackApi
from triton_alerts.bridge.deliver.transport import DeliveryError, Terminal, Transport
from triton_alerts.bridge.incidents.database import OtherSchemaError
from triton_alerts.bridge.receiver import PATH
from triton_alerts.bridge.service import Service
from triton_alerts.bridge.settings import BridgeSettings, Secret, SendingSettings
from triton_alerts.bridge.slack_setup import sample
from triton_exporter.common.printable import without_secrets
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.names import SEVERITIES
from tritonwatch import project

log = logging.getLogger(__name__)

STOP_SECONDS = 20.0
"""Time to stop after a signal: Kubernetes kills after 30."""


class RedactingFormatter(logging.Formatter):
    """Keeps tokens, passwords and webhook addresses out of the log, in tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


def run(args: argparse.Namespace) -> int:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return _test(args) if args.subcommand == "test" else _serve(args)


def _serve(args: argparse.Namespace) -> int:
    settings = BridgeSettings.read(vars(args), os.environ, project.load(args, os.environ))
    if settings.data is not None:
        return _run(settings, settings.data)
    with tempfile.TemporaryDirectory(prefix="tritonwatch-bridge-") as folder:
        return _run(settings, Path(folder))


def _run(settings: BridgeSettings, data: Path) -> int:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with claimed(data):
            return _until_stopped(assemble(settings, settings.listen, data, time.time), settings, stop)
    except sqlite3.Error as error:
        fix = (
            "start the tritonwatch that wrote it, or give a new folder as --data DIR (firing alerts "
            "are then posted again)"
            if isinstance(error, OtherSchemaError)
            else "free disk space, or move bridge.sqlite away (the bridge then creates a new database and "
            "posts firing alerts again)"
        )
        raise ProblemsError(
            Problem(f"--data {data}", f"the database cannot be used: {error}", fix), code=1
        ) from error
    except OSError as error:
        problem = _unusable(error, "{}:{}".format(*settings.listen), data)
        raise ProblemsError(problem, code=1) from error


def _until_stopped(service: Service, settings: BridgeSettings, stop: threading.Event) -> int:
    service.start()
    if settings.slack_token_file is not None and not settings.dry_run:
        slack = SlackApi(Secret(settings.slack_token_file), settings.slack_url)
        # In a thread, because the bridge must accept notifications also while Slack does not answer.
        threading.Thread(
            target=_report_setup, args=(slack, settings), name="slack setup", daemon=True
        ).start()
    host, port = service.receiver.server_address[:2]
    scheme = "http" if settings.tls_cert is None else "https"
    print(f"bridge: receiving notifications on {scheme}://{host!s}:{port}{PATH}", flush=True)
    stop.wait()
    # Python waits for the threads of a pool, and one may read an answer without an end. Nothing is lost with it: what is
    # undelivered is in the database. The log says where each thread was.
    faulthandler.dump_traceback_later(STOP_SECONDS)
    ending = threading.Timer(STOP_SECONDS + 1, os._exit, (0,))
    ending.daemon = True
    ending.start()
    print("bridge: stopping; undelivered messages are sent after the next start", flush=True)
    service.stop()
    return 0


def _report_setup(slack: SlackApi, settings: BridgeSettings) -> None:
    """Log what works in Slack and what is missing, before the first page shows it."""
    works, problems = slack_setup.check(slack, settings.channels(), settings.scopes())
    for line in works:
        log.info("%s", line)
    for problem in problems:
        log.error("%s", problem)


def _unusable(error: OSError, listen: str, data: Path) -> Problem:
    """Return what the bridge cannot use: its folder, or its address."""
    if isinstance(error, BlockingIOError):
        fix = "stop the other bridge, or give this bridge a separate folder"
        return Problem(
            f"--data {data}", "another bridge uses this folder; two would send every message twice", fix
        )
    if error.filename is not None:
        return Problem(
            f"--data {data}", f"{error.filename}: {error.strerror}", "name a folder that can be written"
        )
    return Problem(f"--listen {listen}", str(error.strerror), "name a free address and port of this machine")


def _test(args: argparse.Namespace) -> int:
    settings = SendingSettings.read(vars(args), os.environ, project.load(args, os.environ))
    problems: list[Problem] = []
    transport = Terminal(sys.stdout, time.time) if settings.dry_run else slack_transport(settings)
    channels = sorted(settings.channels())
    if isinstance(transport, SlackApi):
        works, problems = slack_setup.check(transport, channels, settings.scopes())
        print(*works, sep="\n")
    elif not transport.threads:  # it has one channel
        channels = [settings.channel_of("critical")]
    for channel in channels:
        try:
            _try_channel(settings, transport, channel, time.time())
        except DeliveryError as refusal:
            fix = (
                "check the bot token, and invite the app to the channel"
                if refusal.kind == "setup"
                else "try again"
            )
            problems.append(Problem(f"Slack channel {channel}", str(refusal), fix))
            continue
        note = "" if transport.threads else "; a webhook has no edits, threads, charts and buttons"
        print(
            f"{'dry run, nothing was sent; the channel is' if settings.dry_run else 'sent to'} {channel}{note}"
        )
    if problems:
        raise ProblemsError(*problems, code=1)
    return 0


def _try_channel(settings: SendingSettings, transport: Transport, channel: str, now: float) -> None:
    """Send what the channel would get: the sample, firing and resolved, or its escalation, mentioning nobody."""
    opened, resolved, events = sample(now)
    name = f"test-{now}-{channel}"
    if channel in {settings.channel_of(severity) for severity in SEVERITIES}:
        sent = transport.post(channel, messages.root(opened, Style(), now), name)
        if transport.threads:
            transport.post(sent.channel, messages.reply(resolved, events), f"{name}-r", sent.ts)
            transport.edit(sent.channel, sent.ts, messages.root(resolved, Style(), now))
    if transport.threads and channel == (settings.escalate_to or settings.channel_of("critical")):
        escalated = opened.model_copy(update={"escalated_at": now})
        transport.post(
            channel, messages.escalation(escalated, "", settings.escalate_after, "", now), f"{name}-e"
        )
