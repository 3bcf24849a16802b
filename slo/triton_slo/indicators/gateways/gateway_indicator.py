"""Indicator of a gateway: the series it reads, and the fields that choose them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from triton_slo.indicators.common.measure import Scope
from triton_slo.indicators.gateways.gateway_table import (
    EVERY,
    GATEWAYS,
    GIVEN_UP,
    GRPC_CODES,
    SERVER_FAILURES,
    SUCCESSES,
    Gateway,
    ModelFrom,
)
from triton_slo.indicators.indicator import Indicator
from triton_slo.names import GROUPING
from triton_slo.promql import Matchers, by, parse_selector, quote


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
        """Return the matchers of the requests."""
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
