"""The table of all alerts, docs/alerts.md: `python -m triton_alerts.reference > docs/alerts.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from triton_alerts.alert import Alert
from triton_alerts.catalogue import ALERTS
from triton_slo.alert_settings import NEARLY_SPENT, SPENT, UNMEASURED
from triton_slo.indicators import BURN_ALERTS

_INTRO = """\
# Alerts

<!-- Written by `python -m triton_alerts.reference`. A test compares it; edit the catalogue, not this page. -->

The numbers are defaults, which [alerts.yaml](alert-settings.md) changes for all models or for some. The expressions
are in [`alerts/generated/rules`](../alerts/generated/rules), routes and inhibitions in
[`alerts/generated/alertmanager`](../alerts/generated/alertmanager/alertmanager.yml).

| severity | what happens |
|---|---|
| `critical` | a page: a person is called now |
| `warning` | a ticket: somebody acts on it today |
| `info` | nothing is sent; dashboards and Alertmanager's own page show it |
| `none` | the watchdog, which always fires |

An alert is a page only when one of these is true; everything else is a ticket:

1. **Redundancy is gone.** No server of a job is live, a model is ready on no server, a server is down whose
   models no other server serves, no exporter answers. One server, replica, GPU or exporter of several is a ticket;
   where there is only one, its failure is the page.
2. **An error budget burns** so fast that it must be stopped now (the page tiers of an objective), or nothing is
   known of a model that should be served (`TritonModelExporterDown`, `TritonSLOUnknown`). A ticket that spreads to
   users becomes a page this way.
   The budget of `readiness` pages only while more than half of a model's servers are not ready. Where it pages for a
   model, the server that is down does not page for this model, too.
3. **Requests hang where no budget can see it.** A hung model or engine stays ready and keeps receiving its share of
   the requests, which never complete, so that no counter moves.
4. **Notifications do not reach people.** Where the alert itself could not be delivered either (no Alertmanager is
   left), it is a ticket: only the watchdog's silence reports that.

| alert | severity | fires when | runbook |
|---|---|---|---|
"""


def page() -> str:
    return _INTRO + "".join(f"{row}\n" for row in _rows())


def _rows() -> Iterator[str]:
    for alert in ALERTS:
        yield _row(alert.name, f"`{alert.severity}`", _condition(alert), alert.for_)
    for name in dict.fromkeys(BURN_ALERTS.values()):
        severity = "`critical` (page tiers), `warning` (ticket tiers)"
        kinds = " or ".join(f"`{kind}`" for kind, of_kind in BURN_ALERTS.items() if of_kind == name)
        yield _row(name, severity, f"The budget of an objective with the indicator {kinds} burns too fast")
    wrong = "A setting leaves an objective without data: no bucket at its threshold, a histogram that is not stored"
    yield _row(UNMEASURED.name, f"`{UNMEASURED.severity}`", wrong, UNMEASURED.for_)
    assert NEARLY_SPENT.threshold is not None
    least = NEARLY_SPENT.threshold.words
    nearly = f"A budget lasts less than {least} at the pace of the last day, and of the two days before"
    unnoticed = "A budget was spent in the last day, and no burn alert fired"
    for ticket, condition in ((NEARLY_SPENT, nearly), (SPENT, unnoticed)):
        yield _row(ticket.name, f"`{ticket.severity}`", condition, ticket.for_)


def _condition(alert: Alert) -> str:
    words = _readable(alert.with_numbers(alert.summary)).replace("|", "\\|")
    if alert.threshold:
        words += f" ({alert.threshold.of} {alert.threshold.condition})"
    return words


def _row(name: str, severity: str, condition: str, duration: str = "") -> str:
    lasting = f", for {duration}" if duration and duration not in condition else ""
    return f"| `{name}` | {severity} | {condition}{lasting} | [runbook](../alerts/runbooks/{name}.md) |"


def _readable(text: str) -> str:
    """Return a template as a reader sees it: labels by name, values as `value`."""
    text = re.sub(r"\{\{ with \$labels\.(\w+) \}\}([^{}]*)\{\{ \. \}\}\{\{ end \}\}", r"\2`\1`", text)
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", text)
    text = re.sub(r"\{\{ [^{}]*\$value[^{}]*\}\}", "`value`", text)
    return re.sub(r"\[(\d+\w)\]", r"\1", text)


if __name__ == "__main__":
    sys.stdout.write(page())
