"""Series of what is before Triton and counts its answers: proxies, meshes, and clients' libraries.

The exporter exposes none of them: objectives with such a `source` read them. Labels are those that are used: the
status and the default of the model's name. Envoy's were read off Envoy 1.40, the others in the projects' sources
and pages that docs/objectives.md names.
"""

from __future__ import annotations

from triton_exporter.catalogue.metric import Metric

_ENVOY = "Envoy"
_ISTIO = "Istio, standard metrics"
_NGINX = "ingress-nginx"
_KNATIVE = "Knative's queue-proxy"
_INTERCEPTORS = "Interceptors for Prometheus of gRPC libraries"
_OTEL = "OpenTelemetry, semantic conventions"


def _requests(name: str, source: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name, "counter", "Answered requests.", labels, "requests", source)


def _histogram(name: str, source: str, labels: tuple[str, ...], unit: str = "s") -> Metric:
    return Metric(name, "histogram", "Time of a request.", labels, unit, source)


ENVOY_REQUESTS = _requests("envoy_cluster_upstream_rq", _ENVOY, ("envoy_cluster_name", "envoy_response_code"))
ENVOY_DURATION = _histogram("envoy_cluster_upstream_rq_time", _ENVOY, ("envoy_cluster_name",), "ms")
ENVOY_VIRTUAL_REQUESTS = _requests(
    "envoy_vhost_vcluster_upstream_rq", _ENVOY, ("envoy_virtual_cluster", "envoy_response_code")
)
ENVOY_VIRTUAL_DURATION = _histogram(
    "envoy_vhost_vcluster_upstream_rq_time", _ENVOY, ("envoy_virtual_cluster",), "ms"
)

_ISTIO_LABELS = ("destination_service_name", "reporter", "response_code", "grpc_response_status")
ISTIO_REQUESTS = _requests("istio_requests_total", _ISTIO, _ISTIO_LABELS)
ISTIO_DURATION = _histogram("istio_request_duration_milliseconds", _ISTIO, _ISTIO_LABELS, "ms")

_NGINX_LABELS = ("ingress", "path", "service", "status")
NGINX_REQUESTS = _requests("nginx_ingress_controller_requests", _NGINX, _NGINX_LABELS)
NGINX_DURATION = _histogram("nginx_ingress_controller_request_duration_seconds", _NGINX, _NGINX_LABELS)

KNATIVE_DURATION = _histogram(
    "kn_serving_invocation_duration_seconds", _KNATIVE, ("kn_service_name", "http_response_status_code")
)
_REVISION_LABELS = ("service_name", "response_code")
REVISION_REQUESTS = _requests("revision_request_count", _KNATIVE, _REVISION_LABELS)
REVISION_DURATION = _histogram("revision_request_latencies", _KNATIVE, _REVISION_LABELS, "ms")

GRPC_SERVER_REQUESTS = _requests("grpc_server_handled_total", _INTERCEPTORS, ("grpc_code",))
GRPC_SERVER_DURATION = _histogram("grpc_server_handling_seconds", _INTERCEPTORS, ())
GRPC_CLIENT_REQUESTS = _requests("grpc_client_handled_total", _INTERCEPTORS, ("grpc_code",))
GRPC_CLIENT_DURATION = _histogram("grpc_client_handling_seconds", _INTERCEPTORS, ())

_HTTP_LABELS = ("http_response_status_code", "error_type")
HTTP_SERVER_DURATION = _histogram("http_server_request_duration_seconds", _OTEL, _HTTP_LABELS)
HTTP_CLIENT_DURATION = _histogram("http_client_request_duration_seconds", _OTEL, _HTTP_LABELS)
_RPC_LABELS = ("rpc_response_status_code", "error_type")
RPC_SERVER_DURATION = _histogram("rpc_server_call_duration_seconds", _OTEL, _RPC_LABELS)
RPC_CLIENT_DURATION = _histogram("rpc_client_call_duration_seconds", _OTEL, _RPC_LABELS)
