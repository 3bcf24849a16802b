"""dcgm-exporter: its rows, in any of its dialects, to a reading; one bounded GET per poll, whatever it answers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from triton_exporter.catalogue import gpu
from triton_exporter.catalogue.external import dcgm
from triton_exporter.exposition.parse import Exposition, Parser, Series
from triton_exporter.gpu.gpu_reading import (
    Device,
    Entity,
    GpuReading,
    Instance,
    Slot,
    SourceError,
    XidKind,
    XidReport,
    canonical_pci,
    canonical_uuid,
    decode_throttle,
    is_split,
    plausible_value,
    with_derived,
)
from triton_exporter.http.certificates import Certificates, ReloadedTls
from triton_exporter.http.client import Client, FetchError, Limits

SOURCE = "dcgm"

MAX_GPUS = 256
MAX_INSTANCES = 8 * MAX_GPUS
"""GPUs and instances of one machine, at most, so that a source that invents more cannot fill the memory."""

_FAULTS = {"duplicate": "duplicate"}
"""Kinds of bad lines the parser counts -> reason of dropped rows; all others are malformed."""

_BY_NAME = {alias.name: (rank, alias) for rank, alias in enumerate(dcgm.ALIASES)}
_SINCE_47 = frozenset(alias.name for alias in dcgm.ALIASES if alias.since_47)
_MASKS = {name: rank for rank, name in enumerate(dcgm.THROTTLE_MASKS)}
_XIDS = {*dcgm.XID_LAST, dcgm.XID_WINDOW, dcgm.XID_TOTAL}
_WITH_FRACTION = re.compile(r"[ \t][0-9]+\.[0-9]+[ \t]*$", re.MULTILINE)
_BLANKS = ((2.0**63 - 1024, 2.0**63), (2.0**31 - 16, 2.0**31 - 13), (2.0**47, 2.0**47 + 3))
"""Ranges, ends included, of what DCGM means by blank, not found, not supported and not permitted: 64-bit,
32-bit and double (dcgm_structs.h)."""


def read(exposition: Exposition, at: float) -> GpuReading:
    """Read one body of dcgm-exporter. Never raises: what cannot be used is counted in `dropped`."""
    draft = _DcgmDraft(utilization_scale(exposition))
    for kind, count in exposition.faults.items():
        draft.dropped[_FAULTS.get(kind, "malformed")] += count
    for family in exposition.families.values():
        for series, value in family.samples():
            draft.add(series, value)
    return GpuReading(
        source=SOURCE,
        at=at,
        devices=draft.devices,
        instances=tuple(draft.instances.values()),
        values=with_derived(draft.values()),
        xids=tuple(draft.xids),
        # Rows are the only proof: from 4.0 on a GPU has none before its first XID.
        watches_xids=not _XIDS.isdisjoint(exposition.families),
        dropped=dict(draft.dropped),
        pods={pod: frozenset(entities) for pod, entities in draft.pods.items()},
        dialect=dialect(exposition),
    )


def utilization_scale(exposition: Exposition) -> float | None:
    """Return what turns the ambiguous utilization ratio into a ratio; None when it is unknown.

    By strength of evidence: another field that only DCGM 4.7 knows; how the number is written (an integer
    field has no fraction, a double always has); the HELP text; the name of the driver label; a value that is
    no ratio. A small value proves nothing.
    """
    family = exposition.families.get(dcgm.UTILIZATION_RATIO)
    if family is None:
        return None
    if not _SINCE_47.isdisjoint(exposition.families):
        return 1.0
    if _WITH_FRACTION.search(family.text):
        return 1.0
    text = family.help.lower()
    if "%" in text or "percent" in text:
        return dcgm.PERCENT
    if "ratio" in text or "0.0" in text or "0-1" in text:
        return 1.0
    if any(dcgm.DRIVER_LABELS[0] in series.labels for series in family.series):
        return 1.0
    return dcgm.PERCENT if any(1 < value <= 100 for value in family.values) else None


def dialect(exposition: Exposition) -> str:
    """Return dcgm-exporter's dialect: 1.x, 2.x-3.x, 4.x or 4.9+; empty when unknown."""
    names = exposition.families.keys()
    if any(name.startswith("dcgm_") for name in names):
        return "1.x"
    if not _SINCE_47.isdisjoint(names):
        return "4.9+"
    rows = [series for name in names if _is_known(name) for series in exposition.families[name].series[:1]]
    if not rows:
        return ""
    return "4.x" if any("pci_bus_id" in row.labels for row in rows) else "2.x-3.x"


class _Candidate(NamedTuple):
    """One row for a series; the smallest wins: better name, then the device's own row, then the higher value.

    Rows of MIG instances and of pods repeat what is the board's, sometimes a moment apart, so they are never
    added up.
    """

    rank: int
    is_copy: bool
    negative_value: float


@dataclass
class _DcgmDraft:
    scale: float | None
    devices: dict[str, Device] = field(default_factory=dict)
    instances: dict[Entity, Instance] = field(default_factory=dict)
    best: dict[Slot, _Candidate] = field(default_factory=dict)
    links: dict[Slot, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    xids: list[XidReport] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    pods: dict[str, set[Entity]] = field(default_factory=lambda: defaultdict(set))

    def add(self, series: Series, value: float) -> None:
        name, labels = series.name, series.labels
        if not _is_known(name) or not labels.keys().isdisjoint(dcgm.OTHER_ENTITIES):
            return
        uuid = canonical_uuid(_first_label(labels, dcgm.UUID_LABELS))
        if not uuid:
            self.dropped["no_uuid"] += 1
            return
        entity = Entity(uuid, _label_value(labels, dcgm.INSTANCE_LABEL))
        if not self._note_entity(entity, labels):
            self.dropped["malformed"] += 1
        elif is_blank(value):
            self.dropped["blank"] += 1
        elif name in _XIDS:
            self._add_xid(name, uuid, labels, value)
        elif name in _MASKS:
            self._add_mask(_MASKS[name], entity, labels, value)
        else:
            self._add_value(name, entity, labels, value)

    def values(self) -> dict[Slot, float]:
        """Return the winners, and sums over links where there is no row of the device."""
        sums = {slot: sum(links.values()) for slot, links in self.links.items()}
        return sums | {slot: -candidate.negative_value for slot, candidate in self.best.items()}

    def _note_entity(self, entity: Entity, labels: Mapping[str, str]) -> bool:
        if entity.uuid not in self.devices and len(self.devices) >= MAX_GPUS:
            return False
        if entity.instance and entity not in self.instances and len(self.instances) >= MAX_INSTANCES:
            return False
        # NvLink rows carry fewer labels than others, so what is known already stays.
        device = self.devices.get(entity.uuid) or Device(entity.uuid)
        self.devices[entity.uuid] = Device(
            entity.uuid,
            device.index or _label_value(labels, "gpu"),
            device.name or _first_label(labels, dcgm.NAME_LABELS),
            device.driver_version or _first_label(labels, dcgm.DRIVER_LABELS),
            device.pci_bus_id or canonical_pci(_label_value(labels, "pci_bus_id")),
        )
        if entity.instance and entity not in self.instances:
            self.instances[entity] = Instance(entity, "", _label_value(labels, dcgm.PROFILE_LABEL))
        pod = _first_label(labels, dcgm.POD_LABELS)
        if pod:
            self.pods[pod].add(entity)
        return True

    def _add_xid(self, name: str, uuid: str, labels: Mapping[str, str], value: float) -> None:
        if name in dcgm.XID_LAST:
            if not 0 <= value < 1000 or value != int(value):
                self.dropped["malformed"] += 1
                return
            self.xids.append(XidReport(uuid, int(value), 1.0, "last"))
            self._offer(Slot(gpu.LAST_XID, Entity(uuid)), 0, value, is_copy=False)
            return
        text = _label_value(labels, dcgm.XID_CODE)
        if not text and value == 0:
            return  # the row of a GPU without an XID error
        if not (text.isascii() and text.isdigit() and len(text) <= 3 and 0 <= value < 1e15):
            self.dropped["malformed"] += 1
            return
        kind: XidKind = "window" if name == dcgm.XID_WINDOW else "total"
        self.xids.append(XidReport(uuid, int(text), value, kind))

    def _add_mask(self, rank: int, entity: Entity, labels: Mapping[str, str], value: float) -> None:
        if not 0 <= value < 2**53 or value != int(value):
            self.dropped["malformed"] += 1
            return
        for reason, holds in decode_throttle(int(value)).items():
            slot = Slot(gpu.THROTTLE_REASON, Entity(entity.uuid), reason)
            self._offer(slot, rank, float(holds), is_copy=_is_copy(entity, labels, slot))

    def _add_value(self, name: str, entity: Entity, labels: Mapping[str, str], value: float) -> None:
        rank, alias = _BY_NAME[name]
        scale = self.scale if alias.scale is None else alias.scale
        if scale is None:
            self.dropped["unscaled"] += 1
            return
        canonical = plausible_value(alias.metric, value * scale, self.dropped)
        if canonical is None:
            return
        slot = Slot(alias.metric, entity if is_split(alias.metric) else Entity(entity.uuid), alias.label)
        if "nvlink" in labels:
            self.links[slot][labels["nvlink"]] = canonical
        else:
            self._offer(slot, rank, canonical, is_copy=_is_copy(entity, labels, slot))

    def _offer(self, slot: Slot, rank: int, value: float, *, is_copy: bool) -> None:
        offered = _Candidate(rank, is_copy, -value)
        self.best[slot] = min(offered, self.best.get(slot, offered))


def _is_known(name: str) -> bool:
    return name in _BY_NAME or name in _MASKS or name in _XIDS


def is_blank(value: float) -> bool:
    """Return whether a number is one of DCGM's words for "no value", which some versions let slip."""
    return any(low <= value <= high for low, high in _BLANKS)


def _is_copy(entity: Entity, labels: Mapping[str, str], slot: Slot) -> bool:
    of_instance = entity.instance != slot.entity.instance
    return of_instance or any(labels.get(name) for name in dcgm.CONSUMER_LABELS)


def _first_label(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := _label_value(labels, name))), "")


def _label_value(labels: Mapping[str, str], name: str) -> str:
    text = labels.get(name, "")
    return "" if text.startswith("<<<") else text


DEFAULT_URL = "http://127.0.0.1:9400/metrics"
"""Address at which dcgm-exporter listens by default."""

MAX_BODY_BYTES = 16 * 1024 * 1024
"""A real one sends about 8 kB per GPU."""


class DcgmSource:
    """Reads one dcgm-exporter; a URL without a path means /metrics."""

    name = SOURCE

    def __init__(
        self,
        url: str = DEFAULT_URL,
        timeout_seconds: float = 5.0,
        headers: Mapping[str, str] | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._path = f"{parts.path.rstrip('/') or '/metrics'}{'?' + parts.query if parts.query else ''}"
        base = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        limits = Limits(timeout_seconds, MAX_BODY_BYTES)
        self._client = Client(base, limits, headers or {}, ReloadedTls(certificates or Certificates()))
        self._parser = Parser()

    def read(self, at: float) -> GpuReading:
        """Fetch and read. Raises SourceError; a body that breaks off is read as far as it came."""
        try:
            answer = self._client.get(self._path)
        except FetchError as error:
            reading = self._parse(error.partial, at)
            if not reading.values:
                raise SourceError(error.reason, str(error)) from error
            return reading
        finally:
            self._client.close()  # polls are seconds apart, and a source is not closed when the process ends
        if answer.status in (401, 403):
            raise SourceError("http_error", f"HTTP {answer.status}: needs a header, see --dcgm-headers-file")
        if answer.status != 200:
            raise SourceError("http_error", f"HTTP {answer.status}")
        reading = self._parse(answer.body, at)
        if not reading.devices:
            raise SourceError("no_gpu", "no GPU rows in the answer")
        return reading

    def _parse(self, body: bytes, at: float) -> GpuReading:
        return read(self._parser.parse(body), at)
