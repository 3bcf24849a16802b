"""Does the watching itself work?"""

from __future__ import annotations

from triton_alerts import peers
from triton_alerts.alert import Alert
from triton_exporter.catalogue import EXPORTER_JOB

ALERTS = (
    Alert(
        name="Watchdog",
        expr="vector(1)",
        severity="none",
        component="meta",
        labels=(),
        dashboard="stack",
        owner="observability",
        summary="Alerting works",
        description="This alert always fires. It proves the way from Prometheus through Alertmanager to the "
        "receiver; when it stops arriving, that way is broken.",
        silence="never",
    ),
    Alert(
        name="TritonExporterDown",
        expr=f'{peers.UP}{{job="{EXPORTER_JOB}"}} == 0',
        severity="critical",
        component="meta",
        labels=("instance",),
        hold="3m",
        keep="1m",
        dashboard="stack",
        owner="observability",
        summary="The exporter {{ $labels.instance }} does not answer Prometheus",
        description="Prometheus cannot scrape the exporter {{ $labels.instance }}, so nothing is known about "
        "the Triton server behind it. As a sidecar it shares the server's fate: the server may be gone too.",
        silence="instance, while the pod is moved on purpose",
    ),
)
