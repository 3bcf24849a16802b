"""On call: what fires, since when, what to do, and are notifications delivered?"""

from __future__ import annotations

from dataclasses import replace

from triton_dashboards import displays, shared
from triton_dashboards.query import RATE, BoardScope, or_zero, scope
from triton_dashboards.values import (
    Column,
    Dashboard,
    Display,
    LabelColumn,
    Link,
    Panel,
    Row,
    Stat,
    StateTimeline,
    Style,
    Table,
    Threshold,
    TimeSeries,
    fires,
)
from triton_exporter.catalogue import Metric
from triton_exporter.catalogue.external import stack
from triton_slo import bridge_series, links, signals
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.names import ALERTS, COMPONENT, OWNER, SEVERITY, SLO, UNKNOWN_ALERT

_CHOSEN = BoardScope(
    (f'{COMPONENT}!=""', f'{COMPONENT}=~"$component"', f'{OWNER}=~"$owner"', shared.OF_MODEL)
)
"""The alerts of this stack, as chosen by the variables."""


def dashboard(options: Options) -> Dashboard:
    return Dashboard(
        uid=links.ON_CALL,
        title="Triton / On call",
        description="Which alerts fire, since when, what to do, and are notifications delivered? If no "
        "alert is shown, this is reliable only while the Watchdog alert fires.",
        tags=shared.tags("on-call"),
        variables=shared.ON_CALL_VARIABLES,
        annotations=(
            shared.alert_annotation((shared.OF_MODEL,)),
            *shared.load_annotations(scope("", "model")),
        ),
        links=shared.links(options),
        rows=(
            Row("What fires now?", (*_alert_panels(), *_incident_panels(options.tuning), _firing(options))),
            Row("Since when?", _history_panels()),
            Row("Are notifications delivered?", _delivery()),
        ),
        time_from="now-24h",
    )


_TIERS = "The tiers of a budget are one alert."


def _alert_panels() -> tuple[Panel, ...]:
    heartbeat = f'max({ALERTS}{{alertname="Watchdog", alertstate="firing"}})'

    def counted(expr: str) -> str:
        return or_zero(f"count({expr})", heartbeat)

    lost = displays.FAULTS.when_empty("No Watchdog")
    return (
        Stat(
            "Watchdog",
            "The alert that always fires. If it is lost, Prometheus does not evaluate rules, and the "
            "absence of alerts means nothing. Metric: `ALERTS`.",
            # Zero even where every other series is missing, too: this panel shows exactly that.
            f"{heartbeat} or vector(0)",
            Display(words={0: ("Lost", "red"), 1: ("Alive", "green")}),
            sparkline=False,
        ),
        *(
            Stat(title, f"{lead} Metric: `ALERTS`.", counted(alerts), display)
            for title, lead, alerts, display in (
                ("Pages", f"Alerts of severity critical that fire. {_TIERS}", shared.pages(_CHOSEN), lost),
                (
                    "Tickets",
                    f"Alerts of severity warning that fire, without those that page. {_TIERS}",
                    shared.tickets(_CHOSEN),
                    displays.WARNINGS.when_empty("No Watchdog"),
                ),
                (
                    "Unknown",
                    "Objectives with unknown status (`TritonSLOUnknown` fires).",
                    _CHOSEN(ALERTS, shared.FIRING, f'alertname="{UNKNOWN_ALERT}"'),
                    lost,
                ),
            )
        ),
    )


def _incident_panels(tuning: Tuning) -> tuple[Panel, ...]:
    waiting = signals.UNDELIVERED_AGE.tuned(tuning)
    return (
        Stat(
            "Open incidents",
            "Incidents of the bridge that have not ended.",
            f"sum({bridge_series.OPEN_INCIDENTS})",
            displays.COUNT.when_empty("No bridge"),
        ),
        Stat(
            "Undelivered",
            "Incidents with a message that Slack has not accepted yet.",
            f"sum({bridge_series.UNDELIVERED})",
            displays.FAULTS.when_empty("No bridge"),
        ),
        Stat(
            "Oldest unsent",
            "Age of the oldest notification that Slack has not accepted. " + fires(waiting),
            f"max({waiting.expr(str)})",
            displays.aged(waiting, "No bridge"),
        ),
        Stat(
            "Bridge Watchdog",
            "Time since the bridge last received a Watchdog notification from Alertmanager.",
            f"time() - max({bridge_series.HEARTBEAT})",
            Display(
                "s",
                0,
                0,
                no_value="No bridge",
                thresholds=(Threshold("green"), Threshold("orange", 300), Threshold("red", 900)),
            ),
        ),
    )


def _firing(options: Options) -> Panel:
    keys = ", ".join(shared.ONE_ALERT)
    firing = _CHOSEN(ALERTS, shared.FIRING)
    since = f"min by ({keys}) ({_CHOSEN('ALERTS_FOR_STATE')} and ignoring (alertstate) {firing})"
    by_severity = " or ".join(
        f'label_replace({since} and {alerts(_CHOSEN)}, "{SEVERITY}", "{word}", "", "")'
        for word, alerts in (("critical", shared.pages), ("warning", shared.tickets))
    )
    runbook = Link("Runbook", links.runbook_url(options, shared.field("Alert")))
    model = shared.to(links.MODEL, "Model dashboard", model=shared.field("Model"))
    server = shared.to(links.SERVER, "Server dashboard", instance=shared.field("Server"))
    return Table(
        "Firing",
        f"Firing alerts, the newest last. {_TIERS} Click an alert for its runbook, a model or a server for its "
        "dashboard. Metrics: `ALERTS`, `ALERTS_FOR_STATE`.",
        (
            LabelColumn("alertname", "Alert", runbook, 300),
            LabelColumn(SEVERITY, colors={"critical": "red", "warning": "orange"}),
            LabelColumn(SLO, "Objective"),
            LabelColumn("model", link=model),
            LabelColumn("version"),
            LabelColumn("instance", "Server", server),
        ),
        (Column("Since", f"1000 * ({by_severity})", Display("dateTimeFromNow")),),
        sort_by="Since",
        descending=False,
        no_value="",
    )


def _history_panels() -> tuple[Panel, ...]:
    ranked = f"2 * {shared.pages(_CHOSEN)} or {shared.tickets(_CHOSEN)}"
    return (
        StateTimeline(
            "Alerts over time",
            "A band shows the time in which an alert fired, for any version, tier or server; red: the "
            "alert was a page. Metric: `ALERTS`.",
            {"{{alertname}} {{model}}": f"max by (alertname, model) ({ranked})"},
            displays.FIRING.when_empty("No alert fired"),
            height=9,
        ),
    )


def _increase_by(metric: Metric | str, by: str) -> str:
    return f"sum by ({by}) (increase({metric}[{RATE}])) > 0"


def _delivery() -> tuple[Panel, ...]:
    none = displays.COUNT.when_empty("None")
    failures = displays.FAILURES.when_empty("None")
    refused = (Style("not stored", "red"), Style("refused", "red", prefix=True))
    return (
        TimeSeries(
            "Notifications received",
            "Notifications that Alertmanager sent to the bridge.",
            {
                "{{outcome}}": _increase_by(bridge_series.RECEIVED, "outcome"),
                "refused with {{code}}": _increase_by(bridge_series.REJECTED, "code"),
                "not stored": _increase_by(bridge_series.STORE_FAILURES, "job"),
            },
            replace(none, no_value="No bridge", styles=refused),
            bars=True,
            width=8,
        ),
        TimeSeries(
            "Messages delivered",
            "Messages that Slack accepted.",
            {"{{kind}}": _increase_by(bridge_series.DELIVERED, "kind")},
            none,
            bars=True,
            width=8,
        ),
        TimeSeries(
            "Failed requests to Slack",
            "Requests to Slack that failed and are retried.",
            {"{{error}}": _increase_by(bridge_series.SEND_FAILURES, "error")},
            failures,
            bars=True,
            width=8,
        ),
        TimeSeries(
            "Failed notifications of Alertmanager",
            "Notifications that Alertmanager could not send to a receiver; needs a Prometheus that "
            f"scrapes Alertmanager. Metric: `{stack.AM_FAILED}`.",
            {"failed: {{integration}}": _increase_by(stack.AM_FAILED, "integration")},
            failures,
            bars=True,
        ),
        TimeSeries(
            "Missing evidence",
            "Queries for evidence (Prometheus, exporters) that were not answered in time, so that a page "
            "was posted without it.",
            {"{{source}}": _increase_by(bridge_series.ENRICHMENT_FAILURES, "source")},
            replace(displays.FAILURES, no_value="None", shade="orange"),
            bars=True,
        ),
    )
