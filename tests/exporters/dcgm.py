"""Serve synthetic GPUs as dcgm-exporter does, in each of its dialects, correctly or not."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from support.loopback import Handler, HttpServer, served

DIALECTS = ("1.x", "2.x-3.x", "4.x", "4.9+")


@dataclass(frozen=True)
class Part:
    """A MIG instance."""

    id: str
    profile: str = "1g.10gb"
    engine: float = 0.5
    used_mib: int = 1000


@dataclass(frozen=True)
class Card:
    """A GPU as it truly is; figures that one dialect cannot write exactly are chosen so that all can."""

    uuid: str = "GPU-00000000-0000-4000-8000-000000000001"
    index: int = 0
    name: str = "NVIDIA Test 80GB"
    pci: str = "00000000:3B:00.0"
    driver: str = "590.48.01"
    utilization_percent: int = 40
    memory_busy_percent: int = 25
    engine: float = 0.375
    tensor: float = 0.125
    dram: float = 0.25
    used_mib: int = 20480
    free_mib: int = 60416
    reserved_mib: int = 1024
    power: float = 250.5
    joules: int = 1_000_000
    temperature: int = 61
    memory_temperature: int = 70
    sm_mhz: int = 1410
    memory_mhz: int = 2619
    replays: int = 2
    xid: int | None = None
    nvlink_bytes: int = 2_048_000
    pcie_tx: int = 5_000_000
    pcie_rx: int = 7_000_000
    remapped: int = 1
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Row:
    """One family of a dialect."""

    name: str
    kind: str
    help: str
    value: str


def write(
    dialect: str,
    cards: Sequence[Card],
    extra_labels: Mapping[str, str] | None = None,
    only: Sequence[str] | None = None,
) -> str:
    """Return the page of a dcgm-exporter; `only` keeps the families named."""
    families: dict[str, list[str]] = {}
    heads: dict[str, str] = {}
    for card in cards:
        rows = _rows(dialect, card)
        shown = rows if not card.parts else [row for row in rows if row.name not in _split_names(dialect)]
        for row in shown:
            labels = _labels(dialect, card) | dict(extra_labels or {})
            families.setdefault(row.name, []).append(line(row.name, labels, row.value))
            heads[row.name] = f"# HELP {row.name} {row.help}\n# TYPE {row.name} {row.kind}\n"
        for part in card.parts:
            for name, value in _part_rows(dialect, part):
                labels = _labels(dialect, card, part) | dict(extra_labels or {})
                families.setdefault(name, []).append(line(name, labels, value))
                heads.setdefault(name, f"# HELP {name} of a part.\n# TYPE {name} gauge\n")
    chosen = [name for name in families if only is None or name in only]
    return "".join(heads[name] + "".join(families[name]) for name in chosen)


def line(name: str, labels: Mapping[str, str], value: object) -> str:
    """One row, its label values unescaped as dcgm-exporter writes them."""
    pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value}\n"


def _labels(dialect: str, card: Card, part: Part | None = None) -> dict[str, str]:
    of_part = {"GPU_I_PROFILE": part.profile, "GPU_I_ID": part.id} if part else {}
    device = f"nvidia{card.index}"
    if dialect == "1.x":
        return {"gpu": str(card.index), "uuid": card.uuid, "device": device} | of_part
    if dialect == "2.x-3.x":
        return {
            "gpu": str(card.index),
            "UUID": card.uuid,
            "device": device,
            "modelName": card.name,
            **of_part,
            "Hostname": "node",
        }
    return {
        "gpu": str(card.index),
        "UUID": card.uuid,
        "pci_bus_id": card.pci,
        "device": device,
        "modelName": card.name,
        **of_part,
        **(
            {"hostname": "node", "DCGM_FI_SYSTEM_DRIVER_VERSION": card.driver}
            if dialect == "4.9+"
            else {"Hostname": "node", "DCGM_FI_DRIVER_VERSION": card.driver}
        ),
    }


def _rows(dialect: str, card: Card) -> list[Row]:
    if dialect == "1.x":
        return _legacy(card)
    return _base_units(card) if dialect == "4.9+" else _classic(dialect, card)


def _legacy(card: Card) -> list[Row]:
    return [
        Row("dcgm_sm_clock", "gauge", "Clock (in MHz).", str(card.sm_mhz)),
        Row("dcgm_memory_clock", "gauge", "Clock (in MHz).", str(card.memory_mhz)),
        Row("dcgm_gpu_temp", "gauge", "Temperature (in C).", str(card.temperature)),
        Row("dcgm_memory_temp", "gauge", "Temperature (in C).", str(card.memory_temperature)),
        Row("dcgm_power_usage", "gauge", "Power (in W).", f"{card.power:.6f}"),
        Row("dcgm_total_energy_consumption", "counter", "Energy (in mJ).", str(card.joules * 1000)),
        Row("dcgm_gpu_utilization", "gauge", "Utilization (in %).", str(card.utilization_percent)),
        Row("dcgm_mem_copy_utilization", "gauge", "Utilization (in %).", str(card.memory_busy_percent)),
        Row("dcgm_fb_free", "gauge", "Free (in MiB).", str(card.free_mib)),
        Row("dcgm_fb_used", "gauge", "Used (in MiB).", str(card.used_mib)),
        Row("dcgm_xid_errors", "gauge", "Last XID.", str(card.xid or 0)),
        Row("dcgm_pcie_replay_counter", "counter", "Retries.", str(card.replays)),
        Row("dcgm_nvlink_bandwidth_total", "counter", "NVLink.", str(card.nvlink_bytes // 1_024_000)),
        # The percent of this HELP is an old mistake: the field is a ratio.
        Row("dcgm_fi_prof_gr_engine_active", "gauge", "Active (in %).", f"{card.engine:.6f}"),
        Row("dcgm_fi_prof_pipe_tensor_active", "gauge", "Active (in %).", f"{card.tensor:.6f}"),
        Row("dcgm_fi_prof_dram_active", "gauge", "Active (in %).", f"{card.dram:.6f}"),
        Row("dcgm_fi_prof_pcie_tx_bytes", "counter", "Bytes.", str(card.pcie_tx)),
        Row("dcgm_fi_prof_pcie_rx_bytes", "counter", "Bytes.", str(card.pcie_rx)),
    ]


def _classic(dialect: str, card: Card) -> list[Row]:
    xid = card.xid if dialect == "4.x" else card.xid or 0
    return [
        Row("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock (in MHz).", str(card.sm_mhz)),
        Row("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock (in MHz).", str(card.memory_mhz)),
        Row("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature (in C).", str(card.temperature)),
        Row("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature (in C).", str(card.memory_temperature)),
        Row("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power (in W).", f"{card.power:.6f}"),
        Row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy (in mJ).", str(card.joules * 1000)),
        Row("DCGM_FI_DEV_GPU_UTIL", "gauge", "Utilization (in %).", str(card.utilization_percent)),
        Row("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Utilization (in %).", str(card.memory_busy_percent)),
        Row("DCGM_FI_DEV_FB_FREE", "gauge", "Free (in MiB).", str(card.free_mib)),
        Row("DCGM_FI_DEV_FB_USED", "gauge", "Used (in MiB).", str(card.used_mib)),
        Row("DCGM_FI_DEV_FB_RESERVED", "gauge", "Reserved (in MiB).", str(card.reserved_mib)),
        *([Row("DCGM_FI_DEV_XID_ERRORS", "gauge", "Last XID.", str(xid))] if xid is not None else []),
        Row("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Retries.", str(card.replays)),
        Row("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "NVLink.", str(card.nvlink_bytes // 1_024_000)),
        Row("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows.", str(card.remapped)),
        Row("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows.", "0"),
        Row("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Failed.", "0"),
        Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Active.", f"{card.engine:.6f}"),
        Row("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Active.", f"{card.tensor:.6f}"),
        Row("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Active.", f"{card.dram:.6f}"),
        Row("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Bytes per second.", str(card.pcie_tx)),
        Row("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Bytes per second.", str(card.pcie_rx)),
    ]


def _base_units(card: Card) -> list[Row]:
    mib = 1024 * 1024
    total = card.used_mib + card.free_mib + card.reserved_mib
    return [
        Row("DCGM_FI_DEV_SM_CLOCK_HERTZ", "gauge", "SM clock.", str(card.sm_mhz * 10**6)),
        Row("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", "gauge", "Memory clock.", str(card.memory_mhz * 10**6)),
        Row("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "gauge", "Temperature.", str(card.temperature)),
        Row("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "gauge", "Temperature.", str(card.memory_temperature)),
        Row("DCGM_FI_DEV_BOARD_POWER_WATTS", "gauge", "Power.", f"{card.power:.6f}"),
        Row("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "counter", "Energy.", str(card.joules)),
        Row("DCGM_FI_DEV_GPU_UTIL_RATIO", "gauge", "Utilization.", f"{card.utilization_percent / 100:.6f}"),
        Row(
            "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
            "gauge",
            "Utilization.",
            f"{card.memory_busy_percent / 100:.6f}",
        ),
        Row("DCGM_FI_DEV_FB_FREE_BYTES", "gauge", "Free.", str(card.free_mib * mib)),
        Row("DCGM_FI_DEV_FB_USED_BYTES", "gauge", "Used.", str(card.used_mib * mib)),
        Row("DCGM_FI_DEV_FB_RESERVED_BYTES", "gauge", "Reserved.", str(card.reserved_mib * mib)),
        Row("DCGM_FI_DEV_FB_CAPACITY_BYTES", "gauge", "All.", str(total * mib)),
        *(
            [Row("DCGM_FI_DEV_XID_ERROR", "gauge", "Last XID.", str(card.xid))]
            if card.xid is not None
            else []
        ),
        Row("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "counter", "Retries.", str(card.replays)),
        Row("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "gauge", "NVLink.", str(card.nvlink_bytes)),
        Row("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "counter", "Rows.", str(card.remapped)),
        Row("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", "counter", "Rows.", "0"),
        Row("DCGM_FI_DEV_ROW_REMAP_FAILED", "gauge", "Failed.", "0"),
        Row("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "gauge", "Active.", f"{card.engine:.6f}"),
        Row("DCGM_FI_PROF_TENSOR_UTIL_RATIO", "gauge", "Active.", f"{card.tensor:.6f}"),
        Row("DCGM_FI_PROF_DRAM_UTIL_RATIO", "gauge", "Active.", f"{card.dram:.6f}"),
        Row("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Bytes per second.", str(card.pcie_tx)),
        Row("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Bytes per second.", str(card.pcie_rx)),
    ]


def _part_rows(dialect: str, part: Part) -> list[tuple[str, str]]:
    engine, used, free = _part_names(dialect)
    scale = 1024 * 1024 if dialect == "4.9+" else 1
    return [
        (engine, f"{part.engine:.6f}"),
        (used, str(part.used_mib * scale)),
        (free, str((9728 - part.used_mib) * scale)),
    ]


def _part_names(dialect: str) -> tuple[str, str, str]:
    if dialect == "1.x":
        return "dcgm_fi_prof_gr_engine_active", "dcgm_fb_used", "dcgm_fb_free"
    if dialect == "4.9+":
        return (
            "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
            "DCGM_FI_DEV_FB_USED_BYTES",
            "DCGM_FI_DEV_FB_FREE_BYTES",
        )
    return "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"


def _split_names(dialect: str) -> frozenset[str]:
    """Families a whole GPU has no row of when it is split: utilization is not measured then."""
    return frozenset({"dcgm_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"})


@dataclass
class Stub:
    """What the server answers; change it at any time. `fault` is one of the names in _Handler.do_GET."""

    url: str = ""
    body: str = ""
    fault: str = ""
    requests: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


@cache
def bomb() -> bytes:
    """Return a small body that unpacks to more than any reader should take."""
    return gzip.compress(b"0" * 64 * 1024 * 1024)


@contextmanager
def serving(body: str = "") -> Iterator[Stub]:
    """Serve on loopback until the block ends."""
    stub = Stub(body=body)
    bomb()  # takes a while, which is not the reader's

    class Bound(_Handler):
        pass

    Bound.stub = stub
    with served(HttpServer(Bound)) as server:
        server.daemon_threads = False
        stub.url = server.url
        try:
            yield stub
        finally:
            stub.released.set()


class _Handler(Handler):
    stub: Stub

    def do_GET(self) -> None:
        stub = self.stub
        stub.requests.append(self.path)
        body = stub.body.encode()
        try:
            if stub.fault == "hang":
                stub.released.wait(30)
            elif stub.fault == "drip":
                self._drip()
            elif stub.fault == "500":
                self.send_error(500)
            elif stub.fault == "redirect":
                self.reply(b"", 302, {"Location": "http://127.0.0.1:1/metrics"})
            elif stub.fault == "huge":
                self._pour()
            elif stub.fault == "bomb":
                self.reply(bomb(), headers={"Content-Encoding": "gzip"})
            elif stub.fault == "cut":
                self.reply(body[: len(body) // 2], headers={"Content-Length": str(len(body))})
            elif stub.fault == "garbage":
                self.reply(bytes(range(256)) * 100)
            elif stub.fault == "nonsense":
                self.wfile.write(b"\x00\x01 no http at all\r\n\r\n")
            elif stub.fault == "empty":
                self.reply()
            else:
                self.reply(body)
        except OSError:
            pass  # the client has gone, as it should
        if stub.fault:
            self.close_connection = True

    def _drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not self.stub.released.wait(0.05):
            self.wfile.write(b"#")

    def _pour(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(200):
            if self.stub.released.is_set():
                return
            self.wfile.write(b"x" * 1024 * 1024)
