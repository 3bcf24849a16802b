"""The parts of one exporter: what is added here is shown, fed and polled by what it can do.

An object may be any of Collector, Observer, Watcher and Poller (see `family`); the exporter finds out which.
"""

from __future__ import annotations

from triton_exporter.app.distribution_features import parts
from triton_exporter.app.gpu_features import assemble
from triton_exporter.app.settings import Settings
from triton_exporter.models.configuration import Configurations
from triton_exporter.models.executions import Executions


def plugins(settings: Settings) -> tuple[object, ...]:
    """Build the parts that stand beside the state of models: distributions, GPUs, the prober.

    Raises OSError when a port to listen on is taken.
    """
    return (Configurations(), Executions(), *parts(settings), *assemble(settings))
