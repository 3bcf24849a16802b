"""Objectives: how much error budget is left, how fast does it burn, and what burned it?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from triton_dashboards import displays, shared
from triton_dashboards.about import MetricNames
from triton_dashboards.query import BoardScope, emptiest, or_last, or_zero, scope, summed, total, worst
from triton_dashboards.recording import BURN_WINDOWS
from triton_dashboards.values import (
    Color,
    Column,
    Dashboard,
    Display,
    LabelColumn,
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
from triton_slo import links
from triton_slo.artifact import Options
from triton_slo.indicators import KINDS
from triton_slo.indicators.common.sources import CAVEATS, EXACT_SOURCES
from triton_slo.names import (
    ALERTS,
    CAUSE,
    CAUSE_SHARE,
    CURRENT_BURN_RATE,
    ERROR_BUDGET_RATIO,
    ESTIMATE_ERROR,
    EVENT,
    GROUPING,
    INDICATOR,
    INFO,
    LAST_SEEN,
    OBJECTIVE_EVENTS,
    OBJECTIVE_RATIO,
    OVERBURN,
    PERIOD_BUDGET_REMAINING,
    PERIOD_BURN_RATE,
    PERIOD_DAYS,
    REASON,
    RECORDED_HERE,
    RETIRED,
    SLI_SOURCE,
    SLO,
    SOURCE,
    TIER,
    UNKNOWN,
    WORST_CAUSE,
    sli_error,
    sli_events,
    worst_burn,
)
from triton_slo.objective.model import SUSTAINABLE, WORKBOOK_TIERS

KEYS = (SLO, INDICATOR, *GROUPING)
"""Labels that identify one error budget."""
_GROUPS = ("model", "version")
"""Variables that choose groups of an objective."""
_BURN = replace(displays.calm(displays.BURN), decimals=2)
_LEGEND = f"{{{{{SLO}}}}}: {{{{model}}}} {{{{version}}}}"


def burn(within: BoardScope, window: str) -> str:
    """Return the burn rate over a window: error ratio over the ratio that the objective allows."""
    return f"{within(sli_error(window))} / on ({', '.join(KEYS)}) group_left () {within(ERROR_BUDGET_RATIO)}"


def exhaustion(within: BoardScope) -> str:
    """Return the seconds until the budget is spent: the budget left over the burn rate of the last hour.

    Errors that leave a rolling window meanwhile are not counted, so this is the earliest time.
    """
    keys = ", ".join(KEYS)
    left = f"clamp_min({within(PERIOD_BUDGET_REMAINING)}, 0)"
    # The period belongs to the objective: it is recorded without model and version.
    days = BoardScope((within.matchers[0], RECORDED_HERE))(PERIOD_DAYS)
    period = f"on ({SLO}, {INDICATOR}) group_left () ({days} * {DAY})"
    return f"{left} * {period} / on ({keys}) (({burn(within, '1h')}) > 0)"


def targets(within: BoardScope) -> str:
    """Return a query of the targets of the groups that `tritonwatch status` lists.

    It leaves out groups to which nothing ever happened: those that were unloaded on purpose or replaced, and a
    model's group without a version, once its versions are recorded.
    """
    retired = f"{within(RETIRED)} >= {within(LAST_SEEN)}"
    without, with_version = (within(LAST_SEEN, f'version{operator}""') for operator in ("=", "!="))
    replaced = f"{without} and ignoring (version) {with_version}"
    left_out = f"({retired} or {replaced}) unless {within(PERIOD_BURN_RATE)}"
    return f"{within(OBJECTIVE_RATIO)} unless ({left_out} unless ignoring ({REASON}) {within(UNKNOWN)})"


def unknown(within: BoardScope) -> str:
    """Return a query of groups whose data cannot be trusted, and objectives of which no group is listed."""
    groups = f"({targets(within)} or {within(UNKNOWN)})"
    return f"{within(UNKNOWN)} or ({within(INFO)} unless on ({SLO}) {groups})"


def dashboard(options: Options) -> Dashboard:
    """Make the dashboard."""
    within = scope(RECORDED_HERE, "slo", "model", "version")
    return Dashboard(
        uid=links.SLO,
        title="Triton / Objectives",
        description="How much error budget is left, how high is the burn rate, and what are the causes? "
        "There is one budget per objective, model and version, over all servers. Needs the generated "
        "rules; a budget without data is counted as unknown, never as full.",
        tags=shared.tags("slo"),
        variables=(*shared.OBJECTIVE, shared.OBJECTIVE_MODEL, shared.OBJECTIVE_VERSION),
        annotations=(
            shared.alert_annotation((shared.OF_MODEL,)),
            *shared.load_annotations(scope("", "model", "version")),
        ),
        links=shared.links(options),
        rows=(
            Row("How much budget is left?", (*_extremes(within), *_counts(within), _objective_table(within))),
            Row("How fast does it burn?", _burn_panels(within)),
            Row("Causes", _causes(within)),
            Row("Over the period", _period(within)),
            Row("Sources of the numbers", _details(within), collapsed=True),
        ),
        time_from="now-24h",
    )


def _extremes(within: BoardScope) -> tuple[Panel, ...]:
    return (
        _current_number(
            "Least budget left",
            "The smallest share of a period's error budget that is left; below 0 it is overspent.",
            f"min({within(PERIOD_BUDGET_REMAINING)})",
            displays.BUDGET,
        ),
        _current_number(
            "Fastest burn",
            "The highest burn rate of the last minutes; at 1 the budget lasts exactly the period.",
            f"max({within(CURRENT_BURN_RATE)})",
            displays.BURN,
        ),
        _current_number(
            "Next budget to be spent",
            "Time until the first budget is spent at the burn rate of the last hour.",
            f"min({exhaustion(within)})",
            Display(
                "s",
                1,
                0,
                no_value="Nothing burns",
                thresholds=(Threshold("red"), Threshold("orange", DAY), Threshold("green", 7 * DAY)),
            ),
            reads=(PERIOD_BUDGET_REMAINING, sli_error("1h")),
        ),
    )


def _counts(within: BoardScope) -> tuple[Panel, ...]:
    known = f"max({within(OBJECTIVE_RATIO)})"
    return (
        _current_number(
            "Burning now",
            "Number of budgets with a burn rate above 1.",
            or_zero(f"count({within(CURRENT_BURN_RATE)} > {SUSTAINABLE:g})", known),
            replace(
                displays.FAULTS,
                no_value="No objective",
                thresholds=(Threshold("green"), Threshold("orange", 1)),
            ),
            reads=CURRENT_BURN_RATE,
        ),
        _current_number(
            "Overspent",
            "Budgets with nothing left.",
            or_zero(f"count({within(PERIOD_BUDGET_REMAINING)} <= 0)", known),
            displays.FAULTS.when_empty("No objective"),
            reads=PERIOD_BUDGET_REMAINING,
        ),
        _current_number(
            "Unknown",
            "Groups without reliable data, and objectives without any group: their budget is unknown.",
            or_zero(f"count({unknown(within)})", known),
            displays.FAULTS.when_empty("No objective"),
            reads=(UNKNOWN, INFO),
        ),
    )


def _current_number(
    title: str, lead: str, expr: str, display: Display, reads: MetricNames | None = None
) -> Panel:
    """Return a panel of one number without a sparkline, whose range query over all groups would be slow."""
    return Stat(title, lead, [Query(expr, instant=True)], display, reads=reads, width=4, sparkline=False)


_WORDS = tuple(dict.fromkeys(caveat.word for caveat in CAVEATS.values()))
_CAVEAT_WORDS: dict[int, tuple[str, Color]] = {
    number: (word.capitalize(), "orange") for number, word in enumerate(_WORDS, 1)
}


def _caveats(within: BoardScope) -> str:
    """Return a query of the number of each group's caveat, by its source."""
    parts = []
    for number, word in enumerate(_WORDS, 1):
        sources = "|".join(source for source, caveat in CAVEATS.items() if caveat.word == word)
        matcher = f'{SOURCE}=~"{sources}"'
        parts.append(f"{number} * {within(SLI_SOURCE, matcher)}")
    return " or ".join(parts)


def _objective_table(within: BoardScope) -> Panel:
    def by_key(expr: str, operator: str = "max") -> str:
        return f"{operator} by ({', '.join(KEYS)}) ({expr})"

    target = by_key(targets(within))
    not_known = by_key(unknown(within))
    # A group that vanished has no target any more.
    left = or_last(by_key(within(PERIOD_BUDGET_REMAINING), "min"), f"({target} or {not_known})")
    shown = (
        Column("Target", target, Display("percentunit", 2), width=80),
        Column("Budget left", left, displays.BUDGET_CELL, colored=True, width=100),
        Column("Spent in", by_key(exhaustion(within), "min"), Display("s", 1), width=100),
        Column("Burn now", by_key(within(CURRENT_BURN_RATE)), _BURN, colored=True, width=85),
        Column("Burn 1h", by_key(burn(within, "1h")), _BURN, colored=True, width=85),
        Column("Burn 6h", by_key(burn(within, "6h")), _BURN, colored=True, width=85),
        Column("Burn 3d", by_key(burn(within, "3d")), _BURN, colored=True, width=85),
        Column("Unknown", not_known, Display(words={1: ("Unknown", "red")}), colored=True, width=85),
        Column("Caveat", by_key(_caveats(within)), Display(words=_CAVEAT_WORDS), colored=True, width=180),
        Column("Estimate error", by_key(within(ESTIMATE_ERROR)), Display("percentunit", 2), width=120),
    )
    link = shared.to(links.MODEL, "Model dashboard", model=shared.field("Model"))
    return Table(
        "Objectives",
        "One row per error budget: the smallest budget left first, budgets without data last. Caveat: "
        "the source of the numbers misses some events, so the reality may be worse; `tritonwatch status` "
        "shows how to fix this. Estimate error: maximum error of the share of the last hour, in both "
        "directions.",
        (
            LabelColumn(SLO, "Objective", width=90),
            LabelColumn(INDICATOR, width=90),
            *(
                LabelColumn(label, link=link, width=150) if label == "model" else LabelColumn(label, width=75)
                for label in GROUPING
            ),
        ),
        shown,
        reads=(
            OBJECTIVE_RATIO,
            PERIOD_BUDGET_REMAINING,
            CURRENT_BURN_RATE,
            UNKNOWN,
            INFO,
            SLI_SOURCE,
            ESTIMATE_ERROR,
        ),
        sort_by="Budget left",
        descending=False,
        height=9,
    )


def _burn_panels(within: BoardScope) -> tuple[Panel, ...]:
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
            [
                Query(
                    f"max({summed(within, worst_burn(window), partial(burn, window=window), *_GROUPS)})",
                    window,
                )
                for window in BURN_WINDOWS
            ],
            Display("short", no_value="No objective", thresholds=(Threshold("transparent"), *lines)),
            reads=tuple(worst_burn(window) for window in BURN_WINDOWS),
            legend="right",
            calcs=("lastNotNull",),
            log=True,
            limit_line=True,
        ),
        TimeSeries(
            "Burn rate by group",
            "The ten groups with the highest burn rate over one hour at any time in the time range; only "
            "groups with a burn rate above 1.",
            {_LEGEND: worst(f"max by ({', '.join(KEYS)}) ({within(OVERBURN)})", every="30m")},
            Display("short", no_value="Nothing burns"),
            log=True,
        ),
    )


def _causes(within: BoardScope) -> tuple[Panel, ...]:
    firing = ('alertstate="firing"', *within.matchers)
    pages, tickets = (BoardScope((*firing, f'{TIER}=~"{kind}_.+"'))(ALERTS) for kind in ("page", "ticket"))
    shares = summed(
        BoardScope(within.matchers[1:]), WORST_CAUSE, lambda chosen: chosen(CAUSE_SHARE), *_GROUPS
    )
    explained = f"max by ({INDICATOR}, {CAUSE}) ({shares}) > 0 and on ({INDICATOR}) {_explained(within)}"
    return (
        TimeSeries(
            "Causes",
            "Share of each cause, in the group in which the share is largest: queue and compute are "
            "shares of the request time; failures are grouped by reason; states are those of models that "
            "are not ready.",
            {f"{{{{{INDICATOR}}}}}: {{{{{CAUSE}}}}}": worst(explained)},
            Display("percentunit", minimum=0, maximum=1, no_value="No cause recorded"),
        ),
        StateTimeline(
            "Burn alerts",
            "Burn alerts that fired, by tier: page_fast and page_slow are pages, the other tiers are "
            "tickets. "
            "Metric: `ALERTS`.",
            {
                f"{_LEGEND} {{{{{TIER}}}}}": f"max by ({SLO}, {TIER}, model, version) (2 * {pages} or {tickets})"
            },
            displays.FIRING.when_empty("No burn alert fired"),
            width=12,
            height=9,
        ),
    )


def _explained(within: BoardScope) -> str:
    """Return a series of each indicator whose causes explain a chosen objective: causes have no label of it."""
    objectives = BoardScope((within.matchers[0], RECORDED_HERE))(PERIOD_DAYS)
    for kind, indicator in KINDS.items():
        split = indicator.cause_split
        if split not in ("", kind):
            objectives = f'label_replace({objectives}, "{INDICATOR}", "{split}", "{INDICATOR}", "{kind}")'
    return objectives


def _period(within: BoardScope) -> tuple[Panel, ...]:
    keyed = f"min by ({', '.join(KEYS)}) ({within(PERIOD_BUDGET_REMAINING)})"

    def events(kind: str) -> str:
        counted = BoardScope((*within.matchers, f'{EVENT}="{kind}"'))
        return total(
            summed(counted, OBJECTIVE_EVENTS, lambda chosen: chosen(sli_events("5m")), *_GROUPS),
            SLO,
            INDICATOR,
        )

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
            {f"all, {{{{{SLO}}}}}": events("total"), f"bad, {{{{{SLO}}}}}": events("error")},
            Display("short", minimum=0, no_value="No events"),
            legend="right",
            calcs=("lastNotNull",),
            log=True,
        ),
    )


def _details(within: BoardScope) -> tuple[Panel, ...]:
    signals = BoardScope(within.matchers[1:3])(state.DISTRIBUTION_SOURCE)
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
                LabelColumn(SLO, "Objective", width=100),
                *(LabelColumn(label, width=100) for label in ("target", "threshold", "window", "owner")),
                LabelColumn("description"),
            ),
            labels_of=f"max by ({SLO}, owner, target, window, threshold, description) "
            f"({BoardScope(within.matchers[:1])(INFO)})",
            width=16,
            sort_by="Objective",
            descending=False,
        ),
    )
