"""Readiness: each second in which a model version should serve is an event; it fails when not ready.

A version should serve when the exporter expects its model, and it is neither unloaded on purpose nor being
unloaded. The first load of a version does not count: it is a deployment, no service is interrupted, and a model
that takes minutes to load would page at each deployment. A load that fails or never ends has alerts of its own, and
counts once it has failed. A version whose state is `unknown`, because Triton cannot be polled, counts as not ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, state
from triton_slo import names
from triton_slo.indicators.common.measure import Events, Measure, Scope, StateQuery, UnknownReason, stuck
from triton_slo.indicators.indicator import Indicator
from triton_slo.promql import Matchers, by, number, on


def _servers(scope: Scope) -> tuple[str, str]:
    """Return PromQL for the servers that should serve a version, and for those of them on which it is not ready."""
    meant = scope.matchers.also('state!~"unloaded|unloading"')
    should_serve = (
        f"{state.MODEL_STATE}{meant} == 1\n"
        f"and on (instance, model) {state.MODEL_EXPECTED}{scope.models} == 1\n"
        f"unless on (instance, model, version) {state.MODEL_FIRST_LOAD}{scope.matchers}"
    )
    ready = f"{state.MODEL_READY}{scope.matchers} == 1"
    return should_serve, f"({should_serve})\nunless on (instance, model, version) {ready}"


class Readiness(Indicator):
    """Share of time that a model version which should serve is ready."""

    kind: Literal["readiness"] = "readiness"
    burn_alert: ClassVar = "TritonReadinessBudgetBurn"
    share_words: ClassVar = "of the time ready"
    counts_time: ClassVar = True
    cause_split: ClassVar = "readiness"
    first_step: ClassVar = (
        "Read the reason in the exporter's /state or in Triton's log and fix it, or roll back the "
        "model's last change."
    )
    steps_by_cause: ClassVar = {
        "state:missing": "Search Triton's log for the model's name and `failed to load` or `Poll "
        "failed`, and restore the model's files."
    }
    caused_by: ClassVar = ""

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure as events per second the servers on which the version should serve."""
        total, failed = (f"count {scope.by} (\n{servers}\n)" for servers in _servers(scope))
        presence = scope.present(state.MODEL_STATE)
        events = StateQuery(Events(error=f"{failed}\nor\n0 * {total}", total=total))
        return Measure(presence, events, sources=((presence, "state"),))

    def redundancy_gone(self, scope: Scope, away_seconds: float) -> str:
        """Return PromQL for groups with under half of their servers ready, or one away too long for a restart."""
        should_serve, not_ready = _servers(scope)
        since = f"time() - {state.MODEL_NOT_READY_SINCE}{scope.matchers} > {number(away_seconds)}"
        few = f"2 * count {scope.by} (\n{not_ready}\n) > count {scope.by} (\n{should_serve}\n)"
        away = f"count {scope.by} (\n({not_ready})\nand on (instance, model, version) ({since})\n)"
        return f"{few}\nor {scope.on} {away}"

    def unknown_reasons(
        self,
        scope: Scope,
        after_seconds: float,
        counts_as_failed: bool,
        without_retired: Callable[[str], str],
    ) -> Iterator[UnknownReason]:
        """Yield the reason for a stuck model, which calls itself ready, where unknown time counts as failed."""
        if counts_as_failed:
            yield stuck(scope, after_seconds)

    def unknown_pace(self) -> float:
        """Return 1: events are seconds, and one server is supposed."""
        return 1.0

    @classmethod
    def causes(cls, selector: Matchers, window: str, used: Sequence[Indicator]) -> Iterator[tuple[str, str]]:
        """Yield the share of the time not ready that each state took, without first loads, as in the indicator.

        A version can be READY to Triton and not ready, by its ready endpoint or the last probe.
        """

        def seconds(metric: Metric, matchers: Matchers) -> str:
            """Sum samples rather than shares of them: those at a first load can be taken off those at any load."""
            return f"sum_over_time({metric}{matchers}[{window}])"

        def called(expr: str, name: str) -> str:
            return f'label_replace({expr}, "state", "{name}", "", "")'

        bad = seconds(state.MODEL_STATE, selector.also('state!~"ready|unloaded|unloading"'))
        claimed = seconds(state.MODEL_STATE, selector.equal("state", "ready"))
        unkept = f"{claimed} - ignoring (state) {seconds(state.MODEL_READY, selector)}"
        lost = (
            f"(\n  {bad}\n  - {called(seconds(state.MODEL_FIRST_LOAD, selector), 'loading')}"
            f"\n  or {bad}\n  or {called(unkept, 'not_answering')}\n)"
        )
        named = f'label_replace({lost}, "{names.CAUSE}", "state:$1", "state", "(.*)")'
        each = f"sum {by((*names.GROUPING, names.CAUSE))} ({named})"
        yield "", f"{each}\n/ {on(names.GROUPING)} group_left ()\n(sum {by(names.GROUPING)} ({lost}) > 0)"
