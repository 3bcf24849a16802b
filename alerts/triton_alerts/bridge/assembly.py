"""Puts the bridge together from its arguments: the one place that knows all parts."""

from __future__ import annotations

import argparse
import fcntl
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from triton_alerts.alertmanager_client import Alertmanager
from triton_alerts.bridge import settings
from triton_alerts.bridge.deliver.chart import Charts
from triton_alerts.bridge.deliver.incident_links import Style
from triton_alerts.bridge.deliver.pagers import IncidentWebhook, PagerDuty, PagerWorker
from triton_alerts.bridge.deliver.slack import SlackApi, SlackWebhook
from triton_alerts.bridge.deliver.terminal import Terminal
from triton_alerts.bridge.deliver.transport import Attempts, Transport
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker, Escalation
from triton_alerts.bridge.evidence import changes, enrich, facts, gpus, servers
from triton_alerts.bridge.incidents.alertmanagers import Alertmanagers
from triton_alerts.bridge.incidents.audit import Audit, private
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.instruments import Instruments
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.operations.actions import Actions
from triton_alerts.bridge.operations.chores import Escalator, HeartbeatWatch, Reconciler
from triton_alerts.bridge.operations.socket_mode import Socket
from triton_alerts.bridge.receiver import Webhook, listen
from triton_alerts.bridge.review import summary
from triton_alerts.bridge.review.period_summary import period_incidents, periodic
from triton_alerts.bridge.review.scheduled import Occasion, ScheduledMessage
from triton_alerts.bridge.service import KEEP_SECONDS, TICK_SECONDS, Chore, Service, Worker
from triton_alerts.bridge.settings import STACK_USER, Secret
from triton_slo.prometheus import Access, Prometheus, PrometheusError, header
from triton_slo.report.period_outcome import PeriodReport
from triton_slo.report.recorded_report import recorded_report
from triton_slo.report.reported_period import PeriodKind, ReportedPeriod

AUDIT_FILE = "audit.jsonl"
LOCK_FILE = "bridge.lock"
ALERTMANAGER_SECONDS = 5.0
SUMMARY_SECONDS = 10.0
"""Nobody waits for a summary or report, and it asks about time long before."""

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


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts that chores and senders share."""

    args: argparse.Namespace
    clock: Callable[[], float]
    wake: Callable[[], None]
    channel_for: Callable[[str], str]
    transport: Transport
    audit: Audit
    store: Store
    instruments: Instruments
    alertmanagers: Alertmanagers
    escalation: Escalation
    sources: dict[str, enrich.Source]

    @property
    def buttons(self) -> bool:
        return isinstance(self.transport, SlackApi) and self.args.slack_app_token_file is not None

    def chores(self) -> Iterator[Chore]:
        """Yield the work that is due from time to time."""
        yield HeartbeatWatch(self.store, self.args.heartbeat_timeout, self.wake)
        if self.escalation.after_seconds > 0:
            yield Escalator(self.store, self.escalation, self.channel_for, self.wake, self.audit.escalated)
        failures = self.instruments.enrichment_failures
        if self.alertmanagers.each:
            failed = failures.labels("alertmanager").inc
            yield Reconciler(self.store, self.alertmanagers, self.wake, failed)
        if self.sources:
            addresses = dict.fromkeys(self.sources, self.args.prometheus)
            addresses["exporter"] = ", ".join(self.args.exporter)
            yield enrich.Enricher(
                self.store, self.sources, lambda name: failures.labels(name).inc(), self.wake, addresses
            )
        if isinstance(self.transport, SlackApi):
            if self.args.prometheus:
                prometheus = _prometheus(self.args)
                yield Charts(self.store, prometheus, self.transport.upload, self.instruments.count)
            if self.buttons:
                yield self._socket(self.transport)

    def _socket(self, slack: SlackApi) -> Socket:
        actions = Actions(
            self.store,
            self.audit,
            self.alertmanagers,
            self.clock,
            self.wake,
            lambda action, outcome: self.instruments.actions.labels(action, outcome).inc(),
            frozenset(self.args.button_user),
            settings.button_channels(self.args),
        )
        token = Secret(self.args.slack_app_token_file)
        socket = Socket(token, self.args.slack_url, actions.do, slack.respond)
        self.instruments.show_socket(socket.connected)
        return socket

    def senders(self) -> Iterator[Worker]:
        """Yield the workers that deliver: to each channel, to each pager, and summaries and reports."""
        evidence_seconds = enrich.BUDGET_SECONDS + TICK_SECONDS if self.sources else 0.0
        options = DeliveryOptions(Style(self.buttons, self.args.grafana), self.escalation, evidence_seconds)
        for channel in sorted(settings.channels(self.args)):
            yield DeliveryWorker(channel, self.store, self.transport, options, self._attempts())
        for pager in _pagers(self.args):
            yield PagerWorker(pager, self.store, self._attempts(), evidence_seconds)
        for channel, occasion in self._occasions():
            # A webhook writes to its own channel only.
            where = channel if self.transport.threads else self.channel_for("critical")
            yield ScheduledMessage(where, occasion, self.store, self.transport, self._attempts())

    def _attempts(self) -> Attempts:
        return Attempts(self.clock, count=self.instruments.count)

    def _occasions(self) -> Iterator[tuple[str, Occasion]]:
        if self.args.weekly_summary:
            week = summary.weekly(self.args.hours, self._data, partial(_budgets, self.args))
            yield self.args.weekly_summary, week
        if self.args.report:
            kinds: tuple[PeriodKind, ...] = ("month", "quarter")
            for kind in kinds:
                yield self.args.report, periodic(kind, self.args.hours, self._report)

    def _report(self, reported: ReportedPeriod, timezone: str) -> PeriodReport:
        now = self.clock()
        with Prometheus(_of_tenant(self.args, self.args.prometheus, SUMMARY_SECONDS)) as prometheus:
            report = recorded_report(prometheus, reported, now, timezone)
        incidents = period_incidents(list_incidents(self._data), report)
        return replace(report, incidents=tuple(incidents), incidents_known_from=now - KEEP_SECONDS)

    @property
    def _data(self) -> Path:
        return self.store.database.path.parent


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
    services: list[Service] = []

    def wake() -> None:
        for service in services:
            service.wake()

    parts = _Parts(
        args=args,
        clock=clock,
        wake=wake,
        channel_for=channel_for,
        transport=transport,
        audit=audit,
        store=store,
        instruments=Instruments(store, clock),
        alertmanagers=Alertmanagers(
            tuple(Alertmanager(_of_tenant(args, url, ALERTMANAGER_SECONDS)) for url in args.alertmanager),
            store,
        ),
        escalation=Escalation(args.escalate_after, args.escalate_to, settings.mention(args.mention)),
        sources=evidence_sources(args, clock),
    )
    chores, senders = list(parts.chores()), list(parts.senders())
    token_file = Secret(args.token_file) if args.token_file is not None else None
    webhook = Webhook(
        store,
        parts.instruments,
        clock,
        wake,
        token=token_file,
        ready=lambda: _not_ready(store),
        is_compared=parts.alertmanagers.compares,
    )
    server = listen(address, webhook, settings.server_certificates(args))
    services.append(Service(store, server, senders, clock, chores, parts.alertmanagers.listed))
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
        with Prometheus(_of_tenant(args, args.prometheus, SUMMARY_SECONDS)) as prometheus:
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


def _of_tenant(args: argparse.Namespace, url: str, timeout_seconds: float) -> Access:
    """Return how to reach a server that may have tenants: with the headers of the arguments."""
    return replace(_access(args, url, timeout_seconds), headers=tuple(map(header, args.header)))


def _prometheus(args: argparse.Namespace) -> Prometheus:
    return Prometheus(_of_tenant(args, args.prometheus, enrich.BUDGET_SECONDS))


def evidence_sources(args: argparse.Namespace, clock: Callable[[], float]) -> dict[str, enrich.Source]:
    """Return what the given servers are asked for, by name of the source."""
    sources: dict[str, enrich.Source] = {}
    if args.exporter:
        exporters = [_access(args, url, enrich.BUDGET_SECONDS) for url in args.exporter]
        sources["exporter"] = enrich.exporter(exporters)
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
