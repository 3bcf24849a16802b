"""Gateways: what each of them exports, and the indicator that reads it: its series, and the fields that choose them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from triton_exporter.catalogue import Metric
from triton_exporter.catalogue.external import gateway
from triton_slo.fields import LabelName, Regex, Value
from triton_slo.indicators.indicator import Indicator, Scope
from triton_slo.names import GROUPING
from triton_slo.promql import Matchers, by, parse_selector, quote

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
        if self.http and (classes := [code.replace("x", ".") for code in known if code[0].isdigit()]):
            yield self.http, "|".join(classes)
        if self.grpc and (words := [_grpc(code) for code in known if not code[0].isdigit()]):
            yield self.grpc, "|".join(words)


def _grpc(code: str) -> str:
    """Return names as Python, Java and OpenTelemetry write them, as Go does, and the number, as Istio does."""
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


def _code(value: str) -> str:
    if not re.fullmatch(r"[1-5](xx|[0-9]{2})", value) and value not in GRPC_CODES:
        raise ValueError(f"{value!r} is neither an HTTP status (503, 5xx) nor a gRPC code (UNAVAILABLE)")
    return value


def _codes(value: Any) -> Any:
    listed = value if isinstance(value, list | tuple) else [value]
    # YAML reads 429 as a number.
    return tuple(str(code) if type(code) is int else code for code in listed)


def _model_from(value: Any) -> Any:
    return {"label": value} if isinstance(value, str) else value


def _valid_selector(value: str) -> str:
    parse_selector(value)
    return value


Codes = Annotated[
    tuple[Annotated[str, AfterValidator(_code)], ...],
    BeforeValidator(_codes, json_schema_input_type=list[str | int]),
]


@dataclass(frozen=True, slots=True)
class GatewayRequests:
    """Series of a gateway that an objective reads, by the groups of a scope; `kind` are more matchers."""

    gateway: Gateway
    model_from: ModelFrom
    selector: str
    codes: tuple[str, ...]
    scope: Scope
    kind: tuple[str, ...] = ()

    @property
    def on(self) -> str:
        """`on (model)`."""
        return self.scope.on

    @property
    def answered(self) -> GatewayRequests:
        """Requests that the client did not give up."""
        return self._also(
            *(f"{label}!~{quote(given_up)}" for label, given_up in self.gateway.statuses(GIVEN_UP))
        )

    @property
    def succeeded(self) -> GatewayRequests:
        """Requests in the histogram that succeeded; all, where it has no status."""
        variants = []
        for label, good in self.gateway.statuses(SUCCESSES):
            if label in self.gateway.durations.labels:
                # A mesh carries HTTP requests, too, which have no gRPC status.
                variants.append(
                    f"{label}=~{quote(good + '|' if self.gateway.http != label and self.gateway.http else good)}"
                )
        return self._also(*variants)

    @property
    def failed(self) -> str:
        """Counters of the requests that failed: by their status, or without one."""
        kinds: list[tuple[str, ...]] = [
            (f"{label}=~{quote(failed)}",) for label, failed in self.gateway.statuses(self.codes)
        ]
        kinds += [self.gateway.unanswered] if self.gateway.unanswered else []
        # `or` counts a series once that matches several.
        return self.named(" or ".join(self.series(self.gateway.counted, *kind) for kind in kinds))

    def counted(self, series: object, *extra: str) -> str:
        """Return counters with the model's name in `model`."""
        return self.named(self.series(series, *extra))

    def with_zero(self, failed: str, every: str) -> str:
        """Return counters of failures, and 0 for each server: its first failure is seen as one."""
        return f"{failed}\nor 0 * sum {by(self.scope.server_labels)} ({every})"

    def named(self, expr: str) -> str:
        """Return an expression with the model's name in the label `model`, of the objective's models alone."""
        label, pattern = self.model_from.label, self.model_from.pattern
        if (label, pattern) != ("model", EVERY):
            expr = f'label_replace({expr}, "model", "$1", "{label}", {quote(pattern)})'
        return self.scope.restricted(expr)

    def present(self, series: object, *extra: str) -> str:
        """Return the groups for which a series exists now, each with the value 1."""
        return f"group {self.scope.by} ({self.counted(series, *extra)})"

    def series(self, series: object, *extra: str) -> str:
        """Return the selector of the series themselves."""
        return f"{series}{self.matchers(*extra)}"

    def matchers(self, *extra: str) -> Matchers:
        label, pattern = self.model_from.label, self.model_from.pattern
        named = f'{label}!=""' if pattern == EVERY else f"{label}=~{quote(pattern)}"
        return self.selected.also(named, *self.kind, *extra)

    @property
    def selected(self) -> Matchers:
        """Matchers of the requests of whatever model; those of the user's selector replace the source's own."""
        own, _ = parse_selector(self.selector)
        usual = Matchers(self.gateway.always).without(label for label, _, _ in Matchers(own).split)
        return self.scope.matchers.without(GROUPING).also(*usual.parts, *own)

    def _also(self, *kind: str) -> GatewayRequests:
        return replace(self, kind=(*self.kind, *kind))


class GatewayIndicator(Indicator):
    """An indicator that can be measured on a gateway's series, where `source` names one."""

    source: str = ""
    model_from: Annotated[
        ModelFrom | None, BeforeValidator(_model_from, json_schema_input_type=str | ModelFrom | None)
    ] = None
    selector: Annotated[str, AfterValidator(_valid_selector)] = ""
    codes: Codes = SERVER_FAILURES

    @model_validator(mode="after")
    def _of_a_gateway(self) -> Self:
        if self.gateway is None:
            if given := [
                field for field in ("model_from", "selector", "codes") if field in self.model_fields_set
            ]:
                raise ValueError(f"{given[0]} needs a source before Triton: {', '.join(GATEWAYS)}")
        elif not any(self.gateway.statuses(self.codes)):
            usual = "5xx" if self.gateway.http else "UNAVAILABLE"
            raise ValueError(f"codes has no status of {self.source}; write for example [{usual}]")
        return self

    @property
    def gateway(self) -> Gateway | None:
        """The row of the source; None where the numbers are Triton's."""
        return GATEWAYS.get(self.source)

    @property
    def seen_by(self) -> str:
        """A gateway, if one is the source."""
        return "" if self.gateway is None else "gateway"

    @property
    def grouping(self) -> tuple[str, ...]:
        """A gateway knows no versions of a model."""
        return GROUPING if self.gateway is None else ("model",)

    def at_gateway(self, scope: Scope) -> GatewayRequests:
        """Return the requests that the gateway counts."""
        assert self.gateway is not None
        return GatewayRequests(
            self.gateway, self.model_from or self.gateway.model, self.selector, self.codes, scope
        )

    def needs(self, scope: Scope) -> Iterator[tuple[str, str, str]]:
        """Yield series of the gateway, those that the selector chooses, those that name a model."""
        if self.gateway is None:
            return
        requests, series = self.at_gateway(scope), self._needed
        label, pattern = requests.model_from.label, requests.model_from.pattern
        yield f"group ({series})", f"series {series}", self.gateway.setting
        if chosen := requests.selected.parts:
            fix = "correct `selector`; one of its matchers replaces the source's own on the same label"
            yield f"group ({series}{requests.selected})", f"series {series} with {', '.join(chosen)}", fix
        yield (
            f"group ({series}{requests.matchers()})",
            f"label {label} on {series}" + (f" that matches {pattern}" if pattern != EVERY else ""),
            "name the label with the model's name in `model_from`, or have it set",
        )

    @property
    def _needed(self) -> str:
        assert self.gateway is not None
        return self.gateway.counted
