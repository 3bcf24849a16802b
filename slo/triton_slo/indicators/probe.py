"""Probe: cheap real inferences that the exporter sends; each fails unless the model answered it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import probe
from triton_slo.indicators.indicator import Indicator, Measure, Scope, failures, shares
from triton_slo.promql import Matchers
from triton_slo.sources import PROBER

_COUNTED = f'result!~"{"|".join(probe.INCONCLUSIVE)}"'
"""A probe whose input the model refuses, or that has never worked, shows nothing about the model."""
_FAILED = f'result!~"success|{"|".join(probe.INCONCLUSIVE)}"'


class Probe(Indicator):
    """Share of probes (cheap real inferences) that worked."""

    kind: Literal["probe"] = "probe"
    burn_alert: ClassVar = "TritonProbeBudgetBurn"
    share_words: ClassVar = "of probes answered"
    failed_words: ClassVar = "probes failed"
    failing_words: ClassVar = "probes fail"
    cause_split: ClassVar = "probe"
    first_step: ClassVar = "Send the probe's request by hand and check where it fails."

    @property
    def seen_by(self) -> str:
        """The probe."""
        return "probe"

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Count probes without success, and all that the model could have answered."""
        every = scope.series(probe.REQUESTS, _COUNTED)
        failed = f"{scope.series(probe.REQUESTS, _FAILED)}\nor 0 * sum without (result) ({every})"
        presence = scope.present(probe.REQUESTS, _COUNTED)
        return Measure(failed, every, sources=((presence, PROBER),))

    @classmethod
    def causes(cls, selector: Matchers, window: str, used: Sequence[Indicator]) -> Iterator[tuple[str, str]]:
        """Yield how probes failed."""
        yield "", shares(failures(probe.REQUESTS, selector.also(_FAILED), "result", window))
