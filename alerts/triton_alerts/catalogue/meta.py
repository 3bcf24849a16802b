"""Alerts about the monitoring stack itself."""

from __future__ import annotations

from functools import partial

from triton_alerts.alert import Alert, Lookup
from triton_exporter.catalogue import EXPORTER_JOB, own, state
from triton_exporter.catalogue.external import stack
from triton_slo import bridge_series, links, names, signals
from triton_slo.alert_settings import AlertThreshold

_meta_alert = partial(
    Alert, component="meta", dashboard=links.ON_CALL, owner="observability", labels=("instance",)
)


EXPORTER = (
    _meta_alert(
        name="Watchdog",
        expr="vector(1)",
        severity="none",
        labels=(),
        summary="Alerting works",
        description="This alert always fires. While its notifications arrive, Prometheus, Alertmanager "
        "and the receiver work; when they stop arriving, one of these does not work.",
        action="While it fires, there is nothing to do. When its notifications stop, check Prometheus, "
        "then Alertmanager, then the receiver.",
        silence="never",
    ),
    _meta_alert(
        name="TritonExporterDown",
        expr=f"{signals.EXPORTER_UP} == 0",
        severity="warning",
        for_="3m",
        keep_firing_for="1m",
        summary="The exporter of Triton {{ $labels.instance }} does not answer Prometheus: the server is not monitored",
        description="Whether its Triton server works is unknown. If the exporter runs as a sidecar in the server's pod, the server may be down "
        "too.",
        action="Query /v2/health/ready of the Triton server directly; then check the exporter's pod or process: the targets page "
        "of Prometheus has its address.",
        silence="instance, while the pod is moved on purpose",
    ),
    _meta_alert(
        name="TritonModelExporterDown",
        # A target that service discovery has dropped is no fault yet: that is TritonSLOUnknown, after ten minutes.
        expr=f"""\
group by (cluster, instance, model) (
  last_over_time({names.MODEL_EXPECTED_COPY}[1d]) == 1 and on (cluster, instance) {signals.EXPORTER_UP} == 0
)
unless on (cluster, model) {state.MODEL_READY} == 1
and on (cluster) {signals.EXPORTER_UP} == 1""",
        severity="critical",
        labels=("instance", "model"),
        owner="ml-platform",
        for_="3m",
        keep_firing_for="1m",
        summary="The exporter of {{ $labels.instance }} does not answer Prometheus: whether model {{ $labels.model }} is served is unknown",
        description="No other server has the model ready. If the exporter runs as a sidecar in the server's pod, the server "
        "may be down, too.",
        action="Query /v2/health/ready of the Triton server directly; then check the exporter's pod or process: the targets page "
        "of Prometheus has its address.",
        silence="model, while the pod of its only server is moved on purpose",
    ),
    _meta_alert(
        name="TritonExporterAbsent",
        # A pod that is replaced may be no target for some minutes.
        expr=f"""\
absent_over_time({signals.EXPORTER_UP}[2m])
or
max by (cluster, job) ({signals.EXPORTER_UP}) == 0""",
        severity="critical",
        labels=("job",),
        for_="3m",
        keep_firing_for="1m",
        summary="No Triton exporter answers Prometheus: no server is monitored",
        description="Prometheus has no target in job {{ $labels.job }}, or none of them answers: service "
        "discovery finds no target, the scrape configuration was removed, or all exporters are down.",
        action="Open the targets page of Prometheus and compare its scrape configuration.",
        silence="never",
    ),
    _meta_alert(
        name="TritonExporterStale",
        expr=f"""\
{signals.EXPORTER_AGE.expr(str)} > $threshold
and on (instance) {state.SERVER_LIVE} == 1""",
        threshold=signals.EXPORTER_AGE.threshold,
        severity="warning",
        for_="2m",
        keep_firing_for="2m",
        summary="The data of the Triton exporter {{ $labels.instance }} is "
        '{{ $value | printf "%.0f" | humanizeDuration }} old',
        description="The exporter answers Prometheus, but can no longer read the metrics of its Triton, which is live. "
        "Its numbers may be wrong.",
        action="Read the exporter's log, and triton_exporter_scrape_failures_total by endpoint.",
        silence="instance",
    ),
    _meta_alert(
        name="TritonExporterInputBroken",
        expr=f"min without (job) ({own.LOG_READABLE}) == 0 or min without (job) ({own.EXPECTED_FILE_VALID}) "
        "== 0",
        severity="warning",
        for_="10m",
        keep_firing_for="5m",
        summary="The Triton exporter {{ $labels.instance }} cannot read Triton's log, or its list of expected models",
        description="The file is not readable or contains a mistake. In the first case, failed reloads are not detected; in the second case, the "
        "exporter uses the last valid list.",
        action="Read the exporter's log; the log names the file and the mistake.",
        silence="instance",
    ),
    _meta_alert(
        name="TritonCardinalityHigh",
        expr=f'sum without (job) ({stack.SAMPLES_SCRAPED}{{job="{EXPORTER_JOB}"}}) > $threshold',
        threshold=AlertThreshold(
            50000,
            "number",
            "series in one scrape of an exporter",
            "A server with 200 models exposes about 25,000 series: this is twice that.",
        ),
        severity="info",
        for_="30m",
        keep_firing_for="30m",
        summary="The Triton exporter {{ $labels.instance }} exposes {{ $value | humanize }} series",
        description="Prometheus stores all of them at each scrape. Triton keeps the failure counters of every model version it ever loaded, and summaries multiply by five.",
        action="Drop unused series with metric_relabel_configs, or restart Triton in a period of low "
        "traffic.",
        silence="instance",
    ),
)

PIPELINE = (
    _meta_alert(
        name="PrometheusRuleFailures",
        expr=f"increase({stack.RULE_FAILURES}[5m]) > 0",
        severity="warning",
        labels=("instance", "rule_group"),
        for_="5m",
        keep_firing_for="15m",
        summary="Prometheus {{ $labels.instance }} failed to evaluate rules of {{ $labels.rule_group }}",
        description="{{ $value | humanize }} evaluations failed within [5m]. Its alerts cannot fire, and its series are not recorded.",
        action="Read the error on the rules page of Prometheus.",
        silence="rule_group",
    ),
    _meta_alert(
        name="PrometheusRuleEvaluationSlow",
        expr=f"increase({stack.RULE_MISSED}[5m]) > 0",
        severity="warning",
        labels=("instance", "rule_group"),
        for_="15m",
        keep_firing_for="30m",
        summary="Prometheus {{ $labels.instance }} skipped evaluations of rule group {{ $labels.rule_group }}",
        description="Evaluating the group takes longer than its interval: its alerts fire late.",
        action="Give Prometheus more CPU, or lengthen the group's interval.",
        silence="rule_group",
    ),
    _meta_alert(
        name="PrometheusDiskFailing",
        # Blocks need space first; once the log does not fit either, Prometheus stores nothing about itself.
        expr=f"""\
increase({stack.COMPACTIONS_FAILED}[3h]) > 0
or
increase({stack.WAL_WRITES_FAILED}[3h]) > 0""",
        severity="warning",
        for_="5m",
        keep_firing_for="15m",
        summary="Prometheus {{ $labels.instance }} failed to write to its disk",
        description="Prometheus failed to write a block or its log within the last [3h]: most often its disk is full. When Prometheus cannot store samples, no alert can fire.",
        action="Free space on its volume, or enlarge the volume; then lower --storage.tsdb.retention.size.",
        silence="instance, while its volume is enlarged",
    ),
    _meta_alert(
        name="PrometheusConfigReloadFailed",
        expr=f"max_over_time({stack.CONFIG_RELOADED}[5m]) == 0",
        severity="warning",
        for_="10m",
        keep_firing_for="5m",
        summary="Prometheus {{ $labels.instance }} runs with an old configuration",
        description="Its last reload failed. Changed rules and targets have no effect, and a restart will fail.",
        action="Run promtool check config on its configuration.",
        silence="instance",
    ),
    _meta_alert(
        name="PrometheusNotConnectedToAlertmanager",
        expr=f"max_over_time({stack.ALERTMANAGERS}[5m]) < 1",
        severity="warning",
        for_="5m",
        keep_firing_for="5m",
        summary="Prometheus {{ $labels.instance }} has no Alertmanager to send alerts to",
        description="No notification is sent; only the absence of the Watchdog alert, which always fires, shows this.",
        action="Check the alerting section of its configuration and its service discovery.",
        silence="never",
    ),
    _meta_alert(
        name="PrometheusNotificationsDropped",
        expr=f"increase({stack.DROPPED}[5m]) > 0",
        severity="warning",
        for_="5m",
        keep_firing_for="15m",
        summary="Prometheus {{ $labels.instance }} could not send {{ $value | humanize }} alerts within [5m]",
        description="No Alertmanager accepted them: nobody is notified of these alerts.",
        action="Check whether Alertmanager runs and whether Prometheus can reach it.",
        silence="instance",
    ),
    _meta_alert(
        name="AlertmanagerDown",
        # Found by its own series and by failures to send, because its job has another name in every installation.
        expr=f"""\
max by (cluster, instance) (
  {stack.UP} == 0 and on (cluster, job, instance) last_over_time({stack.AM_INFO}[1d])
)
or
max by (cluster, instance) (
  label_replace(increase({stack.SEND_ERRORS}[3m]) > 0, "instance", "$1", "alertmanager", "https?://([^/]+).*")
)""",
        severity="warning",
        for_="5m",
        keep_firing_for="5m",
        summary="Alertmanager {{ $labels.instance }} does not answer Prometheus",
        description="It does not respond to scrapes, or does not accept the alerts that Prometheus sends. If it is the only "
        "Alertmanager, no notification is sent; only the absence of the Watchdog alert, which always fires, shows this.",
        action="Check the log and the disk of Alertmanager; then restart it.",
        silence="instance, while one of several is restarted",
    ),
    _meta_alert(
        name="AlertmanagerConfigReloadFailed",
        expr=f"max_over_time({stack.AM_CONFIG_RELOADED}[5m]) == 0",
        severity="warning",
        for_="10m",
        keep_firing_for="5m",
        summary="Alertmanager {{ $labels.instance }} runs with an old configuration",
        description="Its last reload failed. Changed routes have no effect, and a restart will fail.",
        action="Run amtool check-config on its configuration.",
        silence="instance",
    ),
    _meta_alert(
        name="AlertmanagerNotificationsFailing",
        # The members of a cluster deliver for each other.
        expr="min by (cluster, job, integration) "
        f"(sum by (cluster, job, instance, integration) (rate({stack.AM_FAILED}[5m]))) > 0",
        severity="critical",
        labels=("job", "integration"),
        for_="5m",
        keep_firing_for="5m",
        summary="Every Alertmanager of job {{ $labels.job }} failed to send notifications through "
        "{{ $labels.integration }} within [5m]",
        description="If an alert fires and resolves before notifications work again, nobody is "
        "notified of it.",
        action="Read the reason in Alertmanager's log, then check the receiver.",
        silence="integration",
    ),
)

BRIDGE = (
    _meta_alert(
        name="AlertBridgeDown",
        expr=f'{stack.UP}{{job="{bridge_series.BRIDGE_JOB}"}} == 0',
        severity="critical",
        for_="2m",
        keep_firing_for="1m",
        summary="The Slack bridge {{ $labels.instance }} is down",
        description="It does not answer Prometheus. Pages do not reach Slack; "
        "Alertmanager retries the notifications of alerts that still fire.",
        action="Restart the bridge; until it runs, watch the alerts in Alertmanager.",
        silence="instance, while the bridge is updated",
    ),
    _meta_alert(
        name="AlertBridgeDeliveryFailing",
        expr=f"{signals.UNDELIVERED_AGE.expr(str)} > $threshold",
        threshold=signals.UNDELIVERED_AGE.threshold,
        severity="critical",
        for_="1m",
        keep_firing_for="2m",
        summary="Messages of the Slack bridge {{ $labels.instance }} have been waiting for "
        '{{ $value | printf "%.0f" | humanizeDuration }}',
        description="Slack does not accept them. They are stored on disk, but nobody has seen them.",
        action="Watch the alerts in Alertmanager meanwhile. Check the bot token, the channels and Slack's status page.",
        cause_from=Lookup(
            f"sum by (error) (increase({bridge_series.SEND_FAILURES}{{%q}}[10m])) > 0",
            ("instance",),
            "error",
        ),
        silence="never",
    ),
    _meta_alert(
        name="AlertBridgeStoreFailing",
        expr=f"increase({bridge_series.STORE_FAILURES}[5m]) > 0",
        severity="critical",
        keep_firing_for="5m",
        summary="The Slack bridge {{ $labels.instance }} failed to write to its disk",
        description="It refuses notifications that it cannot store. Alertmanager retries; an alert that resolves before a retry succeeds is lost.",
        action="Free space on the bridge's volume, or fix its permissions.",
        silence="never",
    ),
)

ALERTS = (*EXPORTER, *PIPELINE, *BRIDGE)
