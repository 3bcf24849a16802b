"""Write the table of docs/slo-proof.md from promtool's results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slo.slo_scenarios import OBJECTIVE, Outcome, Scenario
from triton_slo.amounts import budget_left

ENGINES = ("tritonwatch", "Sloth", "Pyrra")
_HEAD = """# Alerts compared with Sloth and Pyrra

This page shows which alerts fire in the same incidents with our rules, with those of Sloth and with those of Pyrra.

`make bench` writes this page (`tests/bench/bench_slo_proof.py`). promtool runs each scenario on our generated
rules and on rules in the form that Sloth 0.16 and Pyrra 0.10 write, for one objective (99.9 % of requests without
a failure, over 30 days). Where Go is, `make bench` also builds the real Sloth 0.16 and compares its expressions with
that form: they are equal (`tests/bench/bench_beside_sloth.py`, which also measures
[what both cost](measurements.md#cost-of-the-rules-beside-sloth)). Scrapes and evaluations are every 30 s; our second rule group is evaluated every four
minutes, as late as its interval allows. In the upper half of the table are scenarios in which Sloth or Pyrra
failed; the lower half are our own.

- *Pages* is the number of periods in which any page fires.
- *Detected* is the time in minutes from the start of the incident to the first page (or ticket, if a ticket is
  expected), and *reset* from the end of the incident to the end of the last page.
- *Late* is the number of alerts that start after the incident has ended.
- *Budget* is the recorded error budget that is left at the end.

What is given up on purpose: a page ends some minutes after its incident (bursts every few minutes are one page), a
ticket some hours after it; a pause of the rules of over an hour loses its events; a total outage at one request a
minute pages after its fifth failure.
"""
_PAUSES = """
## While no rule is evaluated

In these scenarios, Prometheus or vmalert restarts or is stopped. No rule of any engine is evaluated for these
minutes, and while Prometheus is down, nothing is scraped either. Otherwise, the scenarios run like those above.

"""
Outcomes = Mapping[str, Sequence[Outcome]]
"""By engine, in the order of the scenarios."""


def table(
    scenarios: Sequence[Scenario], outcomes: Outcomes, pauses: Sequence[Scenario], paused: Outcomes
) -> str:
    """Return the whole page."""
    return "\n".join((_HEAD, rows(scenarios, outcomes), pauses_section(pauses, paused)))


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
