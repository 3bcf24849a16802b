"""Probe: cheap real inferences that the exporter sends; each fails unless the model answered it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import probe
from triton_exporter.common.duration import duration_text
from triton_slo.indicators.common.measure import (
    CounterQuery,
    Events,
    Measure,
    Scope,
    UnknownReason,
    failures,
    shares,
)
from triton_slo.indicators.common.sources import PROBER
from triton_slo.indicators.indicator import Indicator
from triton_slo.promql import Matchers

_COUNTED = f'result!~"{"|".join(probe.INCONCLUSIVE)}"'
"""A probe whose input the model refuses, or that has never worked, shows nothing about the model."""
_FAILED = f'result!~"success|{"|".join(probe.INCONCLUSIVE)}"'


class Probe(Indicator):
    """Share of probes (cheap real inferences) that worked."""

    kind: Literal["probe"] = "probe"
    burn_alert: ClassVar = "TritonProbeBudgetBurn"
    share_words: ClassVar = "of probes answered"
    cause_split: ClassVar = "probe"
    first_step: ClassVar = "Send the probe's request by hand and check where it fails."

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure probes without success over all probes that the model could have answered."""

        def events_over(window: str) -> Events:
            total = scope.rate(probe.REQUESTS, window, _COUNTED)
            failed = f"({scope.rate(probe.REQUESTS, window, _FAILED)} or {scope.on} 0 * {total})"
            return Events(error=failed, total=total)

        presence = scope.present(probe.REQUESTS, _COUNTED)
        return Measure(presence, CounterQuery(events_over, scope.group_by), sources=((presence, PROBER),))

    def unknown_reasons(
        self,
        scope: Scope,
        after_seconds: float,
        counts_as_failed: bool,
        without_retired: Callable[[str], str],
    ) -> Iterator[UnknownReason]:
        """Yield the reason for models without probes, which come at a steady rate: no event means not knowing."""
        window = duration_text(after_seconds)
        # The counter that began a window ago: a model that has just appeared has had no time to be probed.
        before = f"group {scope.by} ({probe.REQUESTS}{scope.matchers.also(_COUNTED)} offset {window})"
        probed = f"({scope.rate(probe.REQUESTS, window, _COUNTED)} > 0)"
        present = scope.present(probe.REQUESTS, _COUNTED)
        yield UnknownReason(
            "silent",
            without_retired(f"{present} and {scope.on} {before} unless {scope.on} {probed}"),
            "No probe was conclusive for {after}: no probes are sent, or the model does not "
            "take the probe's input.",
        )

    def unknown_pace(self) -> float:
        """Return the pace of one probe a minute."""
        return 1 / 60

    @classmethod
    def causes(cls, selector: Matchers, window: str, used: Sequence[Indicator]) -> Iterator[tuple[str, str]]:
        """Yield how probes failed."""
        yield "", shares(failures(probe.REQUESTS, selector.also(_FAILED), "result", window))
