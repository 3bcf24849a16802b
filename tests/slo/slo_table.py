"""Write the table of docs/slo-proof.md from promtool's results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slo import slo_estimates
from slo.slo_low_traffic import Noise, noise_table
from slo.slo_scenarios import OBJECTIVE, Outcome, Scenario
from triton_slo.burn.amounts import budget_left

ENGINES = ("tritonwatch", "Sloth", "Pyrra")
_HEAD = """# Alerts compared with Sloth and Pyrra

This page shows which alerts fire in the same incidents with our rules, with those of Sloth and with those of
Pyrra. What an evaluation costs is in [what the rules cost](rule-cost.md).

`make bench` writes this page (`tests/bench/bench_slo_proof.py`). promtool runs each scenario on our generated
rules and on rules in the form that Sloth 0.16 and Pyrra 0.10 write, for one objective (99.9 % of requests without
a failure, over 30 days). Scrapes and evaluations are every 30 s; our second rule group is evaluated every four
minutes, as late as its interval allows. In the upper half of the table are scenarios in which Sloth or Pyrra
failed; the lower half are our own.

- *Pages* is the number of periods in which any page fires.
- *Detected* is the time in minutes from the start of the incident to the first page (or ticket, if a ticket is
  expected), and *reset* from the end of the incident to the end of the last page.
- *Late* is the number of alerts that start after the incident has ended.
- *Budget* is the recorded error budget that is left at the end.
"""
_PAUSES = """
## While no rule is evaluated

In these scenarios, Prometheus or vmalert restarts or is stopped. No rule of any engine is evaluated for these
minutes, and while Prometheus is down, nothing is scraped either. Otherwise, the scenarios run like those above.

"""
_TAIL = """
## Slower by choice

In two cases our rules are slower than Sloth's, to avoid false alerts: a total outage at one request a minute
pages after its fifth failure, and a ticket for a burn rate of 2 needs statistical significance. The next table
shows the number of false alerts for each model and month, if models fail at half of the rate that their budget
allows (replayed, 50 models for 30 days).

{noise}
To get a page for the first failure, write `alerting: {{min_failures: 1, confidence: 0.5}}`.

## What is not solved

- **Recovery with few failures.** With fewer than about two failed requests a minute, or when no client is left,
  nothing shows a recovery. The alert then ends with its short window, up to half an hour later.
- **Outages with short pauses** count as one incident, so the alert ends ten minutes after the last outage.
- **A severe incident that continues mildly** (1 % of 100 requests a minute) may page, resolve and page again,
  more often than with Sloth's rules, because one failure a minute does not show whether the incident has ended.
- **Tickets after an incident.** At 100 requests a minute with rare failures all day, tickets may fire again for
  minutes while the incident leaves their long windows; pages do not.
- **The first failures of a server.** Long windows miss the share of one scrape in an hour (0.8 % at 30 s), so the
  ramp above pages half a minute later than with Sloth's rules.

## Budgets that no burn alert sees

`tests/slo/burn/test_budget_alerts.py` runs these scenarios with promtool, over a week in real time. They are
about the two tickets on the budget left, which a page about the same objective and group inhibits.

| what happens | expected | result |
|---|---|---|
| 5 % of the budget a day, and less than 15 % is left | nearly spent | from the fifth day on |
| the same leak, half of the budget left | nothing | quiet |
| an incident took most of the rest and has ended; or the leak stops | nothing | quiet, or ended within a day |
| old failures leave the window | nothing | quiet |
| a leak in a calendar month that ends before the budget is spent, or that has just begun | nothing | quiet |
| spent by failures too rare for a burn alert, also in a calendar month | spent unnoticed | after 6 h, for a day |
| the same, and a burn alert fired on the way | nothing | quiet |
| one failure of few requests is more than the budget | nothing | quiet |
| spent, and the group is retired | nothing | quiet |

## Rollouts of real servers

`tests/slo/burn/test_rollouts_real.py` runs real Tritons with an exporter beside each, a real Prometheus that
reads their addresses from a file, and the generated rules in a time scale of 1:100 (a group is unknown after 24 s
without data). The objectives are errors by version, errors by version and server, and readiness.
`tests/slo/burn/test_retired.py` runs the same and more scenarios with promtool in real time.

| what happens | pages before | pages now |
|---|---|---|
| Triton restarts with versions 2 and 3, not 1 and 2; later its exporter, without `--expect` | version 1 | none |
| a new version is loaded beside the old one; later Triton restarts without the old one | version 1 | none |
| a model is unloaded; later its files are removed, and Triton and exporter restart | the model, then | none |
| two servers of a model become one | its groups by server | none |
| the exporter is found at another address | all groups by server | none |
| a model is no longer in the repository when Triton restarts | the model | the model |
| a model vanishes with its only server and exporter | the model | the model |
| Triton and exporter restart without one of the models | the model | the model |

- **A model that disappears** with all its versions and servers pages for each version that still served; a
  version that was replaced earlier does not page (tested with promtool only).
- **A model that leaves a running Triton** counts as unloaded, even if its files are removed at the same time
  (`tests/exporters/lifecycle/test_lifecycle.py`). This does not apply to the only model, because the repository
  may be lost.
- **A model that is renamed or moved** to another server during a restart, without an unload, looks like a model
  that disappeared: it pages until it has been gone for a day. Unload it first.
- **Servers that restart one after the other** do not page while half of them are ready and none is away for ten
  minutes (`tests/slo/burn/test_rolling_restart.py`, in real time: three servers for one or six minutes each, two
  servers for five minutes). The time still spends the budget of `readiness` and raises tickets. A page fires if
  more than half of the servers are away at once, or one for longer. Groups of one server (`group_by` with
  `instance`) page like a single server.
"""


Outcomes = Mapping[str, Sequence[Outcome]]
"""By engine, in the order of the scenarios."""


def table(
    scenarios: Sequence[Scenario],
    outcomes: Outcomes,
    pauses: Sequence[Scenario],
    paused: Outcomes,
    noise: Sequence[Noise],
) -> str:
    """Return the whole page."""
    return "\n".join(
        (
            _HEAD,
            rows(scenarios, outcomes)
            + pauses_section(pauses, paused)
            + slo_estimates.section()
            + _TAIL.format(noise=noise_table(noise)),
        )
    )


def pauses_section(pauses: Sequence[Scenario], paused: Outcomes) -> str:
    """Return what each engine does where no rule is evaluated for a while."""
    return _PAUSES + rows(pauses, paused)


def rows(scenarios: Sequence[Scenario], outcomes: Outcomes) -> str:
    """Return a table, a scenario a row."""
    lines = ["| scenario | expected | " + " | ".join(ENGINES) + " |", "|---|---|" + "---|" * len(ENGINES)]
    for number, scenario in enumerate(scenarios):
        cells = [describe(scenario, outcomes[engine][number]) for engine in ENGINES]
        lines.append(f"| {scenario.name} | {scenario.expected} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def describe(scenario: Scenario, outcome: Outcome) -> str:
    """One engine's cell."""
    parts = []
    if scenario.expected in ("nothing", "budget"):
        count = f"{len(outcome.pages)} pages, {len(outcome.tickets)} tickets"
        parts.append("quiet" if not (outcome.pages or outcome.tickets) else count)
    else:
        parts.append(_reaction(scenario, outcome))
    if outcome.budget is None:
        parts.append("budget unknown")
    else:
        parts.append(f"budget {'NaN' if math.isnan(outcome.budget) else budget_left(outcome.budget)}")
    return ", ".join(parts)


def _reaction(scenario: Scenario, outcome: Outcome) -> str:
    first, last = scenario.incidents[0][0], scenario.incidents[-1][1]
    alerts = outcome.tickets if scenario.expected == "ticket" else outcome.pages
    if not alerts:
        return "**missed**"
    printed = f"{len(outcome.pages)} pages" if len(outcome.pages) != 1 else "1 page"
    printed += f", detected +{alerts[0][0] - first:.0f}"
    if last < scenario.minutes:
        printed += f", reset +{max(0.0, alerts[-1][1] + 1 - last):.0f}"
    return printed + (f", {count} late" if (count := late(scenario, outcome)) else "")


def late(scenario: Scenario, outcome: Outcome) -> int:
    """Return the alerts that begin at least a minute after every incident so far has ended."""
    return sum(
        not any(start <= began <= end + 1 for start, end in scenario.incidents)
        for began, _ in (*outcome.pages, *outcome.tickets)
    )


def true_budget(scenario: Scenario) -> float | None:
    """Return the budget left by arithmetic, where the scenario knows its error ratio."""
    return None if scenario.true_ratio is None else 1 - scenario.true_ratio / (1 - OBJECTIVE.target)
