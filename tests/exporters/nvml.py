"""Stand in for the module pynvml: GPUs as plain values, calls answered or refused as NVML does.

No machine of the tests has a driver, so this is the one part of the GPU tests that is not real; what the real
library does without a driver is tested with the real library.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """A refusal; `value` is NVML's error code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, TIMEOUT, LOST = 3, 4, 6, 9, 10, 15


@dataclass
class FakePart:
    """A MIG device: one compute instance of one GPU instance."""

    gi: int
    ci: int = 0
    name: str = "NVIDIA Test MIG 1g.10gb"
    used: int = 0


@dataclass
class FakeGpu:
    """A GPU; functions named in `refused` raise that error, everything else answers."""

    uuid: str
    index: int = 0
    name: str = "NVIDIA Test"
    parts: list[FakePart] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    joules: float = 1000.0
    busy: int = 40
    gpm: dict[int, float] = field(default_factory=dict)
    lost: bool = False


class FakeNvml:
    """The functions and constants the source uses, and a count of handles not yet released."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL, NVML_PERF_POLICY_SYNC_BOOST = 0, 1, 2
    NVML_PERF_POLICY_BOARD_LIMIT, NVML_PERF_POLICY_LOW_UTILIZATION, NVML_PERF_POLICY_RELIABILITY = 3, 4, 5
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_MEMORY_TEMP = 82
    NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = 38
    NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 45
    NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
    NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_GRAPHICS_UTIL, NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY = 1, 2, 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 5, 10
    NVML_GPM_METRIC_FP64_UTIL, NVML_GPM_METRIC_FP32_UTIL, NVML_GPM_METRIC_FP16_UTIL = 11, 12, 13
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 60, 61
    nvmlMemory_v2 = 0x02000028  # noqa: N815
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.fields: dict[int, tuple[int, float]] = {82: (1, 70)}
        self.events: deque[SimpleNamespace] = deque()
        self.samples = 0
        self.open = 0
        self.broken = 0
        self.mask = 0x4 | 0x20

    def _ask(self, function: str, gpu: FakeGpu) -> None:
        if gpu.lost:
            raise NVMLError(LOST)
        if function in gpu.refused:
            raise NVMLError(gpu.refused[function])

    def nvmlInit(self) -> None:
        if self.broken:
            raise NVMLError(self.broken)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"590.48.01"

    def nvmlDeviceGetCount(self) -> int:
        if self.broken:
            raise NVMLError(self.broken)
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._ask("nvmlDeviceGetHandleByIndex", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        self._ask("nvmlDeviceGetUUID", gpu)
        return gpu.uuid

    def nvmlDeviceGetIndex(self, gpu: FakeGpu) -> int:
        return gpu.index

    def nvmlDeviceGetName(self, device: FakeGpu | FakePart) -> str:
        return device.name

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(busId=b"0000:3B:00.0")

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        self._ask("nvmlDeviceGetUtilizationRates", gpu)
        return SimpleNamespace(gpu=gpu.busy, memory=25)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        self._ask("nvmlDeviceGetPowerUsage", gpu)
        return 250_500

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> int:
        return 700_000

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        self._ask("nvmlDeviceGetTotalEnergyConsumption", gpu)
        return int(gpu.joules * 1000)

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:
        return 61

    def nvmlDeviceGetMarginTemperature(self, gpu: FakeGpu) -> int:
        self._ask("nvmlDeviceGetMarginTemperature", gpu)
        return 26

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> int:
        return 1410 if clock == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetViolationStatus(self, gpu: FakeGpu, policy: int) -> SimpleNamespace:
        self._ask("nvmlDeviceGetViolationStatus", gpu)
        return SimpleNamespace(violationTime=(policy + 1) * 10**9)

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, counter: int) -> int:
        self._ask("nvmlDeviceGetTotalEccErrors", gpu)
        return 7 if kind == self.NVML_MEMORY_ERROR_TYPE_CORRECTED else 2

    def nvmlDeviceGetRemappedRows(self, gpu: FakeGpu) -> tuple[int, int, int, int]:
        return (3, 1, 0, 0)

    def nvmlDeviceGetPcieThroughput(self, gpu: FakeGpu, counter: int) -> int:
        return 5000 if counter == self.NVML_PCIE_UTIL_TX_BYTES else 7000

    def nvmlDeviceGetPcieReplayCounter(self, gpu: FakeGpu) -> int:
        return 2

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        self._ask("nvmlDeviceGetCurrentClocksEventReasons", gpu)
        return self.mask

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return self.mask

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, ids: list[int]) -> list[SimpleNamespace]:
        return [self._field(field_id) for field_id in ids]

    def _field(self, number: int) -> SimpleNamespace:
        if number not in self.fields:
            return SimpleNamespace(nvmlReturn=NOT_SUPPORTED, valueType=0, value=SimpleNamespace(dVal=0.0))
        kind, value = self.fields[number]
        member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[kind]
        return SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(**{member: value}))

    def nvmlDeviceGetMemoryInfo(
        self, device: FakeGpu | FakePart, version: int | None = None
    ) -> SimpleNamespace:
        if isinstance(device, FakePart):
            return SimpleNamespace(total=10, free=10 - device.used, used=device.used, reserved=0)
        if version is not None:
            self._ask("nvmlDeviceGetMemoryInfo_v2", device)
            return SimpleNamespace(total=80, free=58, used=20, reserved=2)
        return SimpleNamespace(total=80, free=58, used=22)

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        if not gpu.parts:
            raise NVMLError(NOT_SUPPORTED)
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakePart:
        if index >= len(gpu.parts):
            raise NVMLError(NOT_FOUND)
        return gpu.parts[index]

    def nvmlDeviceGetGpuInstanceId(self, part: FakePart) -> int:
        return part.gi

    def nvmlDeviceGetComputeInstanceId(self, part: FakePart) -> int:
        return part.ci

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlEventSetFree(self, events: str) -> None:
        """Nothing to give back."""

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, kinds: int, events: str) -> None:
        self._ask("nvmlDeviceRegisterEvents", gpu)

    def nvmlEventSetWait_v2(self, events: str, timeout: int) -> SimpleNamespace:
        if not self.events:
            raise NVMLError(TIMEOUT)
        return self.events.popleft()

    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=bool(gpu.gpm))

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        self.samples += 1
        return SimpleNamespace(gpu=None, gi=None)

    def nvmlGpmSampleFree(self, sample: SimpleNamespace) -> None:
        self.samples -= 1

    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: SimpleNamespace) -> None:
        self._ask("nvmlGpmSampleGet", gpu)
        sample.gpu = gpu

    def nvmlGpmMigSampleGet(self, gpu: FakeGpu, gi: int, sample: SimpleNamespace) -> None:
        sample.gpu, sample.gi = gpu, gi

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(16)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=metrics)

    def nvmlGpmMetricsGet(self, asked: Any) -> None:
        assert asked.version == 1
        assert asked.sample1.gpu is asked.sample2.gpu
        assert asked.sample1.gi == asked.sample2.gi
        for answer in asked.metrics[: asked.numMetrics]:
            known = asked.sample2.gpu.gpm
            answer.nvmlReturn = 0 if answer.metricId in known else NOT_SUPPORTED
            answer.value = known.get(answer.metricId, 0.0)
