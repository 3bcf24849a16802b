"""The verb `bridge`: its arguments, and the bridge put together from them."""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from triton_alerts.bridge import enrich
from triton_alerts.bridge.courier import Courier, Manner
from triton_alerts.bridge.instruments import Instruments
from triton_alerts.bridge.message import Style
from triton_alerts.bridge.receiver import PATH, Door, Receiver
from triton_alerts.bridge.service import TICK_SECONDS, Service
from triton_alerts.bridge.store import Store
from triton_alerts.bridge.terminal import Terminal
from triton_alerts.bridge.transport import Transport


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument(
        "--listen", default="127.0.0.1:9096", metavar="HOST:PORT", help="where Alertmanager posts"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print to the terminal instead of sending to Slack"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the database and the audit trail")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="bearer token that Alertmanager must show"
    )
    parser.add_argument("--channel", default="#triton-alerts", help="Slack channel, by name or id")
    parser.add_argument(
        "--exporter", action="append", default=[], metavar="URL", help="exporter to ask for reasons"
    )


def run(args: argparse.Namespace) -> int:
    """Run the bridge until it is told to stop."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    if args.data is not None:
        return _run(args, args.data)
    with tempfile.TemporaryDirectory(prefix="tritonwatch-bridge-") as folder:
        return _run(args, Path(folder))


def _run(args: argparse.Namespace, data: Path) -> int:
    stop = threading.Event()
    service, address = assemble(args, data, Terminal(sys.stdout, time.time), time.time)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    service.start()
    print(f"bridge: waiting for Alertmanager on http://{address}{PATH}", flush=True)
    stop.wait()
    service.stop()
    return 0


def assemble(
    args: argparse.Namespace, data: Path, transport: Transport, clock: Callable[[], float]
) -> tuple[Service, str]:
    """Put the parts together."""
    data.mkdir(parents=True, exist_ok=True)
    store = Store(data / "bridge.sqlite", lambda _severity: args.channel)
    instruments = Instruments(store, clock)
    services: list[Service] = []

    def wake() -> None:
        for service in services:
            service.wake()

    door = Door(store, instruments, clock, wake)
    host, _, port = args.listen.rpartition(":")
    receiver = Receiver((host, int(port)), door)
    sources = {"exporter": enrich.exporter(args.exporter)} if args.exporter else {}
    chores = (
        [
            enrich.Enricher(
                store, sources, lambda name: instruments.enrichment_failures.labels(name).inc(), wake
            )
        ]
        if sources
        else []
    )
    manner = Manner(Style(), evidence_seconds=enrich.BUDGET_SECONDS + TICK_SECONDS if sources else 0.0)
    courier = Courier(args.channel, store, transport, manner, clock, random.Random(), instruments.count)  # noqa: S311
    services.append(Service(store, receiver, (courier,), clock, chores))
    return services[0], f"{host}:{receiver.server_address[1]}"
