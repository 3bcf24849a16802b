"""Inhibition rules: while a cause pages, its consequences are not sent.

Alertmanager treats a label that both alerts lack as equal. Therefore both sides of each row carry every label in
`equal`, which a test checks against the labels that the alerts declare. The configuration adds `cluster` to
`equal`: either all alerts of a Prometheus carry it, or none does.

An inhibited alert must end with its cause or later, because Alertmanager sends nothing about an alert that
resolves while it is inhibited. One that ends later is sent then: after the fault, a page. So a source that holds back
alerts which fire on reads what was last recorded, not the series of an exporter that may be gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from triton_alerts.alert import Alert
from triton_alerts.catalogue import ALERTS, gpu, lifecycle, llm, traffic
from triton_slo import names
from triton_slo.alert_settings import OF_OBJECTIVES, Tuning
from triton_slo.indicators import BURN_ALERTS, Errors, Queue, Readiness
from triton_slo.names import severity_rank
from triton_slo.promql import Matchers


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert that matches all of `source` fires, those that match all of `target` are not sent.

    Only where they have the same values of the labels `equal`.
    """

    why: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]
    outdates: bool = False
    """Whether the source is no cause, but says that the target is out of date: then it may be the less urgent."""


_SLO = f'{names.COMPONENT}="slo"'
_GROUP = (names.SLO, *names.GROUPING)
_READINESS_PAGE = (f'alertname="{Readiness.burn_alert}"', _SLO, f'{names.SEVERITY}="critical"')
_OF_OBJECTIVES: tuple[Inhibition, ...] = (
    *(
        Inhibition(
            "Of the tiers of one objective only the most urgent is sent.",
            (_SLO, f'{names.URGENCY}="{urgency}"'),
            (_SLO, f'{names.URGENCY}=~"[{urgency + 1}-{names.URGENCIES}]"'),
            _GROUP,
        )
        for urgency in range(1, names.URGENCIES)
    ),
    Inhibition(
        "A page about an objective that burns already concerns its budget.",
        (_SLO, f'{names.TIER}!=""', f'{names.SEVERITY}="critical"'),
        (f'alertname=~"{"|".join(names.BUDGET_ALERTS)}"',),
        _GROUP,
    ),
    # Triton counts no requests to a model that is not ready: what it counts is sent.
    Inhibition(
        "Probes and a gateway see the requests to a model that is not ready fail.",
        _READINESS_PAGE,
        (_SLO, f'{names.SEEN_BY}!=""'),
        ("model",),
    ),
)
"""Matchers as Alertmanager writes them; nothing here knows names, thresholds or windows of tiers."""


def _alertname_matcher(*alerts: str) -> tuple[str, ...]:
    return (f'alertname="{alerts[0]}"' if len(alerts) == 1 else f'alertname=~"{"|".join(alerts)}"',)


def _of_servers(alerts: Iterable[Alert]) -> tuple[str, ...]:
    return tuple(alert.name for alert in alerts if "instance" in alert.labels)


_NO_PAGE = f'{names.SEVERITY}!="critical"'
"""A ticket must not inhibit a page."""
_OF_A_SERVER = _of_servers((*lifecycle.MODELS, *traffic.ALERTS, *llm.ALERTS))
_OF_A_GPU = ("instance", "gpu_uuid")
_OF_A_VERSION = ("instance", "model", "version")

_BURN_ALERTS = ('component="slo"', f'{names.TIER}!=""')
"""All burn alerts, also those of custom objectives, which choose the name."""

INHIBITIONS = (
    Inhibition(
        "While all servers are down, alerts about single servers and objectives add nothing.",
        _alertname_matcher("TritonAllServersDown"),
        _alertname_matcher(
            "TritonMostServersDown",
            "TritonServerDown",
            "TritonServerNotLive",
            "TritonServerNotStarting",
            "TritonModelDownEverywhere",
            "TritonTrafficVanished",
            names.UNKNOWN_ALERT,
        ),
        (),
    ),
    Inhibition(
        "While all servers are down, alerts about objectives add nothing, whatever they are called.",
        _alertname_matcher("TritonAllServersDown"),
        _BURN_ALERTS,
        (),
    ),
    Inhibition(
        "A model that is not ready only where a server is or was down: the alert about the server says so.",
        _alertname_matcher(lifecycle.LOST_SERVER.name),
        _alertname_matcher(
            BURN_ALERTS["readiness"], "TritonModelReplicasLow", "TritonModelNotReadyProlonged"
        ),
        ("model",),
        outdates=True,
    ),
    Inhibition(
        "The page about a server replaces its ticket.",
        _alertname_matcher("TritonMostServersDown"),
        _alertname_matcher("TritonServerDown", "TritonServerNotLive", "TritonServerNotStarting"),
        ("instance",),
    ),
    Inhibition(
        "While a server is down, none of its models is served.",
        _alertname_matcher("TritonServerDown", "TritonServerNotStarting", "TritonServerNotLive"),
        (
            *_alertname_matcher(
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
        "Each restart of a server makes its models not ready.",
        _alertname_matcher("TritonServerRestarting"),
        _alertname_matcher("TritonModelFlapping", "TritonServerNotReady"),
        ("instance",),
    ),
    Inhibition(
        "Without the exporter nothing is known about its server: alerts that still fire are out of date.",
        _alertname_matcher("TritonExporterDown"),
        (
            *_alertname_matcher(
                *_OF_A_SERVER,
                *_of_servers(lifecycle.SERVERS),
                *_of_servers(gpu.ALERTS),
                "TritonExporterStale",
            ),
            _NO_PAGE,
        ),
        ("instance",),
    ),
    Inhibition(
        "The page about a model whose exporters do not answer says already that nothing is known of it.",
        _alertname_matcher("TritonModelExporterDown"),
        _alertname_matcher(names.UNKNOWN_ALERT),
        ("model",),
    ),
    Inhibition(
        "The page about a model of a server whose exporter does not answer replaces the ticket about that server.",
        _alertname_matcher("TritonModelExporterDown"),
        _alertname_matcher("TritonExporterDown"),
        ("instance",),
    ),
    Inhibition(
        "Without any exporter no objective has data.",
        _alertname_matcher("TritonExporterAbsent"),
        _alertname_matcher("TritonExporterDown", names.UNKNOWN_ALERT, "TritonTrafficVanished"),
        (),
    ),
    Inhibition(
        "A model that no server serves is not served by each of them.",
        _alertname_matcher("TritonModelDownEverywhere"),
        _alertname_matcher(
            "TritonModelNotReadyProlonged",
            "TritonExpectedModelMissing",
            "TritonModelUnloadedInUse",
            "TritonModelExporterDown",
            "TritonProbeFailing",
            "TritonTrafficVanished",
        ),
        ("model",),
    ),
    Inhibition(
        "The alert on a version that is not ready names the state that it is in.",
        _alertname_matcher("TritonModelNotReadyProlonged"),
        _alertname_matcher("TritonExpectedModelMissing", "TritonModelStuckLoading"),
        _OF_A_VERSION,
    ),
    Inhibition(
        "With strict readiness, the default, a server is not ready while one of its models is not.",
        _alertname_matcher("TritonModelLoadFailed", "TritonModelNotReadyProlonged"),
        _alertname_matcher("TritonServerNotReady"),
        ("instance",),
    ),
    Inhibition(
        "A hardware error stops what runs on the GPU.",
        _alertname_matcher("GpuXidHardware", "GpuLost"),
        _alertname_matcher("GpuIdleWhileQueueing"),
        ("instance",),
    ),
    Inhibition(
        "A broken GPU has many symptoms.",
        _alertname_matcher("GpuXidHardware", "GpuLost", "GpuRowRemapFailed"),
        _alertname_matcher(
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
        _alertname_matcher("TritonModelStalled"),
        _alertname_matcher("TritonQueueBacklog", "TritonQueueDominates", "TritonRequestsRejected"),
        _OF_A_VERSION,
    ),
    Inhibition(
        "An engine that hangs admits no request.",
        _alertname_matcher("TrtLlmEngineStuck"),
        _alertname_matcher("LlmKvCacheNearFull", "TrtLlmSlotsFull", "LlmRequestsPaused"),
        _OF_A_VERSION,
    ),
    Inhibition(
        "A step that fails makes its ensemble fail: the step's own budget pages.",
        _alertname_matcher("TritonEnsembleStepFailing"),
        (*_alertname_matcher(Errors.burn_alert), _NO_PAGE),
        ("model",),
    ),
    Inhibition(
        "A burning queue budget already means that requests wait.",
        _alertname_matcher(Queue.burn_alert),
        _alertname_matcher("TritonQueueDominates", "TritonInstancesSaturated", "TritonModelHeadroomLow"),
        names.GROUPING,
    ),
    Inhibition(
        "A bridge that is down delivers nothing, and Alertmanager notices.",
        _alertname_matcher("AlertBridgeDown"),
        (*_alertname_matcher("AlertmanagerNotificationsFailing"), 'integration="webhook"'),
        (),
    ),
    *_OF_OBJECTIVES,
)


def in_force(tuning: Tuning) -> Iterator[Inhibition]:
    """Yield the inhibitions for the severities in alerts.yaml: no alert inhibits a more urgent one."""
    severities: dict[str, set[str]] = {
        **{name: {"critical", "warning"} for name in BURN_ALERTS.values()},
        **{
            alert.name: {tuned.severity for tuned in alert.tuned(tuning)}
            for alert in (*ALERTS, *OF_OBJECTIVES)
        },
    }
    for row in INHIBITIONS:
        if row in _OF_OBJECTIVES or row.outdates:
            yield row
            continue
        sources, targets = (
            {severity for name in _alert_names(side) for severity in severities.get(name, ())}
            for side in (row.source, row.target)
        )
        if row.target == _BURN_ALERTS:
            targets = {"critical", "warning"}
        if _NO_PAGE in row.target:
            targets.discard("critical")
        if not any(severity_rank(source) > severity_rank(target) for source in sources for target in targets):
            yield row
            continue
        for source in sorted(sources, key=severity_rank):
            urgent = names.SEVERITIES[: severity_rank(source)]
            fits = (f'{names.SEVERITY}!~"{"|".join(urgent)}"',) if urgent else ()
            yield replace(
                row,
                source=(*row.source, f'{names.SEVERITY}="{source}"'),
                target=(*row.target, *fits),
            )


def _alert_names(matchers: tuple[str, ...]) -> list[str]:
    quoted = [value for label, _, value in Matchers(matchers).split if label == "alertname"]
    return [name for value in quoted for name in value.strip('"').split("|")]
