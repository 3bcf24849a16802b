"""Puts the bridge together from its arguments: the one place that knows all parts."""

from __future__ import annotations

import argparse
import fcntl
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from triton_alerts.alertmanager_client import Alertmanager
from triton_alerts.bridge import settings
from triton_alerts.bridge.deliver.chart import Charts
from triton_alerts.bridge.deliver.message import Style
from triton_alerts.bridge.deliver.pagers import IncidentWebhook, PagerDuty, PagerWorker
from triton_alerts.bridge.deliver.slack import SlackApi, SlackWebhook
from triton_alerts.bridge.deliver.terminal import Terminal
from triton_alerts.bridge.deliver.transport import Transport
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker, Escalation
from triton_alerts.bridge.evidence import changes, enrich, facts, gpus, servers
from triton_alerts.bridge.incidents.alertmanagers import Alertmanagers
from triton_alerts.bridge.incidents.audit import Audit, private
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.instruments import Instruments
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.operations.actions import Actions
from triton_alerts.bridge.operations.chores import Escalator, HeartbeatWatch, Reconciler
from triton_alerts.bridge.operations.socket_mode import Socket
from triton_alerts.bridge.receiver import Webhook, listen
from triton_alerts.bridge.review import summary
from triton_alerts.bridge.review.weekly import WeeklySummary
from triton_alerts.bridge.service import TICK_SECONDS, Chore, Service, Worker
from triton_alerts.bridge.settings import STACK_USER, Secret
from triton_slo.prometheus import Access, Prometheus, PrometheusError

AUDIT_FILE = "audit.jsonl"
LOCK_FILE = "bridge.lock"
ALERTMANAGER_SECONDS = 5.0
SUMMARY_SECONDS = 10.0
"""Nobody waits for a weekly summary, and it asks about a week before."""

log = logging.getLogger(__name__)


def slack_transport(args: argparse.Namespace) -> SlackApi | SlackWebhook:
    """Choose the transport: a bot token, which supports everything, else an incoming webhook."""
    if args.slack_token_file is not None:
        return SlackApi(Secret(args.slack_token_file), args.slack_url)
    log.warning(
        "incoming webhook: no threads, no edits, no buttons, no charts; each change is a new message, and all "
        "of them go to the webhook's own channel"
    )
    return SlackWebhook(Secret(args.slack_webhook_file))


@contextmanager
def claimed(data: Path) -> Iterator[None]:
    """Make the folder, and hold it for this process alone; a kill gives it back.

    Raises BlockingIOError when another process holds it, OSError when it cannot be made or written.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (DATABASE_FILE, f"{DATABASE_FILE}-wal", AUDIT_FILE):
        if (data / name).exists():  # written by an older bridge
            private(data / name)
    with private(data / LOCK_FILE).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:  # a file system without locks
            log.warning("%s cannot be locked (%s): see that only one bridge uses it", data, error.strerror)
        yield


def assemble(
    args: argparse.Namespace, address: tuple[str, int], data: Path, clock: Callable[[], float]
) -> Service:
    """Return the bridge, ready to start. Raises sqlite3.Error or OSError for what cannot be opened or bound."""
    channel_for = settings.channel_for(args)
    transport: Transport = (
        Terminal(sys.stdout, clock) if settings.without_slack(args) else slack_transport(args)
    )
    if isinstance(transport, SlackWebhook):
        # It writes to one channel only, where a ticket that becomes a page would be sent twice.
        channel_for = partial(_same, channel_for("critical"))
    audit = Audit(data / AUDIT_FILE)
    store = Store(private(data / DATABASE_FILE), channel_for, audit.unreported)
    instruments = Instruments(store, clock)
    services: list[Service] = []

    def wake() -> None:
        for service in services:
            service.wake()

    alertmanagers = Alertmanagers(
        tuple(Alertmanager(_access(args, url, ALERTMANAGER_SECONDS)) for url in args.alertmanager), store
    )
    escalation = Escalation(args.escalate_after, args.escalate_to, settings.mention(args.mention))
    chores: list[Chore] = [HeartbeatWatch(store, args.heartbeat_timeout, wake)]
    if escalation.after_seconds > 0:
        chores.append(Escalator(store, escalation, channel_for, wake, audit.escalated))
    if alertmanagers.each:
        failed = instruments.enrichment_failures.labels("alertmanager").inc
        chores.append(Reconciler(store, alertmanagers, wake, failed))
    sources = evidence_sources(args, clock)
    if sources:
        addresses = dict.fromkeys(sources, args.prometheus) | {"exporter": ", ".join(args.exporter)}
        counted = instruments.enrichment_failures
        chores.append(
            enrich.Enricher(store, sources, lambda name: counted.labels(name).inc(), wake, addresses)
        )
    buttons = isinstance(transport, SlackApi) and args.slack_app_token_file is not None
    if isinstance(transport, SlackApi):
        if args.prometheus:
            chores.append(Charts(store, _prometheus(args), transport.upload, instruments.count))
        if buttons:
            actions = Actions(
                store,
                audit,
                alertmanagers,
                clock,
                wake,
                lambda action, outcome: instruments.actions.labels(action, outcome).inc(),
                frozenset(args.button_user),
                settings.button_channels(args),
            )
            token = Secret(args.slack_app_token_file)
            socket = Socket(token, args.slack_url, actions.do, transport.respond)
            instruments.show_socket(socket.connected)
            chores.append(socket)
    options = DeliveryOptions(
        Style(buttons, args.grafana), escalation, enrich.BUDGET_SECONDS + TICK_SECONDS if sources else 0.0
    )
    workers = [
        DeliveryWorker(channel, store, transport, options, clock, random.Random(), instruments.count)  # noqa: S311
        for channel in sorted(settings.channels(args))
    ]
    senders: list[Worker] = [*workers]
    senders += [
        PagerWorker(pager, store, clock, random.Random(), options.evidence_seconds, instruments.count)  # noqa: S311
        for pager in _pagers(args)
    ]
    if args.weekly_summary:
        # A webhook writes to its own channel only.
        where = args.weekly_summary if transport.threads else channel_for("critical")
        week = (where, args.hours, store, transport, partial(_budgets, args), clock)
        senders.append(WeeklySummary(*week, random.Random(), instruments.count))  # noqa: S311
    token_file = Secret(args.token_file) if args.token_file is not None else None
    webhook = Webhook(
        store,
        instruments,
        clock,
        wake,
        token=token_file,
        ready=lambda: _not_ready(store),
    )
    server = listen(address, webhook, settings.server_certificates(args))
    services.append(Service(store, server, senders, clock, chores, alertmanagers.listed))
    return services[0]


def _pagers(args: argparse.Namespace) -> list[PagerDuty | IncidentWebhook]:
    style, pagers = Style(grafana=args.grafana), list[PagerDuty | IncidentWebhook]()
    if args.pagerduty_key_file is not None and not args.dry_run:
        pagers.append(PagerDuty(Secret(args.pagerduty_key_file), style, args.pagerduty_url))
    if args.incident_webhook_file is not None and not args.dry_run:
        token = args.incident_webhook_token_file
        secret = Secret(token) if token is not None else None
        pagers.append(IncidentWebhook(Secret(args.incident_webhook_file), style, secret))
    return pagers


def _budgets(args: argparse.Namespace, at: float) -> list[str]:
    if not args.prometheus:
        return [summary.NO_PROMETHEUS]
    try:
        with Prometheus(_access(args, args.prometheus, SUMMARY_SECONDS)) as prometheus:
            return summary.budgets(prometheus, at)
    except PrometheusError as error:
        return [f"Not known: {error}"]


def _same(channel: str, _severity: str) -> str:
    return channel


def _access(args: argparse.Namespace, url: str, timeout_seconds: float) -> Access:
    if args.password_file is None:
        return Access(url, timeout_seconds=timeout_seconds)
    password = Secret(args.password_file)()
    return Access(url, user=STACK_USER, password=password, timeout_seconds=timeout_seconds)


def _prometheus(args: argparse.Namespace) -> Prometheus:
    return Prometheus(_access(args, args.prometheus, enrich.BUDGET_SECONDS))


def evidence_sources(args: argparse.Namespace, clock: Callable[[], float]) -> dict[str, enrich.Source]:
    """Return what the given servers are asked for, by name of the source."""
    sources: dict[str, enrich.Source] = {}
    if args.exporter:
        peers = [_access(args, url, enrich.BUDGET_SECONDS) for url in args.exporter]
        sources["exporter"] = enrich.exporter(peers)
    if args.prometheus:
        prometheus = _prometheus(args)
        sources["prometheus"] = facts.from_prometheus(prometheus)
        # Asked apart, so that a slow one takes no other fact with it.
        sources["changes"] = changes.last_changes(prometheus, clock)
        sources["gpu"] = gpus.gpu_state(prometheus)
        sources["servers"] = servers.serving(prometheus)
    return sources


def _not_ready(store: Store) -> str:
    """Ready means that a notification could be stored now; an unreachable Slack does not matter."""
    return "" if store.writable() else "the database cannot be written"
