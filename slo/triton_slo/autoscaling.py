"""Autoscaling objects that follow the traffic over the break rate, which `tritonwatch advise --watch` serves.

With a target of the type Value, the HorizontalPodAutoscaler wants ceil(ready pods * value / target) pods and changes
nothing within 10 % of it: kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale. The headroom is
that of the servers that run, so traffic over break rate is such a value; an AverageValue would be divided by the pods.
"""

from __future__ import annotations

import textwrap

from triton_exporter.catalogue import triton
from triton_exporter.catalogue.external import headroom
from triton_slo.artifact import Artifact
from triton_slo.promql import Matchers, parse_selector, quote
from triton_slo.yaml_text import HEADER

PART = "autoscaling"
TARGET = 0.8
"""Traffic over break rate that is kept: 20 % of the break rate are room for what comes while a replica starts."""
_EDIT = """\
# Made by `tritonwatch generate --format keda`. In what you apply, set the names, the number of replicas{}.
# The Deployment has to be the only one that serves these models to this Prometheus.
"""
_WINDOWS = """\
# A new replica loads its models, and the headroom knows it some minutes later: do not add one more meanwhile.
scaleUp: { stabilizationWindowSeconds: 300 }
scaleDown: { stabilizationWindowSeconds: 600 }"""


def query(selector: str = "") -> str:
    """Return PromQL: the largest share of the break rate that any model's traffic is at; nothing if it is not known.

    The headroom is that of the last traffic: without any now it counts for nothing. Where the headroom of a model with
    traffic is unknown, the value is at least the target, so that no replica is removed (an ensemble waits in the queues
    of its steps, which have a headroom of their own).
    """
    matchers = Matchers(parse_selector(selector)[0])
    now = f"sum by (model, version) (rate({triton.REQUEST_SUCCESS}{matchers}[2m]))"
    least = f'{headroom.RATIO}{{bound="least"}}'
    unknown = f'{headroom.UNKNOWN}{{reason!~"too_little_data|ensemble"}}'
    return (
        f"max(\n  ({now} > bool 0)\n  / on (model, version) group_right () {least}\n"
        f"  or {TARGET} * ({unknown}\n    unless on (model, version, slo) {least})\n)"
    )


def artifacts(prometheus: str, selector: str) -> tuple[Artifact, ...]:
    """Return a ScaledObject of KEDA; and a HorizontalPodAutoscaler with its rule for prometheus-adapter."""
    text = query(selector)
    metadata = "metadata: { name: triton, namespace: triton }\n"
    keda = f"""\
{_EDIT.format(", and Prometheus as KEDA reaches it")}apiVersion: keda.sh/v1alpha1
kind: ScaledObject
{metadata}spec:
  scaleTargetRef: {{ name: triton }}
  minReplicaCount: 1
  maxReplicaCount: 8
  # Without a value (an error, because of ignoreNullValues) the number of replicas stays.
  fallback: {{ failureThreshold: 3, replicas: 1, behavior: currentReplicasIfHigher }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {_indented(_WINDOWS, 8)}
  triggers:
    - type: prometheus
      metricType: Value
      metadata:
        serverAddress: {quote(prometheus or "http://prometheus-operated.monitoring:9090")}
        query: |-
          {_indented(text, 10)}
        threshold: "{TARGET}"
        ignoreNullValues: "false"
"""
    hpa = f"""\
{_EDIT.format("")}# It needs prometheus-adapter with adapter-rule.yaml. Without a value the number of replicas stays.
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
{metadata}spec:
  scaleTargetRef: {{ apiVersion: apps/v1, kind: Deployment, name: triton }}
  minReplicas: 1
  maxReplicas: 8
  metrics:
    - type: External
      external:
        metric: {{ name: triton_traffic_over_break_rate }}
        target: {{ type: Value, value: {TARGET * 1000:.0f}m }}
  behavior:
    {_indented(_WINDOWS, 4)}
"""
    rule = f"""\
{HEADER}# A rule for `externalRules` of prometheus-adapter's configuration (`rules.external` of its Helm chart).
- seriesQuery: '{headroom.RATIO}{{bound="least"}}'
  resources: {{ namespaced: false }}
  name: {{ as: triton_traffic_over_break_rate }}
  metricsQuery: |-
    {_indented(text, 4)}
"""
    files = {"keda.yaml": keda, "hpa.yaml": hpa, "adapter-rule.yaml": rule}
    return tuple(Artifact(PART, name, text) for name, text in files.items())


def _indented(text: str, by: int) -> str:
    return textwrap.indent(text, " " * by).lstrip()
