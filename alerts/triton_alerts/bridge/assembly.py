"""Assemble the bridge from its settings: the one place that knows all parts."""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from triton_alerts.alertmanager_client import Alertmanager
from triton_alerts.bridge.alertmanagers import Alertmanagers, Reconciler
from triton_alerts.bridge.buttons import Actions, Socket
from triton_alerts.bridge.deliver.chart import Charts
from triton_alerts.bridge.deliver.messages import Style
from triton_alerts.bridge.deliver.slack import SlackApi, SlackWebhook
from triton_alerts.bridge.deliver.transport import Attempts, Terminal, Transport
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker, Escalation
from triton_alerts.bridge.evidence import facts
from triton_alerts.bridge.incidents.audit import Audit, private
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.receiver import Instruments, Webhook, listen
from triton_alerts.bridge.service import (
    TICK_SECONDS,
    ChannelMove,
    Chore,
    Escalator,
    HeartbeatWatch,
    Service,
    Wakeups,
)
from triton_alerts.bridge.settings import STACK_USER, BridgeSettings, Secret, SlackSettings
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access, parse_header

AUDIT_FILE = "audit.jsonl"
LOCK_FILE = "bridge.lock"
ALERTMANAGER_SECONDS = 5.0

log = logging.getLogger(__name__)


def slack_transport(settings: SlackSettings) -> SlackApi | SlackWebhook:
    """Choose the transport: a bot token, which supports everything, else an incoming webhook."""
    if settings.slack_token_file is not None:
        return SlackApi(Secret(settings.slack_token_file), settings.slack_url)
    log.warning(
        "incoming webhook: no threads, no edits, no buttons, no charts; each change is a new message, and all "
        "of them go to the webhook's own channel"
    )
    assert settings.slack_webhook_file is not None  # settings without both are refused
    return SlackWebhook(Secret(settings.slack_webhook_file))


@contextmanager
def claimed(data: Path) -> Iterator[None]:
    """Create the folder and lock it for this process; the lock ends with the process, even if it is killed.

    Raises BlockingIOError if another process has the lock, OSError if the folder cannot be created or written.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (DATABASE_FILE, f"{DATABASE_FILE}-wal", AUDIT_FILE):
        if (data / name).exists():  # perhaps copied here
            private(data / name)
    with private(data / LOCK_FILE).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:  # a file system without locks
            log.warning(
                "%s cannot be locked (%s): make sure that only one bridge uses it", data, error.strerror
            )
        yield


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts that the receiver, the chores and the workers share."""

    settings: BridgeSettings
    clock: Callable[[], float]
    wake: Callable[[], None]
    channel_for: Callable[[str], str]
    transport: Transport
    audit: Audit
    store: Store
    instruments: Instruments
    alertmanagers: Alertmanagers
    escalation: Escalation
    sources: dict[str, facts.Source]

    @property
    def buttons(self) -> bool:
        return isinstance(self.transport, SlackApi) and self.settings.slack_app_token_file is not None

    def webhook(self) -> Webhook:
        """Return the handler of the HTTP endpoint that receives notifications."""
        token_file = self.settings.token_file
        return Webhook(
            self.store,
            self.instruments,
            self.clock,
            self.wake,
            token=Secret(token_file) if token_file is not None else None,
            ready=lambda: _not_ready(self.store),
            may_still_fire=self.alertmanagers.may_still_fire,
        )

    def chores(self) -> Iterator[Chore]:
        """Yield the tasks that run about once a second, each in its own thread."""
        yield ChannelMove(self.store, self.settings.escalate_to or self.channel_for("critical"), self.wake)
        yield HeartbeatWatch(self.store, self.settings.heartbeat_timeout, self.wake)
        if self.escalation.after_seconds > 0:
            yield Escalator(
                self.store, self.escalation, self.channel_for, self.wake, self.audit.record_escalation
            )
        failures = self.instruments.enrichment_failures
        if self.alertmanagers.each:
            failed = failures.labels("alertmanager").inc
            yield Reconciler(self.store, self.alertmanagers, self.wake, failed)
        if self.sources:
            addresses = dict.fromkeys(self.sources, self.settings.prometheus)
            addresses["exporter"] = ", ".join(self.settings.exporter)
            yield facts.Enricher(
                self.store, self.sources, lambda name: failures.labels(name).inc(), self.wake, addresses
            )
        if isinstance(self.transport, SlackApi):
            if self.settings.prometheus:
                prometheus = _prometheus(self.settings)
                failed = failures.labels("chart").inc
                yield Charts(self.store, prometheus, self.transport.upload, self.instruments.count, failed)
            if self.settings.slack_app_token_file is not None:
                yield self._socket(self.transport, Secret(self.settings.slack_app_token_file))

    def _socket(self, slack: SlackApi, token: Secret) -> Socket:
        actions = Actions(
            self.store,
            self.audit,
            self.alertmanagers,
            self.clock,
            self.wake,
            lambda action, outcome: self.instruments.actions.labels(action, outcome).inc(),
            frozenset(self.settings.button_user),
            self.settings.button_channels(),
        )
        socket = Socket(token, self.settings.slack_url, actions.do, slack.respond)
        self.instruments.show_socket(socket.connected)
        return socket

    def workers(self) -> Iterator[DeliveryWorker]:
        """Yield a worker for each channel."""
        evidence_seconds = facts.EVIDENCE_TIMEOUT_SECONDS + TICK_SECONDS if self.sources else 0.0
        options = DeliveryOptions(
            Style(self.buttons, self.settings.grafana), self.escalation, evidence_seconds
        )
        for channel in sorted(self.settings.channels()):
            attempts = Attempts(self.clock, count=self.instruments.count)
            yield DeliveryWorker(channel, self.store, self.transport, options, attempts)


def assemble(
    settings: BridgeSettings, address: tuple[str, int], data: Path, clock: Callable[[], float]
) -> Service:
    """Return the bridge, ready to start. Raises sqlite3.Error or OSError for what cannot be opened or bound."""
    channel_for = settings.channel_of
    transport: Transport = Terminal(sys.stdout, clock) if settings.dry_run else slack_transport(settings)
    if isinstance(transport, SlackWebhook):
        # It writes to one channel only, where a ticket that becomes a page would be sent twice.
        channel_for = partial(_same_channel, channel_for("critical"))
    audit = Audit(data / AUDIT_FILE)
    store = Store(private(data / DATABASE_FILE), channel_for, audit.record_unreported)
    access_to = partial(_tenant_access, settings, timeout_seconds=ALERTMANAGER_SECONDS)
    wakeups = Wakeups()
    parts = _Parts(
        settings=settings,
        clock=clock,
        wake=wakeups.wake,
        channel_for=channel_for,
        transport=transport,
        audit=audit,
        store=store,
        instruments=Instruments(store, clock),
        alertmanagers=Alertmanagers(
            tuple(Alertmanager(access_to(url)) for url in settings.alertmanager), store
        ),
        escalation=Escalation(settings.escalate_after, settings.escalate_to, settings.mention_markup()),
        sources=evidence_sources(settings, clock),
    )
    chores, workers = list(parts.chores()), list(parts.workers())
    server = listen(address, parts.webhook(), settings.certificates)
    return Service(store, server, workers, clock, chores, parts.alertmanagers.listed, wakeups)


def _same_channel(channel: str, _severity: str) -> str:
    return channel


def _access(settings: BridgeSettings, url: str, timeout_seconds: float) -> Access:
    if settings.password_file is None:
        return Access(url, timeout_seconds=timeout_seconds)
    password = Secret(settings.password_file)()
    return Access(url, user=STACK_USER, password=password, timeout_seconds=timeout_seconds)


def _tenant_access(settings: BridgeSettings, url: str, timeout_seconds: float) -> Access:
    """Return the access to a server that may have tenants: with the headers given as --header."""
    return replace(_access(settings, url, timeout_seconds), headers=tuple(map(parse_header, settings.header)))


def _prometheus(settings: BridgeSettings) -> Prometheus:
    return Prometheus(_tenant_access(settings, settings.prometheus, facts.EVIDENCE_TIMEOUT_SECONDS))


def evidence_sources(settings: BridgeSettings, clock: Callable[[], float]) -> dict[str, facts.Source]:
    """Return the sources of evidence that the settings allow, by name."""
    sources: dict[str, facts.Source] = {}
    if settings.exporter:
        exporters = [_access(settings, url, facts.EVIDENCE_TIMEOUT_SECONDS) for url in settings.exporter]
        sources["exporter"] = facts.error_messages(exporters)
    if settings.prometheus:
        prometheus = _prometheus(settings)
        # One source for each kind of fact, so that a slow query delays no other fact.
        sources |= {
            facts.PROMETHEUS: facts.objective_budget(prometheus),
            "cause": facts.counted_cause(prometheus),
            "changes": facts.latest_changes(prometheus, clock),
            "gpu": facts.gpu_state(prometheus),
            "overload": facts.overload(prometheus, clock),
            facts.WHICH_SERVERS: facts.servers(prometheus),
        }
    return sources


def _not_ready(store: Store) -> str:
    """Return why the bridge cannot store notifications, or nothing; it is ready while Slack is unreachable."""
    try:
        store.database.check()
    except sqlite3.Error as error:
        store.database.report(error)
        return f"the database cannot be used: {error}"
    return ""
