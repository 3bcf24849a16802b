"""Read the CPU time and memory of a process from the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class ProcessUsage:
    """A running process."""

    process: psutil.Process

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def rss_mib(self) -> float:
        return float(self.process.memory_info().rss / 2**20)
