"""The state of the GPUs that an incident is about, or that its model runs on: one query, a line for each GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from triton_alerts.bridge.evidence.enrich import Source
from triton_alerts.bridge.evidence.facts import matchers_of
from triton_alerts.bridge.incidents.incident import GPU, Incident, SourceFacts
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.catalogue import gpu
from triton_slo import names
from triton_slo.prometheus import Prometheus, Sample

SHOWN = 3
XID_WINDOW = "1h"

_FACT = "fact"
_BOARD = "on (instance, gpu_uuid)"
_PART = "on (instance, gpu_uuid, gpu_instance_id)"
_NORMAL = "idle|app_clocks|display_clock|sync_boost"
_GIB = 1024**3


@dataclass
class _Gpu:
    values: dict[str, float] = field(default_factory=dict)
    name: str = ""
    part: str = ""
    confidence: str = ""
    throttled: set[str] = field(default_factory=set)
    xids: set[str] = field(default_factory=set)


def source(prometheus: Prometheus) -> Source:
    """Return the source of how busy, full and hot each GPU is, whether it is throttled, and its last XID errors."""

    def ask(incident: Incident) -> SourceFacts:
        members = incident.firing or tuple(incident.members.values())
        member = next((each for each in members if _concerns(each)), None)
        if member is None:
            return SourceFacts()
        gpus = _collect(prometheus.instant(_gpu_query(member)))
        return SourceFacts(facts=((GPU, _worded(gpus)),) if gpus else ())

    return ask


def _concerns(member: Member) -> bool:
    """Return whether the alert names a model or a GPU."""
    return any(member.labels.get(name) for name in ("model", "gpu_uuid")) or (
        member.labels.get(names.COMPONENT) == "gpu"
    )


def _gpu_query(member: Member) -> str:
    """Return every fact about the GPUs, in one request; each part carries its name in a label."""
    where = matchers_of(member, "instance", "gpu_uuid", "gpu_instance_id")
    runs = f"{gpu.MODEL_GPU_INFO}{matchers_of(member, 'instance', 'model', 'version', 'gpu_uuid')}"
    of_model = bool(member.labels.get("model"))

    def only(expression: str, joined: str) -> str:
        return f"({expression}) and {joined} {runs}" if of_model else expression

    reasons = where.also(f'reason!~"{_NORMAL}"')
    causes = where.also('cause=~"thermal|power"')
    xids = f"{gpu.XID_ERRORS}{where}"
    parts = {
        "name": only(f"{gpu.INFO}{where}", _BOARD),
        "busy": only(f"{gpu.UTILIZATION}{where}", _PART),
        "used": only(f"{gpu.MEMORY_USED}{where}", _PART),
        "total": only(f"{gpu.MEMORY_TOTAL}{where}", _PART),
        "celsius": only(f"{gpu.TEMPERATURE}{where}", _BOARD),
        "reason": only(f"{gpu.THROTTLE_REASON}{reasons}", _BOARD),
        # Counted time, for the sources that do not report the current reason.
        "cause": only(f"rate({gpu.THROTTLED_SECONDS}{causes}[5m])", _BOARD),
        # A code that the table does not know appears with its first error: increase() misses that one.
        "xid": only(f"({xids} unless {xids} offset {XID_WINDOW}) or increase({xids}[{XID_WINDOW}])", _BOARD),
    }
    if of_model:
        parts["runs"] = runs
    return " or ".join(
        f'label_replace({expression}, "{_FACT}", "{name}", "", "")' for name, expression in parts.items()
    )


def _worded(gpus: dict[tuple[str, str, str], _Gpu]) -> str:
    """Return a line for each GPU, those in trouble first."""
    ranked = sorted(gpus.items(), key=lambda entry: (not entry[1].xids, not entry[1].throttled, entry[0]))
    lines = [_gpu_text(uuid, card) for (_, uuid, _), card in ranked[:SHOWN]]
    if len(ranked) > SHOWN:
        lines.append(f"and {len(ranked) - SHOWN} more GPUs")
    return "\n".join(lines)


def _collect(samples: Sequence[Sample]) -> dict[tuple[str, str, str], _Gpu]:
    """Return GPUs by instance, GPU and part of it. Facts about the whole board are shown for each of its parts."""
    keys = {_gpu_key(sample.labels) for sample in samples if sample.labels[_FACT] in ("busy", "used", "runs")}
    keys |= {
        _gpu_key(sample.labels)
        for sample in samples
        if not any(_gpu_key(sample.labels)[:2] == key[:2] for key in keys)
    }
    gpus = {key: _Gpu(part=key[2]) for key in sorted(keys)}
    for sample in samples:
        key = _gpu_key(sample.labels)
        for card in [gpus[key]] if key in gpus else [g for k, g in gpus.items() if k[:2] == key[:2]]:
            _note(card, sample.labels, sample.value)
    return gpus


def _gpu_key(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("instance", ""), labels.get("gpu_uuid", ""), labels.get("gpu_instance_id", "")


def _note(card: _Gpu, labels: Mapping[str, str], value: float) -> None:
    fact = labels[_FACT]
    if fact == "name":
        card.name = labels.get("name", "").removeprefix("NVIDIA ")
    elif fact == "runs":
        card.confidence = labels.get("confidence", "")
    else:
        card.values[fact] = max(value, card.values.get(fact, value))
    if fact == "reason" and value > 0:
        card.throttled.add(labels.get("reason", ""))
    if fact == "cause" and value > 0.05:
        card.throttled.add(labels.get("cause", ""))
    if fact == "xid" and value > 0:
        card.xids.add(f"{labels.get('xid', '?')} ({labels.get('class', 'unknown')})")


def _gpu_text(uuid: str, card: _Gpu) -> str:
    name = " ".join(word for word in (card.name, uuid[:12]) if word)
    if card.part:
        name += f" part {card.part}"
    if card.confidence == "guess":
        name += " (mapping uncertain)"
    return f"{name}: {', '.join(_figures(card)) or 'no data'}"


def _figures(card: _Gpu) -> list[str]:
    figures, known = [], card.values
    if "busy" in known:
        figures.append(f"utilization {100 * known['busy']:.0f} %")
    if "used" in known:
        total = f" of {known['total'] / _GIB:.1f}" if "total" in known else ""
        figures.append(f"{known['used'] / _GIB:.1f}{total} GiB used")
    if "celsius" in known:
        figures.append(f"{known['celsius']:.0f} °C")
    if card.throttled:
        figures.append(f"clocks throttled (reason: {', '.join(sorted(card.throttled))})")
    elif "reason" in known or "cause" in known:
        figures.append("not throttled")
    if card.xids:
        figures.append(f"XID {', '.join(sorted(card.xids))} in the last hour")
    elif "xid" in known:
        figures.append("no XID error in the last hour")
    return figures
