"""Define the proofs of the meta family."""

from __future__ import annotations

from alerts.proofs.proof import Fires, boundary, fires, quiet, reset
from alerts.proofs.proof_series import MODEL, NOBODY, SERVER, VERSION, only, series
from triton_exporter.catalogue import EXPORTER_JOB, own, state
from triton_exporter.catalogue.external import stack
from triton_slo import bridge_series, names

_PROMETHEUS = {"instance": "prometheus:9090", "job": "prometheus"}
_GROUP = {**_PROMETHEUS, "rule_group": "/etc/prometheus/rules/triton-slo.yml;slo"}
# The job as kube-prometheus calls it; its config-reloader is a target of the same job.
_ALERTMANAGER = {"instance": "10.0.0.7:9093", "job": "alertmanager-main"}
_SIDECAR = {**_ALERTMANAGER, "instance": "10.0.0.7:8080"}
_WEBHOOK = {**_ALERTMANAGER, "integration": "webhook"}
_BRIDGE = {"instance": "bridge:9096", "job": bridge_series.BRIDGE_JOB}
_UP = series(stack.UP)
_UP_ELSEWHERE = series(stack.UP, SERVER, instance="gpu-2:9095")
_COPY = series(names.MODEL_EXPECTED_COPY, only(MODEL, "instance", "model"))
_SUCCESS = series(own.LAST_SUCCESS)
_LIVE = series(state.SERVER_LIVE)
_SAMPLES = series(stack.SAMPLES_SCRAPED)
_RULES = series(stack.RULE_FAILURES, _GROUP)
_MISSED = series(stack.RULE_MISSED, _GROUP)
_RELOADED = series(stack.CONFIG_RELOADED, _PROMETHEUS)
_KNOWN = series(stack.ALERTMANAGERS, _PROMETHEUS)
_DROPPED = series(stack.DROPPED, _PROMETHEUS)
_AM_UP = series(stack.UP, _ALERTMANAGER)
_SIDECAR_UP = series(stack.UP, _SIDECAR)
_AM_INFO = series(stack.AM_INFO, _ALERTMANAGER, version="0.28.1")
_AM_ERRORS = series(stack.SEND_ERRORS, _PROMETHEUS, alertmanager="http://10.0.0.7:9093/api/v2/alerts")
_AM_RELOADED = series(stack.AM_CONFIG_RELOADED, _ALERTMANAGER)
_AM_FAILED = series(stack.AM_FAILED, _WEBHOOK, reason="serverError")
_BRIDGE_UP = series(stack.UP, _BRIDGE)
_OLDEST = series(bridge_series.OLDEST_UNDELIVERED_AGE, _BRIDGE)
_SLACK = series(bridge_series.SEND_FAILURES, _BRIDGE, error="rate_limited")
_STORE = series(bridge_series.STORE_FAILURES, _BRIDGE)

_COMPACTIONS = series(stack.COMPACTIONS_FAILED, _PROMETHEUS)

DISK = (
    fires(
        "PrometheusDiskFailing",
        "fires when blocks cannot be written",
        {_COMPACTIONS: "0x4 1x120"},
        "8m",
        Fires(_PROMETHEUS),
        before="6m",
    ),
    quiet("PrometheusDiskFailing", "is quiet about failures long ago", {_COMPACTIONS: "7x120"}, "20m"),
    reset("PrometheusDiskFailing", "takes a restart for no failure", {_COMPACTIONS: "7x20 0x100"}, "20m"),
)

EXPORTER = (
    fires("Watchdog", "always fires, with no series at all", {}, "0s", NOBODY),
    fires(
        "TritonExporterDown",
        "fires after three minutes without a scrape",
        {_UP: "1x4 0x30"},
        "4m15s",
        Fires(SERVER),
        before="4m",
    ),
    quiet("TritonExporterDown", "is quiet while scrapes work", {_UP: "1x30"}, "6m"),
    quiet("TritonExporterDown", "starts over after one scrape that worked", {_UP: "0x11 1 0x10"}, "4m"),
    quiet(
        "TritonExporterDown",
        "is quiet about other jobs",
        {series(stack.UP, {"instance": "gpu-1:9100", "job": "node"}): "0x30"},
        "6m",
    ),
    fires(
        "TritonModelExporterDown",
        "fires after three minutes where no other server serves the model",
        {
            _UP: "1x4 0x30",
            _COPY: "1x8 stale",
            _UP_ELSEWHERE: "1x34",
            series(state.MODEL_READY, VERSION, instance="gpu-2:9095"): "0x34",
        },
        "4m15s",
        Fires(only(MODEL, "instance", "model")),
        before="4m",
    ),
    quiet(
        "TritonModelExporterDown",
        "leaves a model of another server that answers to the ticket",
        {
            _UP: "1x4 0x30",
            _COPY: "1x8 stale",
            _UP_ELSEWHERE: "1x34",
            series(state.MODEL_READY, VERSION, instance="gpu-2:9095"): "1x34",
        },
        "8m",
    ),
    quiet(
        "TritonModelExporterDown",
        "is quiet in a rolling deployment: the target is gone, and not down",
        {_UP: "1x4 stale", _COPY: "1x8 stale", _UP_ELSEWHERE: "1x34"},
        "8m",
    ),
    quiet(
        "TritonModelExporterDown",
        "leaves the last exporter of all to TritonExporterAbsent",
        {_UP: "1x4 0x30", _COPY: "1x8 stale"},
        "8m",
    ),
    fires(
        "TritonExporterAbsent",
        "fires when Prometheus has no such target",
        {_AM_UP: "1x40"},
        "3m",
        Fires({"job": EXPORTER_JOB}),
    ),
    boundary(
        "TritonExporterAbsent",
        "is quiet for five minutes when the target is gone, as while a pod is replaced",
        {_UP: "1x4 stale"},
        "5m45s",
    ),
    fires(
        "TritonExporterAbsent",
        "fires when the only one, or all of them, are down",
        {_UP: "1x4 0x40", _UP_ELSEWHERE: "1x2 0x42"},
        "4m15s",
        Fires({"job": EXPORTER_JOB}),
    ),
    quiet(
        "TritonExporterAbsent",
        "is quiet while one of several answers",
        {_UP: "0x40", _UP_ELSEWHERE: "1x40"},
        "8m",
    ),
    fires(
        "TritonExporterStale",
        "fires when the last look is minutes old",
        {_SUCCESS: "0x60", _LIVE: "1x60"},
        "6m",
        Fires(SERVER, "6m 0s"),
        before="4m",
    ),
    quiet(
        "TritonExporterStale",
        "is quiet while Triton is down: then nothing can be seen",
        {_SUCCESS: "0x60", _LIVE: "0x60"},
        "10m",
    ),
    quiet(
        "TritonExporterStale",
        "is quiet while the exporter looks",
        {_SUCCESS: "0+15x60", _LIVE: "1x60"},
        "10m",
    ),
    fires(
        "TritonExporterInputBroken",
        "fires when Triton's log cannot be read",
        {series(own.LOG_READABLE): "0x60"},
        "10m",
        Fires(only(SERVER, "instance")),
        before="9m45s",
    ),
    fires(
        "TritonExporterInputBroken",
        "fires when the list of expected models has a mistake",
        {series(own.EXPECTED_FILE_VALID): "0x60", series(own.LOG_READABLE): "1x60"},
        "10m",
        Fires(only(SERVER, "instance")),
    ),
    quiet(
        "TritonExporterInputBroken",
        "is quiet while both can be read",
        {series(own.LOG_READABLE): "1x60", series(own.EXPECTED_FILE_VALID): "1x60"},
        "14m",
    ),
    fires(
        "TritonCardinalityHigh",
        "fires at 60,000 series",
        {_SAMPLES: "60000x140"},
        "30m",
        Fires(only(SERVER, "instance"), "60k"),
        before="29m45s",
    ),
    boundary("TritonCardinalityHigh", "is quiet at exactly 50,000", {_SAMPLES: "50000x140"}, "33m"),
    quiet(
        "TritonCardinalityHigh",
        "is quiet about other jobs",
        {series(stack.SAMPLES_SCRAPED, _PROMETHEUS): "60000x140"},
        "33m",
    ),
)

PIPELINE = (
    fires(
        "PrometheusRuleFailures",
        "fires when evaluations fail",
        {_RULES: "0+1x60"},
        "10m",
        Fires(_GROUP, "20"),
        before="5m",
    ),
    quiet("PrometheusRuleFailures", "is quiet about old failures", {_RULES: "7x60"}, "12m"),
    reset("PrometheusRuleFailures", "takes a restart for no failure", {_RULES: "7x20 0x40"}, "12m"),
    fires(
        "PrometheusRuleEvaluationSlow",
        "fires when evaluations are skipped",
        {_MISSED: "0+1x100"},
        "20m",
        Fires(_GROUP),
        before="15m",
    ),
    quiet("PrometheusRuleEvaluationSlow", "is quiet about old ones", {_MISSED: "7x100"}, "20m"),
    reset("PrometheusRuleEvaluationSlow", "takes a restart for none", {_MISSED: "7x20 0x80"}, "22m"),
    fires(
        "PrometheusConfigReloadFailed",
        "fires after a reload that failed",
        {_RELOADED: "0x80"},
        "10m",
        Fires(_PROMETHEUS),
        before="9m45s",
    ),
    quiet(
        "PrometheusConfigReloadFailed", "is quiet when the last reload worked", {_RELOADED: "0x8 1x80"}, "18m"
    ),
    fires(
        "PrometheusNotConnectedToAlertmanager",
        "fires when it knows none",
        {_KNOWN: "0x60"},
        "5m",
        Fires(_PROMETHEUS),
        before="4m45s",
    ),
    quiet("PrometheusNotConnectedToAlertmanager", "is quiet with one", {_KNOWN: "1x60"}, "10m"),
    fires(
        "PrometheusNotificationsDropped",
        "fires when alerts are dropped",
        {_DROPPED: "0+1x60"},
        "10m",
        Fires(_PROMETHEUS, "20"),
        before="5m",
    ),
    quiet("PrometheusNotificationsDropped", "is quiet about old ones", {_DROPPED: "7x60"}, "12m"),
    reset("PrometheusNotificationsDropped", "takes a restart for none", {_DROPPED: "7x20 0x40"}, "12m"),
    fires(
        "AlertmanagerDown",
        "fires after five minutes without a scrape, whatever its job is called",
        {_AM_UP: "1x4 0x60", _AM_INFO: "1x4 stale", _SIDECAR_UP: "1x64"},
        "6m15s",
        Fires(only(_ALERTMANAGER, "instance")),
    ),
    fires(
        "AlertmanagerDown",
        "fires when Prometheus cannot send to it, although nobody scrapes it",
        {_AM_ERRORS: "0 0+4x60"},
        "6m",
        Fires(only(_ALERTMANAGER, "instance")),
    ),
    fires(
        "AlertmanagerDown",
        "fires once for an Alertmanager that fails both ways",
        {_AM_UP: "1x4 0x60", _AM_INFO: "1x4 stale", _AM_ERRORS: "0x4 0+4x60"},
        "7m",
        Fires(only(_ALERTMANAGER, "instance")),
    ),
    boundary(
        "AlertmanagerDown",
        "is quiet before the five minutes are over",
        {_AM_UP: "1x4 0x60", _AM_INFO: "1x4 stale"},
        "6m",
    ),
    quiet("AlertmanagerDown", "is quiet while scrapes work", {_AM_UP: "1x60", _AM_INFO: "1x60"}, "10m"),
    quiet(
        "AlertmanagerDown",
        "is quiet about another container of its job",
        {_AM_UP: "1x60", _AM_INFO: "1x60", _SIDECAR_UP: "0x60"},
        "10m",
    ),
    quiet(
        "AlertmanagerDown", "is quiet about a single notification that failed", {_AM_ERRORS: "0x8 4x60"}, "6m"
    ),
    reset(
        "AlertmanagerDown", "takes a restart of Prometheus for no failure", {_AM_ERRORS: "9x20 0x40"}, "12m"
    ),
    fires(
        "AlertmanagerConfigReloadFailed",
        "fires after a reload that failed",
        {_AM_RELOADED: "0x80"},
        "10m",
        Fires(_ALERTMANAGER),
        before="9m45s",
    ),
    quiet(
        "AlertmanagerConfigReloadFailed",
        "is quiet when the last reload worked",
        {_AM_RELOADED: "0x8 1x80"},
        "18m",
    ),
    fires(
        "AlertmanagerNotificationsFailing",
        "fires when deliveries fail",
        {_AM_FAILED: "0+1x60"},
        "10m",
        Fires(only(_WEBHOOK, "job", "integration")),
        before="5m",
    ),
    quiet(
        "AlertmanagerNotificationsFailing",
        "is quiet while another member of the cluster delivers",
        {
            _AM_FAILED: "0+1x60",
            series(stack.AM_FAILED, _WEBHOOK, instance="10.0.0.8:9093", reason="serverError"): "0x60",
        },
        "12m",
    ),
    quiet("AlertmanagerNotificationsFailing", "is quiet about old failures", {_AM_FAILED: "7x60"}, "12m"),
    reset(
        "AlertmanagerNotificationsFailing", "takes a restart for no failure", {_AM_FAILED: "7x20 0x40"}, "12m"
    ),
)

BRIDGE = (
    fires(
        "AlertBridgeDown",
        "fires after two minutes without a scrape",
        {_BRIDGE_UP: "0x60"},
        "2m",
        Fires(_BRIDGE),
        before="1m45s",
    ),
    quiet("AlertBridgeDown", "is quiet while scrapes work", {_BRIDGE_UP: "1x60"}, "10m"),
    fires(
        "AlertBridgeDeliveryFailing",
        "fires when a message waits for minutes, and says why",
        {_OLDEST: "0+15x60", _SLACK: "0+1x60"},
        "3m30s",
        Fires(_BRIDGE, "3m 30s", "rate_limited"),
    ),
    boundary("AlertBridgeDeliveryFailing", "is quiet before the minute is over", {_OLDEST: "0+15x60"}, "3m"),
    quiet(
        "AlertBridgeDeliveryFailing",
        "is quiet about a delivery that took a minute",
        {_OLDEST: "0 15 30 45 60 0x60"},
        "10m",
    ),
    fires(
        "AlertBridgeStoreFailing",
        "fires at the first refused notification",
        {_STORE: "0x8 1x60"},
        "3m",
        Fires(_BRIDGE),
    ),
    boundary(
        "AlertBridgeStoreFailing", "ends when window and grace have passed", {_STORE: "0x8 1x60"}, "14m"
    ),
    quiet("AlertBridgeStoreFailing", "is quiet about old failures", {_STORE: "7x60"}, "12m"),
    reset("AlertBridgeStoreFailing", "takes a restart for no failure", {_STORE: "7x20 0x40"}, "12m"),
)

PROOFS = (*DISK, *EXPORTER, *PIPELINE, *BRIDGE)
