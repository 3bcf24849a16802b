"""Which alert silences which: a cause that pages makes its consequences say nothing.

Alertmanager takes a label that both sides lack for equal, so both sides of each row carry every label in
`equal`; a test checks it against the labels the alerts declare. (The configuration adds `cluster`, which
either every alert of one Prometheus carries or none.) A row must not end a story half told: what it
silences ends with its cause or after it, for Alertmanager forgets an alert that resolves while silenced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triton_alerts.alert import Alert
from triton_alerts.catalogue import gpu, lifecycle, llm, traffic
from triton_slo import conventions
from triton_slo.burn.burn_alerts import INHIBITIONS as SLO_INHIBITIONS
from triton_slo.burn.burn_alerts import Inhibition as SloInhibition
from triton_slo.indicators import BURN_ALERTS, Errors, Queue


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert that matches all of `source` fires, those that match all of `target` are not sent."""

    why: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]


def _named(*names: str) -> tuple[str, ...]:
    """The matcher for these alerts."""
    return (f'alertname="{names[0]}"' if len(names) == 1 else f'alertname=~"{"|".join(names)}"',)


def _carrying(label: str, alerts: Iterable[Alert]) -> tuple[str, ...]:
    return tuple(alert.name for alert in alerts if label in alert.labels)


def _sides(one: SloInhibition) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    return one.source, one.target, one.equal


_NO_PAGE = f'{conventions.SEVERITY}!="critical"'
"""What a ticket may silence: a page must reach somebody whatever tickets there are."""
_OF_A_SERVER = _carrying("instance", (*lifecycle.MODELS, *traffic.ALERTS, *llm.ALERTS))
_OF_A_GPU = ("instance", "gpu_uuid")
_OF_A_VERSION = ("instance", "model", "version")

INHIBITIONS = (
    Inhibition(
        "No server at all says more than each of them, and no objective can hold without one.",
        _named("TritonAllServersDown"),
        _named(
            "TritonSoleServerDown",
            "TritonServerDown",
            "TritonServerNotLive",
            "TritonServerNotStarting",
            "TritonModelDownEverywhere",
            "TritonTrafficVanished",
            conventions.UNKNOWN_ALERT,
            *BURN_ALERTS.values(),
        ),
        (),
    ),
    Inhibition(
        "The page about a server stands for its ticket.",
        _named("TritonSoleServerDown"),
        _named("TritonServerDown", "TritonServerNotLive", "TritonServerNotStarting"),
        ("instance",),
    ),
    Inhibition(
        "A server that is down takes its models with it.",
        _named("TritonServerDown", "TritonServerNotStarting", "TritonServerNotLive"),
        (
            *_named(
                *_OF_A_SERVER,
                "TritonServerNotReady",
                "TritonMetricsUnreachable",
                "TritonExporterStale",
                "GpuIdleWhileQueueing",
            ),
            _NO_PAGE,
        ),
        ("instance",),
    ),
    Inhibition(
        "A server that restarts takes its models' readiness with it each time.",
        _named("TritonServerRestarting"),
        _named("TritonModelFlapping", "TritonServerNotReady"),
        ("instance",),
    ),
    Inhibition(
        "Without the exporter nothing is known about the server behind it: what still fires is old.",
        _named("TritonExporterDown"),
        (
            *_named(
                *_OF_A_SERVER,
                *_carrying("instance", lifecycle.SERVERS),
                *_carrying("instance", gpu.ALERTS),
                "TritonExporterStale",
            ),
            _NO_PAGE,
        ),
        ("instance",),
    ),
    Inhibition(
        "Without any exporter no objective has data.",
        _named("TritonExporterAbsent"),
        _named("TritonExporterDown", conventions.UNKNOWN_ALERT, "TritonTrafficVanished"),
        (),
    ),
    Inhibition(
        "A model that no server serves is not served by each of them.",
        _named("TritonModelDownEverywhere"),
        _named(
            "TritonModelNotReadyProlonged",
            "TritonExpectedModelMissing",
            "TritonModelUnloadedInUse",
            "TritonProbeFailing",
            "TritonTrafficVanished",
        ),
        ("model",),
    ),
    Inhibition(
        "A version that is not ready for long says which way it is not.",
        _named("TritonModelNotReadyProlonged"),
        _named("TritonExpectedModelMissing", "TritonModelStuckLoading"),
        _OF_A_VERSION,
    ),
    Inhibition(
        "A hardware error stops what runs on the card.",
        _named("GpuXidHardware", "GpuLost"),
        _named("GpuIdleWhileQueueing"),
        ("instance",),
    ),
    Inhibition(
        "A card that is broken shows it in many ways.",
        _named("GpuXidHardware", "GpuLost", "GpuRowRemapFailed"),
        _named(
            "GpuXidContained",
            "GpuXidApplication",
            "GpuRowRemapPending",
            "GpuNvlinkErrors",
            "GpuPcieReplays",
            "GpuThermalThrottling",
            "GpuPowerThrottling",
            "GpuDataStale",
        ),
        _OF_A_GPU,
    ),
    Inhibition(
        "A model that hangs lets its queue grow.",
        _named("TritonModelStalled"),
        _named("TritonQueueGrowing", "TritonQueueDominates", "TritonRequestsRejected"),
        _OF_A_VERSION,
    ),
    Inhibition(
        "An engine that hangs admits nobody.",
        _named("TrtLlmEngineStuck"),
        _named("TrtLlmKvCacheNearFull", "TrtLlmSlotsFull", "TrtLlmRequestsPaused"),
        _OF_A_VERSION,
    ),
    Inhibition(
        "A step that fails makes its ensemble fail: the step's own budget pages.",
        _named("TritonEnsembleStepFailing"),
        (*_named(Errors.burn_alert), _NO_PAGE),
        ("model",),
    ),
    Inhibition(
        "A queue budget that burns says that requests wait.",
        _named(Queue.burn_alert),
        _named("TritonQueueGrowing", "TritonQueueDominates", "TritonInstancesSaturated"),
        conventions.GROUPING,
    ),
    Inhibition(
        "A bridge that is down delivers nothing, and Alertmanager notices.",
        _named("AlertBridgeDown"),
        (*_named("AlertmanagerNotificationsFailing"), 'integration="webhook"'),
        (),
    ),
    *(
        Inhibition("One fault raises one alert: the most specific one is sent.", *_sides(one))
        for one in SLO_INHIBITIONS
    ),
)
