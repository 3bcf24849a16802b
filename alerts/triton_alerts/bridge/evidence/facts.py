"""What Prometheus knows about an incident: burn, budget, causes; and the series to draw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests

from triton_alerts.bridge.evidence.causes import worded
from triton_alerts.bridge.evidence.enrich import BUDGET_SECONDS, Source
from triton_alerts.bridge.incidents.incident import SPLIT, Evidence, Incident, Member
from triton_exporter.catalogue import state
from triton_slo import conventions as slo

LARGEST_ANSWER = 4 * 1024 * 1024
Point = tuple[float, float]


class QueryError(Exception):
    """Prometheus did not answer the query."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One Prometheus at `url`; `auth` is a user and a password, if it wants them."""

    url: str
    auth: tuple[str, str] | None = None

    def instant(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series now."""
        return [(one["metric"], float(one["value"][1])) for one in self._get("query", {"query": query})]

    def over(
        self, query: str, start: float, end: float, step: float
    ) -> list[tuple[dict[str, str], list[Point]]]:
        """Labels and points of each series between two times."""
        values: dict[str, str | float] = {"query": query, "start": start, "end": end, "step": step}
        return [
            (one["metric"], [(float(at), float(value)) for at, value in one["values"]])
            for one in self._get("query_range", values)
        ]

    def _get(self, path: str, values: Mapping[str, str | float]) -> list[dict[str, Any]]:
        try:
            with requests.get(
                f"{self.url.rstrip('/')}/api/v1/{path}",
                params={name: str(value) for name, value in values.items()},
                auth=self.auth,
                timeout=BUDGET_SECONDS,
                stream=True,
            ) as answer:
                answer.raise_for_status()
                body = answer.raw.read(LARGEST_ANSWER, decode_content=True)
            return list(json.loads(body)["data"]["result"])
        except (requests.RequestException, ValueError, KeyError, TypeError) as error:
            raise QueryError(str(error)) from error


def from_prometheus(prometheus: Prometheus) -> Source:
    """Burn rate, budget left and the split of causes, for an objective's incident."""

    def ask(incident: Incident) -> Evidence:
        member = next(iter(incident.firing or incident.members.values()))
        return Evidence(at=0, facts=tuple(_budget(prometheus, member) if member.labels.get(slo.SLO) else ()))

    return ask


def burn_query(member: Member) -> str:
    """The series that shows an incident best: its burn rate, else whether its model is ready."""
    if member.labels.get(slo.SLO):
        return f"{slo.CURRENT_BURN_RATE}{selector(member, slo.SLO, slo.INDICATOR, *slo.GROUPING)}"
    if member.labels.get("model"):
        return f"{state.MODEL_READY}{selector(member, 'instance', *slo.GROUPING)}"
    return f"{state.SERVER_READY}{selector(member, 'instance')}" if member.labels.get("instance") else ""


def _budget(prometheus: Prometheus, member: Member) -> list[tuple[str, str]]:
    where = selector(member, slo.SLO, slo.INDICATOR, *slo.GROUPING)
    facts = []
    if burn := prometheus.instant(f"max({slo.CURRENT_BURN_RATE}{where})"):
        facts.append(("Burn rate", f"{burn[0][1]:.1f} times what may last"))
    if left := prometheus.instant(f"min({slo.PERIOD_BUDGET_REMAINING}{where})"):
        facts.append(
            ("Budget left", f"{100 * left[0][1]:.0f} %" if left[0][1] > -1 else "used up more than once")
        )
    shares = prometheus.instant(f"topk(3, {slo.CAUSE_SHARE}{selector(member, slo.INDICATOR, *slo.GROUPING)})")
    named = [(worded(labels.get(slo.CAUSE, "?")), share) for labels, share in shares]
    parts = [f"{cause} {100 * share:.0f} %" for cause, share in named if share >= 0.01]
    return [*facts, (SPLIT, ", ".join(parts))] if parts else facts


def selector(member: Member, *names: str) -> str:
    """Matchers for those of the member's labels that it has."""
    pairs = [(name, member.labels[name]) for name in names if member.labels.get(name)]
    return "{" + ", ".join(f"{name}={_quoted(value)}" for name, value in pairs) + "}"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
