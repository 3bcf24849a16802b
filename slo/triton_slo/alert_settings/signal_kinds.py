"""Kinds of signals: a share, an age, and a quantile.

Readers turn a metric into the PromQL that the caller needs: an alert for each model of a server over
a fixed window, a panel for what is chosen over the window of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from triton_exporter.catalogue import Metric
from triton_slo.alert_settings.alert_threshold import AlertThreshold
from triton_slo.alert_settings.tuning import TunedPart, Tuning
from triton_slo.promql import number

Reader = Callable[..., str]
"""(metric, *matchers) -> PromQL."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A series that `alert` compares with `threshold`."""

    alert: str
    threshold: AlertThreshold
    enabled: bool = field(default=True, kw_only=True)
    exceptions: tuple[str, ...] = field(default=(), kw_only=True)
    """Thresholds that some models have instead, in words."""

    @property
    def limit(self) -> float | None:
        """The threshold as a number, an age in seconds; None where no alert fires."""
        return self.threshold.value if self.enabled else None

    def tuned(self, tuning: Tuning, model: str = "") -> Self:
        """Return the signal in force for one model; without a name, for most of them, and with the exceptions."""
        *parts, _ = tuning.parts(self.alert)
        setting = tuning.of_model(self.alert, model)
        exceptions = () if model else tuple(self._exception(exception) for exception in parts)
        return replace(
            self,
            threshold=self.threshold.tuned(setting),
            enabled=setting.enabled is not False,
            exceptions=exceptions,
        )

    def _exception(self, part: TunedPart) -> str:
        fires = self.threshold.tuned(part.setting).condition
        return f"{part.models}: {'off' if part.setting.enabled is False else fires}"


@dataclass(frozen=True, slots=True)
class Share(Signal):
    """A part of a whole that is not zero."""

    part: Metric
    whole: Metric
    part_matchers: tuple[str, ...] = ()
    whole_matchers: tuple[str, ...] = ()

    def expr(self, part: Reader, whole: Reader | None = None, on: str = "") -> str:
        """Return the share; `on` is a matching clause for sides that differ in labels."""
        divided = (whole or part)(self.whole, *self.whole_matchers)
        return f"{part(self.part, *self.part_matchers)} / {on}({divided} > 0)"


@dataclass(frozen=True, slots=True)
class Age(Signal):
    """Seconds since a moment, or seconds as they are reported."""

    metric: Metric
    is_moment: bool = False

    def expr(self, read: Reader) -> str:
        """Return the age in seconds."""
        return f"time() - {read(self.metric)}" if self.is_moment else read(self.metric)


@dataclass(frozen=True, slots=True)
class Tail(Signal):
    """A quantile of a histogram in its own unit."""

    metric: Metric
    level: float

    def expr(self, buckets: Reader) -> str:
        """Return the quantile; `buckets` gives rates with their le."""
        return f"histogram_quantile({number(self.level)}, {buckets(self.metric)})"
