"""The reference of all alerts, docs/alerts.md: `python -m triton_alerts.reference > docs/alerts.md`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from triton_alerts.alert import Alert
from triton_alerts.alertmanager.inhibition import INHIBITIONS
from triton_alerts.catalogue import FAMILIES
from triton_alerts.rules.alert_rules import rule
from triton_slo import names
from triton_slo.alert_settings.tunable import NEARLY_SPENT, OF_OBJECTIVES, SPENT, UNKNOWN
from triton_slo.artifact import Options
from triton_slo.burn.condition_words import explained
from triton_slo.indicators import BURN_ALERTS, Errors
from triton_slo.objective.model import Objective, Unknown
from triton_slo.promql import Matchers
from triton_slo.rules.plan import Plan

_INTRO = """\
# Alerts

<!-- Written by `python -m triton_alerts.reference`. A test compares it; edit the catalogue, not this page. -->

{count} alerts in {families} families, and the burn alerts that the objectives make. Each has a
[runbook](../alerts/runbooks/README.md). The proofs in `tests/alerts/proofs` show with promtool that each alert
fires and stays quiet, at its boundary, without series and across resets; a test fails if an alert lacks one.

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
2. **An error budget burns** so fast that it must be stopped now (the page tiers of an objective), or whether
   it burns is unknown (`TritonSLOUnknown`). A ticket that spreads to users becomes a page this way.
   The budget of `readiness` pages only where redundancy is gone as well, or one server is away for ten minutes.
3. **Requests hang where no budget can see it.** A hung model or engine stays ready and keeps receiving its share of
   the requests, which never complete, so that no counter moves.
4. **Notifications do not reach people.** Where the alert itself could not be delivered either (no Alertmanager is
   left), it is a ticket: only the watchdog's silence reports that.

A ticket never silences a page.

## All alerts

{table}

Every alert carries the labels `severity`, `component` (the family) and `owner`, and the annotations `summary`,
`description`, `action` (the first thing to do), `runbook_url`, `dashboard_url` and, where it can be known,
`cause`. Times are at real time; `tritonwatch generate --time-scale` shrinks them all.

A value that varies around a threshold is one alert, not twenty: if an alert has a second, easier condition (joined
with `ALERTS`), a firing alert continues while that condition is true, and every page and ticket continues for some
minutes after its condition. `tests/alerts/test_alert_noise.py` plays a day of a healthy fleet, in which no alert
changes more than twice. The second condition has no effect if vmalert does not write `ALERTS` to the storage that
it reads, or if the evaluation interval of Prometheus 3 is 5 minutes or more.
"""

_ROUTES = """\
## Where alerts are sent

`tritonwatch generate` writes `alertmanager/alertmanager.yml` with these routes, first match wins:

| route | alerts | grouped by |
|---|---|---|
| watchdog | `Watchdog`: a ping every minute to the bridge, and to `--watchdog-url` outside the stack | alert |
| fallback | alerts about the delivery to Slack, to `--fallback` and the bridge | alert |
| page-to | `critical`, to each `--page-to` and the bridge | model, else server |
| ticket-to | `warning`, to each `--ticket-to` and the bridge, in `--ticket-hours` if set | model, else server |
| info | `info` and `none`: nowhere | |
| bridge | `critical`, and `warning`, which has a child route with `--ticket-hours` | model, else server |

What Alertmanager itself does not do:

* A ticket that resolves outside its hours, or any alert that resolves while it is silenced, is not reported: the
  group forgets it.
* After its own restart it sends old alerts at once, perhaps a consequence before its cause. 0.30 and later
  wait when started with `--dispatch.start-delay=1m`.
* An alert that fires and resolves while the receiver is away is never reported. This is why the bridge stores
  a notification before it acknowledges it, and why delivery has alerts of its own.

All of them go to the webhook of the bridge, whose bearer token is read from
`--webhook-token-file`. No secret is ever written into the configuration.

## Lint your own rules

`tritonwatch check my-rules.yml` finds in any rule file or PrometheusRule what `promtool check rules` accepts in
silence: {checks}.
"""


def page() -> str:
    """Return the whole page."""
    count = sum(len(alerts) for alerts in FAMILIES.values())
    parts = [_INTRO.format(count=count, families=len(FAMILIES), table="\n".join(_alert_table()))]
    parts += ["\n".join(_thresholds())]
    parts += ["\n".join(_family_section(name, alerts)) for name, alerts in FAMILIES.items()]
    parts += ["\n".join(_burn_alerts()), "\n".join(_inhibitions()), _ROUTES.format(checks=_checks())]
    return "\n".join(parts)


def _alert_table() -> Iterator[str]:
    yield "| alert | severity | fires when | for |\n|---|---|---|---|"
    for alert in (alert for alerts in FAMILIES.values() for alert in alerts):
        condition = _readable(alert.with_numbers(alert.summary)).replace("|", "\\|")
        yield f"| {_runbook_link(alert.name)} | `{alert.severity}` | {condition} | {alert.for_ or 'at once'} |"
    for indicator, name in BURN_ALERTS.items():
        condition = f"The budget of a {indicator.replace('_', ' ')} objective burns too fast"
        severities = "`critical` (page tiers), `warning` (ticket tiers)"
        yield f"| {_runbook_link(name)} | {severities} | {condition} | two windows |"
    unknown = f"| {_runbook_link(UNKNOWN.name)} | `{UNKNOWN.severity}`, or as the objective sets it"
    yield f"{unknown} | An objective has no data that can be trusted | {Unknown().after} |"
    assert NEARLY_SPENT.threshold is not None
    least = NEARLY_SPENT.threshold.words
    nearly = f"A budget lasts less than {least} at the pace of the last day, and of the two days before"
    unnoticed = "A budget was spent in the last day, and no burn alert fired"
    for ticket, condition in ((NEARLY_SPENT, nearly), (SPENT, unnoticed)):
        yield f"| {_runbook_link(ticket.name)} | `{ticket.severity}` | {condition} | {ticket.for_} |"


def _thresholds() -> Iterator[str]:
    yield "## Thresholds\n"
    yield (
        "Each number below is the default. It is written once, for the rule, its texts and the panel that draws "
        "it, and [alerts.yaml](alert-settings.md) changes it for all models or for some.\n"
    )
    yield "| alert | fires | compared | why |\n|---|---|---|---|"
    for alert in (*(alert for alerts in FAMILIES.values() for alert in alerts), *OF_OBJECTIVES):
        if alert.threshold:
            threshold = alert.threshold
            yield f"| {_runbook_link(alert.name)} | {threshold.condition} | {threshold.of} | {threshold.why} |"
    yield ""


def _family_section(name: str, alerts: Iterable[Alert]) -> Iterator[str]:
    yield f"## {name}\n"
    for alert in alerts:
        yield f"### {_runbook_link(alert.name)}\n"
        yield f"{_readable(alert.with_numbers(alert.description))}\n"
        yield f"* **First:** {_readable(alert.action)}"
        yield from (f"* **First, if `{cause}`:** {step}" for cause, step in alert.steps)
        yield f"* {_alert_properties(alert)}"
        yield f"* Identified by the labels {_label_list(alert.labels)}. Silence by {alert.silence}.\n"
        yield f"```promql\n{rule(alert, Options()).expr}\n```\n"


def _alert_properties(alert: Alert) -> str:
    facts = [f"`{alert.severity}`", f"owner `{alert.owner}`"]
    if alert.threshold:
        facts.append(f"threshold {alert.threshold.words}")
    if alert.for_:
        facts.append(f"after {alert.for_}")
    if alert.until:
        facts.append("ends by an easier condition")
    if alert.keep_firing_for:
        facts.append(f"keeps firing for {alert.keep_firing_for}")
    return ", ".join(facts)


def _label_list(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels) or "nothing: there is one"


def _burn_alerts() -> Iterator[str]:
    yield "## slo\n"
    yield "Made from the objectives, four tiers each: `page_fast`, `page_slow`, `ticket_fast`, `ticket_slow`.\n"
    yield from _conditions()


def _conditions() -> Iterator[str]:
    """Yield the parts of a page's and of a ticket's condition, by default."""
    plan = Plan(Objective(name="errors", target=0.999, indicator=Errors()), Options())
    yield (
        "The parts of the condition are recorded series that exist, with the value 1, while a part is true. By "
        f"default, for an `errors` objective over {plan.objective.window.nominal}:\n"
    )
    for tier in (plan.objective.alerting.tiers[0], plan.objective.alerting.tiers[-1]):
        yield f"`{tier.name}` ({tier.long} and {tier.short}):\n"
        yield "| series | true while | that is |\n|---|---|---|"
        yield from (f"| `{name}` | {meaning} | {words} |" for name, meaning, words in explained(plan, tier))
        yield ""
    yield from _estimated_condition()


def _estimated_condition() -> Iterator[str]:
    indicator = {"kind": "latency", "threshold": "1s"}
    plan = Plan(Objective.model_validate({"name": "x", "target": 0.99, "indicator": indicator}), Options())
    tier = plan.objective.alerting.tiers[0]
    yield (
        "Pages of `latency` and `queue` objectives, whose shares may be estimated, also ask for the error of the "
        f"estimate; `{tier.name}`:\n"
    )
    yield "| series | true while | that is |\n|---|---|---|"
    series = names.burn_part("within_error"), names.burn_part("enough")
    for name, meaning, words in explained(plan, tier):
        if name in series:
            yield f"| `{name}` | {meaning} | {words} |"
    yield ""


def _inhibitions() -> Iterator[str]:
    yield "## What silences what\n"
    yield "| while this fires | these are not sent | on the same | why |\n|---|---|---|---|"
    for inhibition in INHIBITIONS:
        sides = " | ".join(_matchers(side) for side in (inhibition.source, inhibition.target))
        yield f"| {sides} | {_label_list(inhibition.equal) if inhibition.equal else 'stack'} | {inhibition.why} |"
    yield ""


def _matchers(side: tuple[str, ...]) -> str:
    texts = [
        value.strip('"').replace("|", ", ") if label == "alertname" else matcher.replace("|", " or ")
        for matcher, (label, _, value) in zip(side, Matchers(side).split, strict=True)
    ]
    return " and ".join(texts)


def _checks() -> str:
    from triton_alerts.rules import alert_lint  # promql-parser is needed for this alone

    return ", ".join(check.__name__.replace("_", " ") for check in alert_lint.CHECKS) + ", duplicates"


def _readable(text: str) -> str:
    """Return a template as a reader sees it: labels by name, values as `value`."""
    text = re.sub(r"\{\{ with \$labels\.(\w+) \}\}([^{}]*)\{\{ \. \}\}\{\{ end \}\}", r"\2`\1`", text)
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", text)
    text = re.sub(r"\{\{ [^{}]*\$value[^{}]*\}\}", "`value`", text)
    return re.sub(r"\[(\d+\w)\]", r"\1", text)


def _runbook_link(name: str) -> str:
    return f"[{name}](../alerts/runbooks/{name}.md)"


if __name__ == "__main__":
    sys.stdout.write(page())
