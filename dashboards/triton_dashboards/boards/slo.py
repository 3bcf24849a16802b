"""Objectives: how much error budget is left, how fast does it burn, and what burned it?"""

from __future__ import annotations

from dataclasses import replace

from triton_dashboards import displays, shared
from triton_dashboards.objectives import BURN_WINDOWS, CAVEAT_WORDS, KEYS, READ, Objectives
from triton_dashboards.query import BoardScope, emptiest, or_last, or_zero, scope, worst
from triton_dashboards.values import (
    Color,
    Column,
    Dashboard,
    Display,
    LabelColumn,
    MetricNames,
    Panel,
    Query,
    Row,
    Stat,
    StateTimeline,
    Table,
    Threshold,
    TimeSeries,
)
from triton_exporter.catalogue import state
from triton_exporter.common.duration import DAY, parse_seconds
from triton_slo import links, names
from triton_slo.artifact import Options
from triton_slo.objective.model import WORKBOOK_TIERS
from triton_slo.sources import EXACT_SOURCES

_BURN = replace(displays.calm(displays.BURN), decimals=2)
_LEGEND = f"{{{{{names.SLO}}}}}: {{{{model}}}} {{{{version}}}}"


def dashboard(options: Options) -> Dashboard:
    groups = Objectives(scope("", "slo", "model", "version"), options.time_scale)
    return Dashboard(
        uid=links.SLO,
        title="Triton / Objectives",
        description="How much error budget is left, how high is the burn rate, and what are the causes? "
        "There is one budget per objective, model and version, over all servers. Needs the generated "
        "rules; a budget without data is counted as unknown, never as full.",
        tags=shared.tags("slo"),
        variables=(shared.OBJECTIVE, shared.OBJECTIVE_MODEL, shared.OBJECTIVE_VERSION),
        annotations=(
            shared.alert_annotation((shared.OF_MODEL,)),
            *shared.load_annotations(scope("", "model", "version")),
        ),
        links=shared.links(options),
        rows=(
            Row("How much budget is left?", (*_extremes(groups), *_counts(groups), _objective_table(groups))),
            Row("How fast does it burn?", _burn_panels(groups)),
            Row("Causes", _causes(groups)),
            Row("Over the period", _period(groups)),
            Row("Sources of the numbers", _details(groups), collapsed=True),
        ),
        time_from="now-24h",
    )


def _extremes(groups: Objectives) -> tuple[Panel, ...]:
    return (
        _current_number(
            "Least budget left",
            f"The smallest share of a period's error budget that is left; below 0 it is overspent. {displays.MATURE}",
            f"min({groups.budget_left()})",
            displays.BUDGET,
        ),
        _current_number(
            "Fastest burn",
            "The highest burn rate of the last minutes; at 1 the budget lasts exactly the period.",
            f"max({groups.burn_now()})",
            displays.BURN,
        ),
        _current_number(
            "Next budget to be spent",
            "Time until the first budget that is not yet spent is spent at the burn rate of the last hour.",
            f"min({groups.exhaustion()})",
            Display(
                "s",
                1,
                0,
                no_value="Nothing burns",
                thresholds=(Threshold("red"), Threshold("orange", DAY), Threshold("green", 7 * DAY)),
            ),
            reads=READ["budget"],
        ),
    )


def _counts(groups: Objectives) -> tuple[Panel, ...]:
    known = f"max({groups.targets()})"
    return (
        _current_number(
            "Burning now",
            "Number of budgets with a burn rate above 1.",
            or_zero(f"count({groups.burning()})", known),
            displays.WARNINGS.when_empty("No objective"),
            reads=READ["burning"],
        ),
        _current_number(
            "Overspent",
            "Budgets with nothing left.",
            or_zero(f"count({groups.budget_left()} <= 0)", known),
            displays.FAULTS.when_empty("No objective"),
            reads=READ["budget"],
        ),
        _current_number(
            "Unknown",
            "Groups without reliable data, and objectives without any group: their budget is unknown.",
            or_zero(f"count({groups.unknown()})", known),
            displays.FAULTS.when_empty("No objective"),
            reads=READ["unknown"],
        ),
    )


def _current_number(
    title: str, lead: str, expr: str, display: Display, reads: MetricNames | None = None
) -> Panel:
    """Return a panel of one number without a sparkline, whose range query over all groups would be slow."""
    return Stat(title, lead, [Query(expr, instant=True)], display, reads=reads, width=4, sparkline=False)


_CAVEAT_WORDS: dict[int, tuple[str, Color]] = {
    number: (word.capitalize(), "orange") for number, word in enumerate(CAVEAT_WORDS, 1)
}


def _objective_table(groups: Objectives) -> Panel:
    def by_key(expr: str, operator: str = "max") -> str:
        return f"{operator} by ({', '.join(KEYS)}) ({expr})"

    target = by_key(groups.targets())
    not_known = by_key(groups.unknown())
    # A group that vanished has no target any more.
    left = or_last(by_key(groups.budget_left(), "min"), f"({target} or {not_known})")
    shown = (
        Column("Target", target, Display("percentunit", 2), width=80),
        Column("Budget left", left, displays.BUDGET_CELL, colored=True, width=100),
        Column("Spent in", by_key(groups.exhaustion(), "min"), Display("s", 1), width=100),
        Column("Burn 5m", by_key(groups.burn_now()), _BURN, colored=True, width=85),
        Column("Burn 1h", by_key(groups.burn("1h")), _BURN, colored=True, width=85),
        Column("Burn 6h", by_key(groups.burn("6h")), _BURN, colored=True, width=85),
        Column("Burn 3d", by_key(groups.burn("3d")), _BURN, colored=True, width=85),
        Column("Unknown", not_known, Display(words={1: ("Unknown", "red")}), colored=True, width=85),
        Column("Caveat", by_key(groups.caveats()), Display(words=_CAVEAT_WORDS), colored=True, width=180),
        Column("Estimate error", by_key(groups.estimate_error()), Display("percentunit", 2), width=120),
    )
    link = shared.to(links.MODEL, "Model dashboard", model=shared.field("Model"))
    return Table(
        "Objectives",
        f"One row per error budget: the smallest budget left first, budgets without data last. {displays.MATURE} A "
        "burn rate is shown once there are data for a tenth of its window. Caveat: "
        "the source of the numbers misses some events, so the reality may be worse; `tritonwatch status` "
        "shows how to fix this. Estimate error: maximum error of the share of the last hour, in both "
        "directions.",
        (
            LabelColumn(names.SLO, "Objective", width=90),
            LabelColumn(names.INDICATOR, width=90),
            *(
                LabelColumn(label, link=link, width=150) if label == "model" else LabelColumn(label, width=75)
                for label in names.GROUPING
            ),
        ),
        shown,
        reads=READ["budget"],
        sort_by="Budget left",
        descending=False,
        height=9,
    )


def _burn_panels(groups: Objectives) -> tuple[Panel, ...]:
    period = parse_seconds("30d")
    colors: tuple[Color, ...] = ("text", "yellow", "orange", "red")
    lines = tuple(
        Threshold(color, tier.factor(period))
        for color, tier in zip(colors, reversed(WORKBOOK_TIERS), strict=True)
    )
    return (
        TimeSeries(
            "Burn rate by window, worst group",
            "The highest burn rate of the chosen objectives over each window of the alerts. "
            "Dashed: the burn rates at which the four tiers of a 30-day objective fire (1, 3, 6 and "
            "14.4). A tier fires when both of its windows are above its line.",
            [Query(groups.worst_burn(window), window) for window in BURN_WINDOWS],
            Display("short", no_value="No objective", thresholds=(Threshold("transparent"), *lines)),
            reads=READ["windows"],
            legend="right",
            calcs=("lastNotNull",),
            log=True,
            limit_line=True,
        ),
        TimeSeries(
            "Burn rate by group",
            "The ten groups with the highest burn rate over one hour at any time in the time range; only "
            "groups with a burn rate above 1.",
            {_LEGEND: worst(groups.overburn(), every="30m")},
            Display("short", no_value="Nothing burns"),
            log=True,
        ),
    )


def _causes(groups: Objectives) -> tuple[Panel, ...]:
    firing = (shared.FIRING, *groups.scope.matchers)
    pages, tickets = (
        BoardScope((*firing, f'{names.TIER}=~"{kind}_.+"'))(names.ALERTS) for kind in ("page", "ticket")
    )
    return (
        TimeSeries(
            "Causes",
            "Share of each cause, in the group in which the share is largest: queue and compute are "
            "shares of the request time; failures are grouped by reason; states are those of models that "
            "are not ready.",
            {f"{{{{{names.INDICATOR}}}}}: {{{{{names.CAUSE}}}}}": worst(groups.causes())},
            Display("percentunit", minimum=0, maximum=1, no_value="No cause recorded"),
        ),
        StateTimeline(
            "Burn alerts",
            "Burn alerts that fired, by tier: page_fast and page_slow are pages, the other tiers are "
            "tickets. "
            "Metric: `ALERTS`.",
            {
                f"{_LEGEND} {{{{{names.TIER}}}}}": f"max by ({names.SLO}, {names.TIER}, model, version) (2 * {pages} or {tickets})"
            },
            displays.FIRING.when_empty("No burn alert fired"),
            width=12,
            height=9,
        ),
    )


def _period(groups: Objectives) -> tuple[Panel, ...]:
    keyed = f"min by ({', '.join(KEYS)}) ({groups.budget_left()})"
    return (
        TimeSeries(
            "Budget left",
            "The ten smallest budgets left over the last 30 days; the axis ends at -100 % (a budget "
            "spent twice); the legend shows the values.",
            {_LEGEND: emptiest(keyed)},
            Display(
                "percentunit",
                minimum=-1,
                maximum=1,
                no_value="No objective",
                thresholds=(Threshold("red"), Threshold("transparent", 0)),
            ),
            limit_line=True,
            lowest_first=True,
            over="30d",
            every="3h",
        ),
        TimeSeries(
            "Events",
            "Events per second, total and failed: a ratio of 100 % means little with three requests.",
            {
                f"all, {{{{{names.SLO}}}}}": groups.events("total"),
                f"bad, {{{{{names.SLO}}}}}": groups.events("error"),
            },
            Display("short", minimum=0, no_value="No events"),
            legend="right",
            calcs=("lastNotNull",),
            log=True,
        ),
    )


def _details(groups: Objectives) -> tuple[Panel, ...]:
    signals = BoardScope(groups.scope.matchers[1:])(state.DISTRIBUTION_SOURCE)
    sources = f"max by (model, version, signal, source) ({signals}) == 1"
    return (
        Table(
            "What latency and queue budgets are computed from",
            f"Sources {' and '.join(EXACT_SOURCES)} are exact; the others are estimates.",
            (
                LabelColumn("model"),
                LabelColumn("version", width=70),
                LabelColumn("signal", width=80),
                LabelColumn("source"),
            ),
            labels_of=sources,
            width=8,
            sort_by="Model",
            descending=False,
        ),
        Table(
            "Targets",
            "Target, window and threshold of each objective, as configured in its file.",
            (
                LabelColumn(names.SLO, "Objective", width=100),
                *(LabelColumn(label, width=100) for label in ("target", "threshold", "window", "owner")),
                LabelColumn("description"),
            ),
            labels_of=groups.settings("owner", "target", "window", "threshold", "description"),
            width=16,
            sort_by="Objective",
            descending=False,
        ),
    )
