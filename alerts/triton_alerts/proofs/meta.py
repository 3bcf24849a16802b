"""Proofs of the meta family."""

from __future__ import annotations

from triton_alerts import peers
from triton_alerts.proof import Fires, Proof
from triton_exporter.catalogue import EXPORTER_JOB

_EXPORTER = {"instance": "gpu-1:9095", "job": EXPORTER_JOB}
_UP = f'{peers.UP}{{instance="gpu-1:9095",job="{EXPORTER_JOB}"}}'
_DOWN = Fires(
    labels=_EXPORTER,
    summary="The exporter gpu-1:9095 does not answer Prometheus",
    description="Prometheus cannot scrape the exporter gpu-1:9095, so nothing is known about the Triton "
    "server behind it. As a sidecar it shares the server's fate: the server may be gone too.",
)

PROOFS = (
    Proof(
        "Watchdog",
        "always fires, with no series at all",
        {},
        "0s",
        (
            Fires(
                labels={},
                summary="Alerting works",
                description="This alert always fires. It proves the way from Prometheus through Alertmanager "
                "to the receiver; when it stops arriving, that way is broken.",
            ),
        ),
    ),
    Proof(
        "TritonExporterDown",
        "fires after three minutes without a scrape",
        {_UP: "1x4 0x30"},
        "4m15s",
        (_DOWN,),
    ),
    Proof("TritonExporterDown", "is quiet before the three minutes are over", {_UP: "1x4 0x30"}, "4m"),
    Proof("TritonExporterDown", "is quiet while scrapes work", {_UP: "1x30"}, "6m"),
    Proof("TritonExporterDown", "starts over after one scrape that worked", {_UP: "0x11 1 0x10"}, "4m"),
    Proof(
        "TritonExporterDown",
        "does not speak for other jobs",
        {f'{peers.UP}{{instance="gpu-1:9100",job="node"}}': "0x30"},
        "6m",
    ),
    Proof("TritonExporterDown", "is quiet without series", {}, "6m"),
)
