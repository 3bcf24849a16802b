"""Series about Triton's processes and shared memory, where the exporter can see them."""

from __future__ import annotations

from triton_exporter.catalogue.metric import Kind, Metric

_STUBS = "the Python backend's processes of the model version, with the processes that these started"
_POOLED = (
    "Models of other backends (ONNX Runtime, TensorRT, PyTorch) run inside Triton's own process: the memory of that "
    "is one number, and no share of it is any model's."
)
_PSS = "Absent where the exporter may not read it: it must run as Triton's user."


def _model(name: str, kind: Kind, text: str, unit: str = "", caveat: str = "") -> Metric:
    return Metric(name, kind, text, ("model", "version"), unit, "operating system", caveat=caveat)


def _server(name: str, kind: Kind, text: str, unit: str = "bytes", caveat: str = "") -> Metric:
    return Metric(name, kind, text, (), unit, "operating system", caveat=caveat)


MODEL_PROCESSES = _model(
    "triton_model_processes",
    "gauge",
    "Running processes of the model version: the Python backend has one for each instance.",
    caveat="Fewer than the instances: one has died. More: processes of an earlier load have not ended.",
)
MODEL_PROCESS_DEATHS = _model(
    "triton_model_process_deaths_total",
    "counter",
    "Processes of the model version that ended while Triton still needed them. Triton before 24.06 starts such a "
    "process again; later ones do not, and the requests that it should take fail until the model is reloaded.",
    caveat="A death that a reload repairs within a minute is not counted.",
)
MODEL_PSS = _model(
    "triton_model_process_proportional_memory_bytes",
    "gauge",
    f"Memory (PSS: shared pages count in parts) of {_STUBS}.",
    "bytes",
    _PSS,
)
MODEL_RSS = _model(
    "triton_model_process_resident_memory_bytes",
    "gauge",
    f"Resident memory of {_STUBS}; pages that they share count for each.",
    "bytes",
)
MODEL_CPU = _model("triton_model_process_cpu_seconds_total", "counter", f"CPU time of {_STUBS}.", "s")
MODEL_SHM = _model(
    "triton_model_shm_bytes",
    "gauge",
    "Size of the shared memory through which Triton and the running processes of the model version exchange tensors. "
    "It grows with the largest batches and never shrinks.",
    "bytes",
)
RELOAD_PARTS = ("server", "processes", "shm")
"""Closed set of values of the label `part`: Triton's own process, those of the model, all of /dev/shm."""

RELOAD_GROWTH = Metric(
    "triton_model_reload_growth_bytes",
    "gauge",
    "Memory after the last load of the model, of this or another version, less that after the load before it, by part: "
    "server (Triton's own process), processes (of the model) and shm (all of /dev/shm).",
    ("model", "part"),
    "bytes",
    "operating system",
    caveat="Of the Python backend. What else changed between the two loads is in it: growth at one reload proves "
    "nothing, growth at each of several does. Loads within a minute count as one.",
)
_OWN = "of Triton's own process, without those of Python models."
SERVER_PSS = _server(
    "triton_server_process_proportional_memory_bytes",
    "gauge",
    f"Memory (PSS: shared pages count in parts) {_OWN}",
    caveat=f"{_POOLED} {_PSS}",
)
SERVER_RSS = _server(
    "triton_server_process_resident_memory_bytes", "gauge", f"Resident memory {_OWN}", caveat=_POOLED
)
SERVER_CPU = _server("triton_server_process_cpu_seconds_total", "counter", f"CPU time {_OWN}", "s")
SHM_SIZE = _server("triton_shm_size_bytes", "gauge", "Size of Triton's /dev/shm.")
SHM_USED = _server("triton_shm_used_bytes", "gauge", "Used memory of Triton's /dev/shm.")
SHM_ORPHANED = _server(
    "triton_shm_orphaned_bytes",
    "gauge",
    "Shared memory of the Python backend that belongs to no running process: left behind by processes that were "
    "killed, or by a Triton before this one.",
    caveat="Where /dev/shm is shared with Tritons whose processes the exporter cannot see, theirs is in it. "
    "Not in it are regions whose names begin otherwise than this Triton's (its --backend-config shm-region-prefix-name).",
)
