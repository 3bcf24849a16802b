"""Requests as a proxy, a mesh or a client's library counts them: each source is a row of `GATEWAYS`.

A status of a failed server is 5xx, or one of the gRPC codes that OpenTelemetry's conventions call an
error of the server. Requests that the client gave up do not count at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from triton_exporter.catalogue import Metric
from triton_exporter.catalogue.external import gateway
from triton_slo.fields import LabelName, Regex, Value

GatewayName = Literal[
    "envoy",
    "envoy-virtual-cluster",
    "istio",
    "ingress-nginx",
    "knative",
    "knative-revision",
    "grpc-server",
    "grpc-client",
    "otel-http-server",
    "otel-http-client",
    "otel-rpc-server",
    "otel-rpc-client",
]
GRPC_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""Each at the place of its number."""
SERVER_FAILURES = (
    "5xx",
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
)
"""HTTP and gRPC codes that OpenTelemetry's semantic conventions call errors of a server."""
GIVEN_UP = ("0", "499", "CANCELLED")
"""Requests that the client gave up: Istio's 0 (no response), nginx's 499, gRPC's CANCELLED."""
SUCCESSES = ("2xx", "3xx", "OK")
EVERY = "(.+)"
_PATH = r"/v2/models/([^/]+)(?:/.*)?"
_PREDICTOR = "(.+?)(?:-predictor(?:-default)?)?"
"""KServe's Knative service of a model."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OTEL_SECONDS = (*_SECONDS, 0.075, 0.75, 7.5)
_OPENCENSUS_SECONDS = (
    *(
        edge / 1000
        for edge in (5, 10, 20, 40, 60, 80, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900)
    ),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)
_ENVOY_SECONDS = (0.0005, 0.001, *_SECONDS, 30.0, 60.0, 300.0, 600.0)


class ModelFrom(Value):
    """The label that names the model, and which part of its value does: the pattern's one group."""

    label: LabelName
    pattern: Regex = EVERY

    @model_validator(mode="after")
    def _one_group(self) -> Self:
        if re.compile(self.pattern).groups != 1:
            raise ValueError(
                "the pattern marks the model's name by one (group), as in /v2/models/([^/]+)/infer"
            )
        return self


@dataclass(frozen=True, slots=True)
class Gateway:
    """A source: its counter and histogram, the labels of the status and of the model, and what exposes them."""

    requests: Metric | None
    """None: the histogram counts the requests."""
    durations: Metric
    model: ModelFrom
    setting: str
    """Setting that makes the series appear, in words."""
    http: str = ""
    grpc: str = ""
    always: tuple[str, ...] = ()
    """Matchers that keep a request from being counted twice."""
    unanswered: tuple[str, ...] = ()
    """Matchers of requests that got no status, and failed."""
    bounds: Sequence[float] = _SECONDS
    """Default buckets in seconds."""

    @property
    def counted(self) -> str:
        """Series with all requests."""
        return self.durations.count if self.requests is None else str(self.requests)

    @property
    def good(self) -> str:
        """The status of a request that succeeded."""
        return "2xx" if self.http else "OK"

    def edge(self, seconds: float) -> float:
        """Return a bucket's edge in the histogram's unit."""
        return round(seconds * 1000, 6) if self.durations.unit == "ms" else seconds

    def statuses(self, codes: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the status labels, each with a pattern of those codes that it can have."""
        known = tuple(codes)
        for label, written in ((self.http, _http), (self.grpc, _grpc)):
            if label and (patterns := [pattern for code in known if (pattern := written(code))]):
                yield label, "|".join(patterns)


def _http(code: str) -> str:
    return code.replace("x", ".") if code[0].isdigit() else ""


def _grpc(code: str) -> str:
    """Return names as Python, Java and OpenTelemetry write them, as Go does, and the number, as Istio does."""
    if code[0].isdigit():
        return ""
    words = code if code == "OK" else code.replace("_", " ").title().replace(" ", "")
    also = "Canceled" if code == "CANCELLED" else ""
    return "|".join(dict.fromkeys(filter(None, (code, words, also, str(GRPC_CODES.index(code))))))


def _otel(duration: Metric, kind: str, http: str = "", grpc: str = "") -> Gateway:
    """Return a source of OpenTelemetry: what got no response has a type of error, and no status."""
    setting = _OTEL_SETTING.format(kind, kind.split()[0].lower())
    unanswered = (f'{http or grpc}=""', 'error_type!=""')
    return Gateway(None, duration, _LABELLED, setting, http, grpc, (), unanswered, _OTEL_SECONDS)


_LABELLED = ModelFrom(label="model")
_CLUSTER_SETTING = (
    "route each model to a cluster of its name, and scrape Envoy's admin port at /stats/prometheus"
)
_INTERCEPTOR_SETTING = (
    "add the {} interceptor of the gRPC library's Prometheus middleware, and a label `model`; for latency "
    "switch its histogram on"
)
_OTEL_SETTING = (
    "export OpenTelemetry's {} metrics to Prometheus with an attribute `model`; older instrumentation needs "
    "OTEL_SEMCONV_STABILITY_OPT_IN={} for these names"
)
GATEWAYS: Mapping[str, Gateway] = {
    "envoy": Gateway(
        gateway.ENVOY_REQUESTS,
        gateway.ENVOY_DURATION,
        ModelFrom(label="envoy_cluster_name"),
        _CLUSTER_SETTING,
        http="envoy_response_code",
        bounds=_ENVOY_SECONDS,
    ),
    "envoy-virtual-cluster": Gateway(
        gateway.ENVOY_VIRTUAL_REQUESTS,
        gateway.ENVOY_VIRTUAL_DURATION,
        ModelFrom(label="envoy_virtual_cluster"),
        "give Envoy's virtual host a virtual cluster for each model's path (`virtual_clusters`), and scrape its "
        "admin port at /stats/prometheus",
        http="envoy_response_code",
        bounds=_ENVOY_SECONDS,
    ),
    "istio": Gateway(
        gateway.ISTIO_REQUESTS,
        gateway.ISTIO_DURATION,
        ModelFrom(label="destination_service_name"),
        "scrape the proxies of the clients or of the ingress gateway (port 15020, /stats/prometheus); only they "
        "report as `source`",
        http="response_code",
        grpc="grpc_response_status",
        always=('reporter="source"',),
        bounds=_ENVOY_SECONDS,
    ),
    "ingress-nginx": Gateway(
        gateway.NGINX_REQUESTS,
        gateway.NGINX_DURATION,
        ModelFrom(label="path", pattern=_PATH),
        "start the controller with --enable-metrics=true (Helm: controller.metrics.enabled) and scrape port 10254; "
        "give each model a path in its Ingress, and use --metrics-per-host=false where a host is a wildcard",
        http="status",
    ),
    "knative": Gateway(
        None,
        gateway.KNATIVE_DURATION,
        ModelFrom(label="kn_service_name", pattern=_PREDICTOR),
        "set request-metrics-protocol: prometheus in the ConfigMap config-observability (Knative 1.21 or later), "
        "scrape port 9091 of each pod, and relabel __meta_kubernetes_pod_label_serving_knative_dev_service to "
        "kn_service_name",
        http="http_response_status_code",
        bounds=_OTEL_SECONDS,
    ),
    "knative-revision": Gateway(
        gateway.REVISION_REQUESTS,
        gateway.REVISION_DURATION,
        ModelFrom(label="service_name", pattern=_PREDICTOR),
        "set metrics.request-metrics-backend-destination: prometheus in the ConfigMap config-observability "
        "(Knative before 1.19), and scrape port 9091 of each pod",
        http="response_code",
        bounds=_OPENCENSUS_SECONDS,
    ),
    "grpc-server": Gateway(
        gateway.GRPC_SERVER_REQUESTS,
        gateway.GRPC_SERVER_DURATION,
        _LABELLED,
        _INTERCEPTOR_SETTING.format("server"),
        grpc="grpc_code",
    ),
    "grpc-client": Gateway(
        gateway.GRPC_CLIENT_REQUESTS,
        gateway.GRPC_CLIENT_DURATION,
        _LABELLED,
        _INTERCEPTOR_SETTING.format("client"),
        grpc="grpc_code",
    ),
    "otel-http-server": _otel(
        gateway.HTTP_SERVER_DURATION,
        "HTTP server",
        http="http_response_status_code",
    ),
    "otel-http-client": _otel(
        gateway.HTTP_CLIENT_DURATION,
        "HTTP client",
        http="http_response_status_code",
    ),
    "otel-rpc-server": _otel(
        gateway.RPC_SERVER_DURATION,
        "RPC server",
        grpc="rpc_response_status_code",
    ),
    "otel-rpc-client": _otel(
        gateway.RPC_CLIENT_DURATION,
        "RPC client",
        grpc="rpc_response_status_code",
    ),
}
