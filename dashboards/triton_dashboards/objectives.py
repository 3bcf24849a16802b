"""Every query of series that are recorded of objectives, and the rules that record them once more for graphs.

The only module of the dashboards that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from triton_dashboards.query import BoardScope, summed, total
from triton_exporter.common.duration import DAY, duration_text, parse_seconds
from triton_slo import names
from triton_slo.artifact import Options, Rule
from triton_slo.indicators import KINDS, Indicator
from triton_slo.objective.model import SUSTAINABLE, WORKBOOK_TIERS
from triton_slo.sources import CAVEATS

KEYS = (names.SLO, names.INDICATOR, *names.GROUPING)
"""Labels that identify one error budget."""
BURN_WINDOWS = tuple(
    sorted({window for tier in WORKBOOK_TIERS for window in (tier.short, tier.long)}, key=parse_seconds)
)
"""The windows of the burn alerts, the shortest first."""
PERIOD_SECONDS = 30 * DAY
CAVEAT_WORDS = tuple(dict.fromkeys(caveat.word for caveat in CAVEATS.values()))

READ = {
    "budget": (names.PERIOD_BUDGET_REMAINING, names.sli_error("1h")),
    "burning": (names.sli_error("5m"),),
    "unknown": (names.ALERTS, names.INFO),
    "windows": tuple(map(names.worst_burn, BURN_WINDOWS)),
}
"""What descriptions of panels name: those of the series read that say something to a reader."""

_KEYS = ", ".join(KEYS)
_GROUPS = ("model", "version")
"""Variables that choose groups of an objective."""


def listed(*matchers: str) -> str:
    """Return a series of each group of each objective, for variables."""
    return BoardScope((names.RECORDED_HERE, *matchers))(names.OBJECTIVE_RATIO)


@dataclass(frozen=True, slots=True)
class Objectives:
    """The error budgets within a scope; `time_scale` is that of the rules."""

    scope: BoardScope
    time_scale: float = 1.0

    def _of(self, series: str, *matchers: str) -> str:
        return self.scope(series, names.RECORDED_HERE, *matchers)

    def _of_objective(self, series: str) -> str:
        """Select a series that has no label of a group: by the first variable, the objective."""
        return BoardScope((self.scope.matchers[0], names.RECORDED_HERE))(series)

    def budget_left(self) -> str:
        """Return the share that is left of each budget of which there are three days of data."""
        return f"({self._mature(self._of(names.PERIOD_BUDGET_REMAINING), PERIOD_SECONDS)})"

    def burn(self, window: str) -> str:
        """Return the burn rate over a window: error ratio over the ratio that the objective allows."""
        return self._mature(self._burn(window), parse_seconds(window))

    def _burn(self, window: str) -> str:
        return f"{self._of(names.sli_error(window))} / on ({_KEYS}) group_left () {self._of(names.ERROR_BUDGET_RATIO)}"

    def _mature(self, expr: str, seconds: float) -> str:
        """Return what is known of a window of these seconds once a tenth of it has data.

        Before, one failure among a few requests seems to spend the budget many times.
        """
        spans = (duration_text(span * self.time_scale) for span in (3600, seconds / 10))
        recorded, tenth = spans
        return f"{expr} and on ({_KEYS}) last_over_time({self._of(names.ERROR_BUDGET_RATIO)}[{recorded}] offset {tenth})"

    def burn_now(self) -> str:
        """Return the burn rate of the last minutes."""
        return self._burn("5m")

    def burning(self) -> str:
        """Return the burn rates of the last minutes that use up the budget before its period ends."""
        return f"{self.burn_now()} > {SUSTAINABLE:g}"

    def worst_burn(self, window: str) -> str:
        """Return the highest burn rate over a window."""
        return f"max({self._summed(names.worst_burn(window), lambda chosen: chosen.burn(window))})"

    def overburn(self) -> str:
        """Return burn rates over the last hour that were ever above 1."""
        return f"max by ({_KEYS}) ({self._of(names.OVERBURN)})"

    def events(self, kind: str) -> str:
        """Return the events a second of each objective: `error` or `total`."""
        counted = replace(self, scope=BoardScope((*self.scope.matchers, f'{names.EVENT}="{kind}"')))
        each = counted._summed(
            names.OBJECTIVE_EVENTS, lambda chosen: f"rate({chosen._of(names.COUNTER)}[$__rate_interval])"
        )
        return total(each, names.SLO, names.INDICATOR)

    def _summed(self, recorded: str, each: Callable[[Objectives], str]) -> str:
        scope = BoardScope((*self.scope.matchers, names.RECORDED_HERE))
        return summed(scope, recorded, lambda chosen: each(replace(self, scope=chosen)), *_GROUPS)

    def exhaustion(self) -> str:
        """Return the seconds until a budget is spent: what is left over the burn rate of the last hour.

        Errors that leave a rolling window meanwhile are not counted, so this is the earliest time. A budget that is
        spent has none.
        """
        left = f"({self.budget_left()} > 0)"
        # The period belongs to the objective: it is recorded without model and version.
        period = f"on ({names.SLO}, {names.INDICATOR}) group_left () ({self._of_objective(names.PERIOD_DAYS)} * {DAY})"
        return f"{left} * {period} / on ({_KEYS}) (({self.burn('1h')}) > 0)"

    def targets(self) -> str:
        """Return the targets of the groups that `tritonwatch status` lists: counted now, or in the period."""
        return self._of(names.OBJECTIVE_RATIO)

    def unknown(self) -> str:
        """Return groups of models of which nothing is known, and objectives of which no group is listed."""
        alerts = BoardScope(
            (f'alertname=~"{names.UNKNOWN_ALERT}|{names.UNMEASURED_ALERT}"', 'alertstate="firing"')
        )(names.ALERTS)
        return (
            f"0 * {self.targets()} + 1 and on (model) {alerts} "
            f"or ({self._of(names.INFO)} unless on ({names.SLO}) {self.targets()})"
        )

    def caveats(self) -> str:
        """Return the place of each group's caveat in `CAVEAT_WORDS`, from 1, by its source."""
        parts = []
        for number, word in enumerate(CAVEAT_WORDS, 1):
            sources = "|".join(source for source, caveat in CAVEATS.items() if caveat.word == word)
            matcher = f'{names.SOURCE}=~"{sources}"'
            parts.append(f"{number} * {self._of(names.SLI_SOURCE, matcher)}")
        return " or ".join(parts)

    def estimate_error(self) -> str:
        """Return the error, either way, of each estimated share of the last hour."""
        return self._mature(self._of(names.ESTIMATE_ERROR), 3600)

    def promised(self, indicator: type[Indicator]) -> str:
        """Return the limit that objectives of a kind promise, in the unit of its graphs."""
        limit = self.scope(indicator.limit_series, f'{names.INDICATOR}="{indicator.name()}"')
        return f"min by ({names.SLO}) ({limit})"

    def causes(self) -> str:
        """Return the share of each cause, in the group in which it is largest, of the chosen objectives' kinds."""
        shares = summed(
            BoardScope(self.scope.matchers[1:]),
            names.WORST_CAUSE,
            lambda chosen: chosen(names.CAUSE_SHARE),
            *_GROUPS,
        )
        # Causes have no label of the objective whose kind they explain.
        kinds = self._of_objective(names.PERIOD_DAYS)
        for kind, indicator in KINDS.items():
            split = indicator.cause_split
            if split not in ("", kind):
                kinds = (
                    f'label_replace({kinds}, "{names.INDICATOR}", "{split}", "{names.INDICATOR}", "{kind}")'
                )
        return f"max by ({names.INDICATOR}, {names.CAUSE}) ({shares}) > 0 and on ({names.INDICATOR}) {kinds}"

    def settings(self, *labels: str) -> str:
        """Return a series of each objective with its settings as labels."""
        return (
            f"max by ({', '.join((names.SLO, *labels))}) ({BoardScope(self.scope.matchers[:1])(names.INFO)})"
        )


def rules(options: Options) -> Iterator[Rule]:
    """Yield what graphs of all groups of an objective read."""
    every = Objectives(BoardScope(()), options.time_scale)
    by = f"by ({names.SLO}, {names.INDICATOR})"
    for window in BURN_WINDOWS:
        yield Rule(record=names.worst_burn(window), expr=f"max {by} ({every.burn(window)})")
    yield Rule(record=names.OVERBURN, expr=f"({every.burn('1h')}) > 1")
    yield Rule(
        record=names.OBJECTIVE_EVENTS,
        expr=total(f"rate({every._of(names.COUNTER)}[5m])", names.SLO, names.INDICATOR, names.EVENT),
    )
    yield Rule(
        record=names.WORST_CAUSE, expr=f"max by ({names.INDICATOR}, {names.CAUSE}) ({names.CAUSE_SHARE})"
    )
