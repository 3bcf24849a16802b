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

Written by `make bench` (`tests/bench/bench_slo_proof.py`): promtool plays each scenario on our generated rules
and on rules in the shapes that Sloth 0.16 and Pyrra 0.10 emit, for one objective (99.9 % of requests without a
failure, over 30 days), scraped and evaluated every 30 s; our second rule group every four minutes, at the latest
moment that its interval allows. The upper half are the scenarios in which those two were measured to fail; the
lower half are our own.

*Pages* counts stretches of time in which any page fires. *Detection* and *reset* are minutes from the start of
the incident to the first page (or ticket, where a ticket is expected) and from its end to the end of the last page.
*Late* are alerts that begin after an incident is over. *Budget* is what is left of it at the end, as recorded.
What an evaluation costs is in [what the rules cost](rule-cost.md).
"""
_PAUSES = """
## While no rule is evaluated

Prometheus or vmalert restarts or is stopped: no rule of any engine is evaluated for these minutes, and where
Prometheus is down, nothing is scraped either. Played as the rows above.

"""
_TAIL = """
## Slower by choice

Two things are slower than Sloth's: a total outage at one request a minute is paged after its fifth failure, and a
ticket for burning twice too fast asks for significance. This is what the waiting buys: false alerts for each model
and month, where models fail at half of the pace that their budget allows (replayed, 50 models for 30 days).

{noise}
To be paged by the first failure, write `alerting: {{min_failures: 1, confidence: 0.5}}`.

## What is not solved

With less than about two failing requests a minute, or once no client is left, nothing shows a recovery: the short
window ends the alert, up to half an hour later. Outages so close that they count as bursts are held as one, so the
alert ends ten minutes after the last. And a severe incident that goes on mildly (1 % of 100 requests a minute) may
page, pause and page again, more often than Sloth's: one failure a minute does not show whether it has ended. Nor
do tickets remember that an incident is over, as pages do: at 100 requests a minute with rare failures all day, they
may come back for minutes while the hours of their windows drain. Of the first failures that a server ever counts,
long windows miss a scrape's share of an hour (0.8 % at 30 s): the ramp is paged half a minute after Sloth's.

## Budgets that no burn alert sees

Played by `tests/slo/burn/test_budget_alerts.py` with promtool, over a week in real time, on what is left of a
budget: two tickets, which a page about the same objective and group inhibits.

| what happens | expected | seen |
|---|---|---|
| 5 % of the budget a day, and less than 15 % is left | nearly spent | from the fifth day on |
| the same leak, half of the budget left | nothing | quiet |
| an incident took most of the rest and has ended; or the leak stops | nothing | quiet, or ended within a day |
| old failures leave the window | nothing | quiet |
| a leak in a calendar month that ends before the budget does, or has just begun | nothing | quiet |
| spent by failures too rare for a burn alert, also in a calendar month | spent unnoticed | after 6 h, for a day |
| the same, and a burn alert fired on the way | nothing | quiet |
| one failure of few requests is more than the budget | nothing | quiet |
| spent, and the group is retired | nothing | quiet |

## Rollouts, run live

Played by `tests/slo/burn/test_rollouts_real.py` with real Tritons, an exporter beside each, a real Prometheus that
finds them in a file, and the generated rules in a time scale of 1:100 (unknown after 24 s without data). The
objectives are errors by version, errors by version and server, and readiness. `tests/slo/burn/test_retired.py`
plays the same and more with promtool in real time.

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

Seen by promtool only: a model that vanishes with all its versions and servers pages for each version that still
served, and a version that was replaced earlier does not. A model that leaves a running Triton counts as
unloaded, also where its files are removed at once (`tests/exporters/lifecycle/test_lifecycle.py`), unless it was
the only one: then the repository may be lost. A model that is renamed, or moved off a server, across a restart and
without an unload, looks like one that vanished: it pages until it has been gone for a day. Unload it first.

Servers that restart in place, one after the other, page nobody as long as half of them are ready and none is
away for ten minutes (`tests/slo/burn/test_rolling_restart.py`, in real time: three servers of a minute or six
each, two of five minutes). The time still spends budget of `readiness`, and raises tickets. More than half of the
servers at once, or one for longer, pages. Groups of one server (`group_by` with `instance`) page as a single server
does.
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
    """The whole page."""
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
    """What each engine does where no rule is evaluated for a while."""
    return _PAUSES + rows(pauses, paused)


def rows(scenarios: Sequence[Scenario], outcomes: Outcomes) -> str:
    """A table, a scenario a row."""
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
    """The budget left by arithmetic, where the scenario knows its error ratio."""
    return None if scenario.true_ratio is None else 1 - scenario.true_ratio / (1 - OBJECTIVE.target)
