"""Readiness: each second of a server that should have a model ready is an event; it fails where none of its
versions is.

A server should have a model ready when the exporter expects it: one that was unloaded on purpose only where it is on the
operator's list (`--expect`). The first load of a model does not count: it is a deployment, no service is interrupted, and a model that
takes minutes to load would page at each deployment. But where the model was served in the last hour and is ready
nowhere now, its only server was replaced, and its load counts. A server whose state is `unknown`, because Triton
cannot be polled, counts as not ready. Where only Triton's metrics are read, readiness has no data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, state
from triton_slo import names
from triton_slo.indicators.histograms import WRONG_SETTINGS
from triton_slo.indicators.indicator import Indicator, Measure, Scope, WrongSetting
from triton_slo.promql import Matchers, by, on

_MEANT = 'state!="unloading"'
"""One that was unloaded on purpose is not expected, unless the operator's list has it."""


class Readiness(Indicator):
    """Share of time that the servers of a model have it ready."""

    kind: Literal["readiness"] = "readiness"
    burn_alert: ClassVar = "TritonReadinessBudgetBurn"
    share_words: ClassVar = "of the time ready"
    failed_words: ClassVar = "the time not ready"
    counts_time: ClassVar = True
    cause_split: ClassVar = "readiness"
    first_step: ClassVar = (
        "Read the reason in the exporter's /state or in Triton's log and fix it, or roll back the "
        "model's last change."
    )
    steps_by_cause: ClassVar = {
        "state:unknown": "Check whether the Triton process runs, and read the end of its previous log.",
        "state:missing": 'Search Triton\'s log for the model\'s name and "failed to load" or "Poll failed", and '
        "restore the model's files.",
    }

    @property
    def grouping(self) -> tuple[str, ...]:
        """A version that fails while another one serves interrupts nobody: the catalogue's alerts name it."""
        return ("model",)

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Return the servers of each model that do not have it ready now, and all that should."""
        server = ("instance", *scope.group_by)
        ready = f"{state.MODEL_READY}{scope.matchers} == 1"
        not_ready = (
            f"count {scope.by} (\n"
            f"  group {by(server)} ({state.MODEL_STATE}{scope.matchers.also(_MEANT)} == 1)\n"
            f"  and {on(server)} {state.MODEL_EXPECTED}{scope.matchers} == 1\n"
            f"  unless {on(server)} {ready}\n"
            f"  unless {on(server)} (\n"
            f"    {state.MODEL_FIRST_LOAD}{scope.matchers}\n"
            f"    unless {scope.on} (max_over_time({state.MODEL_READY}{scope.matchers}[1h]) == 1 unless "
            f"{scope.on} {ready})\n"
            f"  )\n"
            f") or 0 * group {scope.by} ({state.MODEL_READY}{scope.matchers})"
        )
        every = f"group {by(server)} ({ready})"
        presence = scope.present(state.MODEL_READY)
        metrics_only = f"({scope.present(state.MODEL_STATE)} unless {scope.on} {presence}) == 1"
        return Measure(
            not_ready,
            every,
            sources=((presence, "state"),),
            wrong_settings=(WrongSetting("no_api", metrics_only, *WRONG_SETTINGS["no_api"]),),
        )

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
        # By model, as the objective: the shares of each version would add up to more than the whole.
        group = ("model",)
        each = f"sum {by((*group, names.CAUSE))} ({named})"
        yield "", f"{each}\n/ {on(group)} group_left ()\n(sum {by(group)} ({lost}) > 0)"
