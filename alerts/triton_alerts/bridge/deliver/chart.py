"""Draw the series of an incident once, and upload the chart to its thread if the transport can."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

from triton_alerts.bridge.deliver.transport import DeliveryError
from triton_alerts.bridge.evidence.facts import burn_query
from triton_alerts.bridge.incidents.incident import Incident, subject_text
from triton_alerts.bridge.incidents.store import Store
from triton_exporter.common.duration import DAY
from triton_slo.prometheus import Prometheus, PrometheusError

BEFORE_SECONDS = 3600.0
POINTS = 240
MAX_SERIES = 8
AT_ONCE = 3
"""Charts drawn in one run of the chore."""
RETRY_SECONDS = 60.0
"""Time after an incident opened during which its series are queried again if Prometheus returned none."""

log = logging.getLogger(__name__)
Upload = Callable[[str, str, str, bytes, str], None]


@dataclass(frozen=True)
class Charts:
    """Chore that adds one chart to each incident's thread, or none: a page is complete without it."""

    store: Store
    prometheus: Prometheus
    upload: Upload
    count: Callable[[str, str], None]
    failed: Callable[[], None]

    def __call__(self, now: float) -> None:
        for number in self.store.outbox.without_chart(AT_ONCE):
            incident, delivery = self.store.incidents.get(number), self.store.outbox.main(number)
            if incident is None or delivery is None:
                continue
            query = burn_query(incident.burning or incident.lead)
            chart, fault = None, "Prometheus has no samples of its series"
            try:
                chart = self._chart(incident, query, now) if query else None
            except PrometheusError as error:
                fault = str(error)
            # Prometheus may be slow, or the series younger than a step: query again.
            if query and chart is None and now - incident.opened_at < RETRY_SECONDS:
                continue
            # Recorded before it is sent: two charts are worse than none.
            self.store.outbox.set_charted(number)
            if chart is not None:
                self._upload_chart(incident, chart, delivery.posted_in, delivery.ts)
            elif query:
                self._report(incident, fault)

    def _chart(self, incident: Incident, query: str, now: float) -> tuple[str, bytes] | None:
        """Return title and PNG of the incident's series; None if Prometheus has none. Raises PrometheusError."""
        start = max(0.0, min(incident.since, now) - BEFORE_SECONDS)
        series = self.prometheus.range(query, start, now, max(1.0, (now - start) / POINTS))
        if not series:
            return None
        title = f"{subject_text(incident.lead.labels)}: {query.partition('{')[0]}"
        lines = [
            (_curve_name(record.labels), list(zip(record.times, record.values, strict=True)))
            for record in series
        ]
        return title, draw(title, lines, incident.since)

    def _upload_chart(self, incident: Incident, chart: tuple[str, bytes], channel: str, thread: str) -> None:
        title, png = chart
        try:
            self.upload(channel, thread, f"incident-{incident.name}.png", png, title)
        except DeliveryError as error:
            self._report(incident, str(error))
        else:
            self.count("delivered", "chart")

    def _report(self, incident: Incident, fault: str) -> None:
        self.failed()
        log.warning("no chart for incident %s: %s", incident.name, fault)


def draw(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], since: float) -> bytes:
    """Return a PNG of some series over time, with the moment the incident began."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import DateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, points in series[:MAX_SERIES]:
        axes.plot(
            [_moment(at) for at, _ in points], [value for _, value in points], label=name, linewidth=1.6
        )
    axes.axvline(_moment(since), color="#c0392b", linestyle="--", linewidth=1.2, label="began")
    # matplotlib reads text between dollar signs as a formula.
    axes.set_title(title.replace("$", "\\$"), fontsize=10, loc="left")
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlabel("UTC", fontsize=8)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def _moment(at: float) -> float:
    """Return a Unix time in days, as matplotlib counts it."""
    return at / DAY


def _curve_name(labels: Mapping[str, str]) -> str:
    return subject_text(labels)[:60].replace("$", "\\$").lstrip("_")
