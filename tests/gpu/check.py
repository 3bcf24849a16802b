"""Compare the exporter with what the driver of a real GPU and the models of a real Triton say.

`check.sh` runs it. It prints one line for each check: PASS, or FAIL with what was expected; SEEN for a fact that
nothing is expected of; and NO GPU, where there is none, for what needs one. The rest runs everywhere.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import requests

from support.exporter import ScrapedPage
from support.loopback import free_ports
from triton_exporter.catalogue import Metric, gpu, state
from triton_exporter.gpu.gpu_reading import canonical_uuid, decode_throttle
from tritonwatch.local import CannotStartError, TritonPorts, TritonServer

HERE = Path(__file__).parent
GIB = 2**30
MODELS = {"busy": 2 * GIB, "idle": 8 * GIB, "greedy": 2**44}
"""The models with the memory that they take when they are loaded; no machine has as much as the last one wants."""

PATIENCE_WITHOUT_GPU = 4
"""How many times as long as with a GPU things may take: this machine may run all other tests at the same time."""

CONTEXT_BYTES = 2 * GIB
"""The most that a process holds on a GPU beside what its model asked for."""

_CONFIG = """\
backend: "python"
max_batch_size: 0
input [{{ name: "SECONDS" data_type: TYPE_FP32 dims: [ 1 ] }}]
output [{{ name: "SPENT" data_type: TYPE_FP32 dims: [ 1 ] }}]
instance_group [{{ count: 1 {kind} }}]
parameters {{ key: "bytes" value {{ string_value: "{bytes}" }} }}
"""


class Compared(NamedTuple):
    """A series that must be what nvidia-smi says, whose unit is `unit` of ours."""

    metric: Metric
    field: str
    unit: float = 1.0
    relative: float = 0.0
    absolute: float = 0.0
    labels: Mapping[str, str] = {}


COMPARED = (
    Compared(gpu.UTILIZATION, "utilization.gpu", 0.01, absolute=0.1),
    Compared(gpu.MEMORY_TOTAL, "memory.total", 2**20, relative=0.001),
    Compared(gpu.MEMORY_USED, "memory.used", 2**20, relative=0.02),
    Compared(gpu.MEMORY_FREE, "memory.free", 2**20, relative=0.02),
    Compared(gpu.MEMORY_RESERVED, "memory.reserved", 2**20, relative=0.02),
    Compared(gpu.POWER, "power.draw", relative=0.1, absolute=5),
    Compared(gpu.POWER_LIMIT, "enforced.power.limit", relative=0.01),
    Compared(gpu.TEMPERATURE, "temperature.gpu", absolute=3),
    Compared(gpu.MEMORY_TEMPERATURE, "temperature.memory", absolute=3),
    Compared(gpu.SM_CLOCK, "clocks.sm", 1e6, relative=0.05),
    Compared(gpu.ECC_ERRORS, "ecc.errors.corrected.volatile.total", labels={"type": "corrected"}),
    Compared(gpu.ECC_ERRORS, "ecc.errors.uncorrected.volatile.total", labels={"type": "uncorrected"}),
)
OF_TRITON = (gpu.UTILIZATION, gpu.MEMORY_TOTAL, gpu.MEMORY_USED, gpu.POWER, gpu.POWER_LIMIT)
"""What Triton's own GPU metrics report of a GPU, besides its energy."""

_ASKED = (
    *("uuid", "name", "driver_version", "mig.mode.current", "clocks_event_reasons.active"),
    *(compared.field for compared in COMPARED),
)


class Sample(NamedTuple):
    """One moment: nvidia-smi's fields, and the pages of both exporters and of Triton."""

    at: float
    smi: Mapping[str, str]
    pages: Mapping[str, ScrapedPage]


@dataclass
class Exporter:
    """A `tritonwatch exporter` of its own process."""

    process: subprocess.Popen[bytes]
    url: str


@dataclass
class Check:
    """What the steps share, and the lines that they print."""

    folder: Path
    seconds: float
    has_gpu: bool = False
    device: str = "none"
    uuid: str = ""
    server: TritonServer | None = None
    exporters: dict[str, Exporter] = field(default_factory=dict)
    fields: tuple[str, ...] = _ASKED
    samples: list[Sample] = field(default_factory=list)
    failed: int = 0

    @property
    def patience(self) -> int:
        return 1 if self.has_gpu else PATIENCE_WITHOUT_GPU

    def line(self, word: str, name: str, text: str) -> None:
        """Print a line, and keep it for the summary."""
        self.failed += word == "FAIL"
        printed = f"{word:<6} {name}: {' '.join(text.split())}"
        print(printed, flush=True)
        with (self.folder / "summary.txt").open("a", encoding="utf-8") as file:
            file.write(f"{printed}\n")

    def expect(self, name: str, passed: object, expected: str, seen: object) -> None:
        """Print PASS and what was seen, or FAIL with what was expected."""
        self.line(
            "PASS" if passed else "FAIL", name, str(seen) if passed else f"expected {expected}, seen {seen}"
        )

    def gpu_only(self, *names: str) -> bool:
        """Return whether there is a GPU; otherwise print that these checks need one."""
        for name in () if self.has_gpu else names:
            self.line("NO GPU", name, "not checked")
        return self.has_gpu

    def keep(self, name: str, text: str) -> None:
        """Write a file of the results."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def triton(self) -> TritonServer:
        """Return the server. Raises RuntimeError where none was started."""
        if self.server is None:
            raise RuntimeError("there is no Triton")
        return self.server

    def numbers(self, model: str) -> dict[str, float]:
        """Return what a model says of itself."""
        return dict(json.loads((self.folder / "numbers" / f"{model}.json").read_text()))

    def page(self, name: str, kept_as: str = "") -> ScrapedPage:
        """Scrape an exporter, or Triton itself, and keep the page."""
        url = self.triton().metrics_url if name == "own" else f"{self.exporters[name].url}/metrics"
        answer = requests.get(url, timeout=10 * self.patience)
        answer.raise_for_status()
        self.keep(f"pages/{name}/{kept_as or f'{time.time():.3f}'}.prom", answer.text)
        return ScrapedPage(answer.text)

    def wait(
        self, name: str, condition: Callable[[ScrapedPage], object], seconds: float, kept_as: str = ""
    ) -> tuple[ScrapedPage, bool]:
        """Scrape until a page meets the condition; returns the last page and whether it does."""
        deadline = time.monotonic() + seconds * self.patience
        while True:
            page = self.page(name, kept_as)
            if condition(page) or time.monotonic() > deadline:
                return page, bool(condition(page))
            time.sleep(0.5)

    def smi(self) -> dict[str, str]:
        """Ask nvidia-smi for the fields it knows, of the first GPU."""
        asked = f"--query-gpu={','.join(self.fields)}"
        printed = command("nvidia-smi", asked, "--format=csv,noheader,nounits", "--id=0")
        return dict(zip(self.fields, (text.strip() for text in printed.strip().split(",")), strict=False))


def command(*words: str, seconds: float = 20.0) -> str:
    """Return what a program prints. Raises OSError or SubprocessError where it fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=True)
    return done.stdout


def number(text: str | None) -> float | None:
    """Read a field of nvidia-smi; None for [N/A] and what else is no number."""
    try:
        return float(text or "")
    except ValueError:
        return None


def median(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that there are."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def is_close(compared: Compared, ours: float | None, theirs: float | None) -> bool:
    """Return whether our value is nvidia-smi's, within what two readings of a working GPU may differ."""
    if ours is None or theirs is None:
        return ours is theirs
    wanted = theirs * compared.unit
    return abs(ours - wanted) <= compared.relative * abs(wanted) + compared.absolute


def changes(before: ScrapedPage, after: ScrapedPage) -> str:
    """Write which series came, went and changed between two pages."""
    old, new = (
        dict(line.rsplit(" ", 1) for line in page.text.splitlines() if line and not line.startswith("#"))
        for page in (before, after)
    )
    lines = [f"- {series} {old[series]}" for series in old if series not in new]
    lines += [f"+ {series} {new[series]}" for series in new if series not in old]
    lines += [
        f"~ {series} {old[series]} -> {new[series]}"
        for series in new
        if old.get(series, new[series]) != new[series]
    ]
    return "\n".join(lines) + "\n"


def machine(check: Check) -> None:
    """Record the machine, and find out whether it has a GPU."""
    for name, words in {
        "nvidia-smi-q.txt": ("nvidia-smi", "-q"),
        "nvidia-smi-q.xml": ("nvidia-smi", "-q", "-x"),
        "dmesg-before.txt": ("dmesg",),
        "libraries.txt": ("ldconfig", "-p"),
        "devices.txt": ("sh", "-c", "uname -a; cat /etc/os-release; ls -l /dev/nvidia* /usr/local/nvidia"),
    }.items():
        done = ""
        with suppress(OSError, subprocess.TimeoutExpired):
            # Some of these fail half-way, and what they print before is worth having.
            asked = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
            done = asked.stdout + asked.stderr
        check.keep(f"machine/{name}", done)
    check.line(
        "SEEN", "machine", f"Python {platform.python_version()} at {sys.executable}, {platform.platform()}"
    )
    try:
        try:
            fields = check.smi()
        except subprocess.CalledProcessError:
            # One field that this driver does not know fails the whole question.
            check.fields = tuple(name for name in _ASKED if _is_known(name))
            fields = check.smi()
        check.uuid = canonical_uuid(fields["uuid"])
        check.has_gpu = True
    except (OSError, subprocess.SubprocessError, KeyError) as error:
        check.line("NO GPU", "nvidia-smi", str(error))
        return
    unknown = sorted(set(_ASKED) - set(check.fields))
    check.expect(
        "nvidia-smi knows every field", not unknown, "all", f"unknown: {unknown}" if unknown else "all known"
    )
    check.line("SEEN", "GPU", f"{fields['name']} {check.uuid}, driver {fields['driver_version']}")


def _is_known(name: str) -> bool:
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={name}", "--format=csv,noheader", "--id=0"],
        capture_output=True,
        timeout=20,
        check=False,
    )
    return done.returncode == 0


def devices(check: Check) -> None:
    """Choose how the models reach the GPU: PyTorch, else the driver's own API."""
    if not check.gpu_only("PyTorch reaches the GPU", "the driver API reaches the GPU"):
        return
    programs = {
        "driver": "import sys; sys.path[:0] = [sys.argv[1]]; sys.modules['triton_python_backend_utils'] = sys\n"
        "import model; device = model.Driver(); device.allocate(1 << 20); device.work(0.2); print(device.memory())",
        "torch": "import torch; a = torch.rand(512, 512, device='cuda:0'); (a @ a).sum().item()\n"
        "print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0))",
    }
    for name, program in programs.items():
        done = subprocess.run(
            [sys.executable, "-c", program, str(HERE)],
            capture_output=True,
            text=True,
            timeout=70,
            check=False,
        )
        check.keep(f"machine/{name}.txt", done.stdout + done.stderr)
        if done.returncode == 0:
            check.device = name
        what = "PyTorch" if name == "torch" else "the driver API"
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        check.expect(f"{what} reaches the GPU", done.returncode == 0, "an answer", done.stdout or last)


def start_triton(check: Check) -> None:
    """Start Triton with its GPU metrics on; where it hangs, without them."""
    repository = check.folder / "models"
    kind = "kind: KIND_CPU" if check.device == "none" else "kind: KIND_GPU gpus: [ 0 ]"
    for name, size in MODELS.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        shutil.copy(HERE / "model.py", version)
        (repository / name / "config.pbtxt").write_text(_CONFIG.format(kind=kind, bytes=size))
    (check.folder / "numbers").mkdir()
    allowed = [f"--allow-gpu-metrics={'true' if check.has_gpu else 'false'}"]
    problem = _try_triton(check, allowed)
    check.gpu_only("Triton with GPU metrics")
    name = "Triton with GPU metrics" if check.has_gpu else "Triton without GPU metrics"
    check.expect(name, not problem, "live in time", problem or "live")
    if problem and check.has_gpu:
        problem = _try_triton(check, ["--allow-gpu-metrics=false"])
        check.expect("Triton without GPU metrics", not problem, "live in time", problem or "live")


def _try_triton(check: Check, arguments: list[str]) -> str:
    environment = {
        "GPU_CHECK_DEVICE": check.device,
        "GPU_CHECK_NUMBERS": str(check.folder / "numbers"),
        # Triton's own libraries first, then those that this machine's driver may need.
        "LD_LIBRARY_PATH": ":".join(_library_folders()),
    }
    directory = check.folder / "triton"
    directory.mkdir(exist_ok=True)
    server = TritonServer(
        check.folder / "models",
        directory,
        TritonPorts(*free_ports(3)),
        control="explicit",
        arguments=arguments,
        environment=environment,
        auto_complete=False,
    )
    try:
        server.start()
        check.server = server
        assert server.process is not None
        with (check.folder / "processes").open("a") as file:  # check.sh ends what is left of them
            file.write(f"{server.process.pid}\n")
        server.wait_live(60 * check.patience)
    except CannotStartError as error:
        server.kill()
        check.server = None
        log = server.log.read_text(errors="replace") if server.log.exists() else ""
        return f"{error}: {' / '.join(log.splitlines()[-3:])}"
    return ""


def _library_folders() -> list[str]:
    from tritonwatch.local import environment

    return [*environment()["LD_LIBRARY_PATH"].split(":"), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]


def start_exporters(check: Check) -> None:
    """Start an exporter that reads NVML and one that reads Triton's own GPU metrics."""
    server = check.triton()
    for name, options in {"nvml": ("--gpu-models", "busy,idle"), "triton": ()}.items():
        (port,) = free_ports(1)
        words = [
            *(sys.executable, "-m", "tritonwatch", "exporter", "--listen", f"127.0.0.1:{port}"),
            *("--triton", server.http_url, "--triton-metrics", server.metrics_url),
            *("--triton-log", str(server.log), "--gpu", name, *options),
        ]
        with (check.folder / f"exporter-{name}.log").open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        with (check.folder / "processes").open("a") as file:
            file.write(f"{process.pid}\n")
        check.exporters[name] = Exporter(process, f"http://127.0.0.1:{port}")
        page, up = _first_page(check, name)
        check.expect(f"exporter with --gpu {name}", up, "triton_up 1", f"triton_up {page.value(state.UP)}")


def _first_page(check: Check, name: str) -> tuple[ScrapedPage, bool]:
    deadline = time.monotonic() + 30 * check.patience
    while True:
        try:
            return check.wait(name, lambda page: page.value(state.UP) == 1, 20, "first")
        except requests.ConnectionError:
            if time.monotonic() > deadline or check.exporters[name].process.poll() is not None:
                raise
            time.sleep(0.2)


def load(check: Check) -> None:
    """Load the two models; the time includes the import of PyTorch."""
    answers: dict[str, str] = {}

    def load_one(model: str) -> None:
        began = time.monotonic()
        answer = _control(check, "load", model)
        answers[model] = f"{answer.status_code} {answer.text} after {time.monotonic() - began:.1f} s"

    threads = [threading.Thread(target=load_one, args=(model,), daemon=True) for model in ("busy", "idle")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(150)
    for model in ("busy", "idle"):
        seen = answers.get(model, "no answer")
        check.expect(f"load {model}", seen.startswith("200"), "200", seen)
        if seen.startswith("200"):
            numbers = check.numbers(model)
            check.line("SEEN", f"{model} itself", json.dumps(numbers))


def _control(check: Check, action: str, model: str) -> requests.Response:
    url = f"{check.triton().http_url}/v2/repository/models/{model}/{action}"
    return requests.post(url, json={}, timeout=140)


def _infer(check: Check, model: str, seconds: float) -> requests.Response:
    tensor = {"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [seconds]}
    url = f"{check.triton().http_url}/v2/models/{model}/infer"
    return requests.post(url, json={"inputs": [tensor]}, timeout=30)


def load_failure(check: Check) -> None:
    """Load a model that wants more memory than there is: the reason is the lack of memory."""
    answer = _control(check, "load", "greedy")
    check.keep("greedy.txt", answer.text)
    check.expect(
        "load greedy", answer.status_code == 400, "400", f"{answer.status_code} {answer.text[-300:]}"
    )
    labels = {"model": "greedy", "reason": "out_of_memory"}
    for name in check.exporters:
        page, counted = check.wait(
            name, lambda page: page.value(state.MODEL_LOAD_FAILURES, **labels), 15, "greedy"
        )
        rows = {
            dict(key)["reason"]: value
            for key, value in page.series(state.MODEL_LOAD_FAILURES).items()
            if value
        }
        check.expect(f"reason of the load failure, --gpu {name}", counted, "out_of_memory", rows)
    if check.gpu_only("CUDA out of memory"):
        check.expect(
            "CUDA out of memory", "CUDA out of memory" in answer.text, "these words", answer.text[-300:]
        )


@contextmanager
def traffic(check: Check) -> Iterator[list[int]]:
    """Keep the busy model busy until the block ends; yields the statuses of the answers."""
    statuses: list[int] = []
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            try:
                statuses.append(_infer(check, "busy", 0.5).status_code)
            except requests.RequestException:
                statuses.append(0)
                ended.wait(0.5)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        thread.join(35)


def minute(check: Check) -> None:
    """Sample nvidia-smi and all pages while the busy model works."""
    with traffic(check) as statuses:
        _infer(check, "busy", 0.1)
        time.sleep(min(6.0, check.seconds / 3))  # the exporters read the GPU every five seconds
        before = check.numbers("busy")["seconds"], time.monotonic()
        deadline = time.monotonic() + check.seconds
        while time.monotonic() < deadline:
            smi = check.smi() if check.has_gpu else {}
            pages = {name: check.page(name) for name in ("own", *check.exporters)}
            check.samples.append(Sample(time.time(), smi, pages))
            time.sleep(2.5)
        worked = check.numbers("busy")["seconds"] - before[0]
        took = time.monotonic() - before[1]
    check.keep("nvidia-smi.json", json.dumps([[sample.at, sample.smi] for sample in check.samples], indent=1))
    check.keep("busy.txt", _infer(check, "busy", 0.1).text)
    check.expect(
        "requests to busy", set(statuses) == {200}, "only 200", f"{len(statuses)} with {set(statuses)}"
    )
    check.expect(
        "work of busy",
        worked >= 0.5 * took,
        f"half of {took:.0f} s",
        f"{worked:.1f} s of {took:.1f} by its own count",
    )
    own = _increase(check, "own", "nv_inference_compute_infer_duration_us", model="busy")
    seen = "none" if own is None else f"{own * 1e-6:.1f} s"
    check.expect(
        "execution time that Triton counts",
        own and abs(own * 1e-6 - worked) <= 0.15 * worked + 2,
        f"{worked:.1f} s",
        seen,
    )


def _increase(check: Check, page: str, name: Metric | str, **labels: str) -> float | None:
    """Return how much the sum of the series with these labels grew over the samples."""
    ends = []
    for sample in (check.samples[0], check.samples[-1]):
        rows = sample.pages[page].series(name).items()
        wanted = [value for key, value in rows if labels.items() <= dict(key).items()]
        if not wanted:
            return None
        ends.append(sum(wanted))
    return ends[1] - ends[0]


def compare(check: Check) -> None:
    """Compare what the exporters showed during the minute with what nvidia-smi said."""
    if not check.gpu_only(*(str(compared.metric) for compared in COMPARED)):
        return
    for name in check.exporters:
        for compared in COMPARED:
            if name == "triton" and compared.metric not in OF_TRITON:
                continue
            labels = {"gpu_uuid": check.uuid, **compared.labels}
            ours = median([sample.pages[name].value(compared.metric, **labels) for sample in check.samples])
            theirs = median([number(sample.smi.get(compared.field)) for sample in check.samples])
            wanted = "none" if theirs is None else f"{theirs * compared.unit:.6g}"
            check.expect(
                f"{compared.metric}{compared.labels or ''}, --gpu {name}",
                is_close(compared, ours, theirs),
                f"{wanted} ({compared.field})",
                "none" if ours is None else f"{ours:.6g} (nvidia-smi: {wanted})",
            )


def energy(check: Check) -> None:
    """Compare the energy over the minute with the power that nvidia-smi reported."""
    if not check.gpu_only("energy over a minute"):
        return
    points = [(sample.at, number(sample.smi.get("power.draw"))) for sample in check.samples]
    used = sum(
        (after[0] - before[0]) * ((before[1] or 0.0) + (after[1] or 0.0)) / 2
        for before, after in pairwise(points)
    )
    for name in check.exporters:
        ours = _increase(check, name, gpu.ENERGY, gpu_uuid=check.uuid)
        check.expect(
            f"energy over {points[-1][0] - points[0][0]:.0f} s, --gpu {name}",
            ours is not None and abs(ours - used) <= 0.15 * used,
            f"{used:.0f} J within 15%",
            f"{ours} J (power of nvidia-smi: {used:.0f} J)",
        )


def models_on_gpus(check: Check) -> None:
    """Check which model is mapped to the GPU, how surely, and its share of time and memory."""
    names = (
        "mapping with --gpu-models",
        "mapping without",
        "Triton's gpu_uuid",
        "share of busy",
        "memory of processes",
    )
    if not check.gpu_only(*names):
        return
    for name, wanted in {"nvml": "certain", "triton": "guess"}.items():
        rows = [dict(key) for key in check.samples[-1].pages[name].series(gpu.MODEL_GPU_INFO)]
        seen = {row["model"]: (row["gpu_uuid"], row["source"], row["confidence"]) for row in rows}
        good = {"busy", "idle"} == seen.keys() and all(
            uuid == check.uuid and confidence == wanted for uuid, _, confidence in seen.values()
        )
        check.expect(f"mapping, --gpu {name}", good, f"busy and idle on {check.uuid}, {wanted}", seen)
    problems = check.samples[-1].pages["nvml"].series(gpu.MODEL_LABEL_PROBLEM)
    check.expect("Triton's gpu_uuid of models", not problems, "no problem", sorted(map(sorted, problems)))
    own = check.samples[-1].pages["own"].labels("nv_gpu_utilization", "gpu_uuid")
    check.expect("Triton's own GPU metrics", own == {check.uuid}, check.uuid, own)
    shares = {
        model: median(
            [
                sample.pages["nvml"].value(
                    gpu.MODEL_UTILIZATION, model=model, version="1", gpu_uuid=check.uuid
                )
                for sample in check.samples
            ]
        )
        for model in ("busy", "idle")
    }
    whole = median(
        [sample.pages["nvml"].value(gpu.UTILIZATION, gpu_uuid=check.uuid) for sample in check.samples]
    )
    check.expect(
        "share of busy and idle",
        whole and (shares["busy"] or 0) >= 0.8 * whole and not shares["idle"],
        "nearly all and none",
        f"{shares} of {whole}",
    )
    _memory_of_processes(check)


def _memory_of_processes(check: Check) -> None:
    printed = command("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    check.keep("machine/processes.txt", printed)
    rows = [line.split(",") for line in printed.splitlines() if line.count(",") == 1]
    held = {int(pid): (number(size) or 0.0) * 2**20 for pid, size in rows if pid.strip().isdigit()}
    for model in ("busy", "idle"):
        size = held.get(int(check.numbers(model)["pid"]))
        most = MODELS[model] + CONTEXT_BYTES
        check.expect(
            f"memory of the process of {model}",
            size is not None and MODELS[model] <= size <= most,
            f"{MODELS[model]} to {most} bytes",
            size,
        )
    last = check.samples[-1].pages["nvml"]
    used, ours = last.value(gpu.MEMORY_USED, gpu_uuid=check.uuid), sum(held.values())
    check.expect(
        "memory used against all processes",
        used and abs(used - ours) <= GIB,
        f"{ours} bytes within 1 GiB",
        f"{used} of {len(held)} processes",
    )
    estimates = last.series(gpu.MODEL_MEMORY)
    check.expect(
        "memory by model", not estimates, "none: the Python backend reports none", list(estimates.items())
    )


def health(check: Check) -> None:
    """Check throttle reasons, XIDs, and that MIG is off."""
    if not check.gpu_only("throttle reasons", "XIDs are watched", "MIG"):
        return
    pages = [sample.pages["nvml"] for sample in check.samples]
    masks = [sample.smi.get("clocks_event_reasons.active", "") for sample in check.samples]
    theirs = {
        reason
        for mask in masks
        if mask.startswith("0x")
        for reason, on in decode_throttle(int(mask, 16)).items()
        if on
    }
    ours = {
        dict(key)["reason"]
        for page in pages
        for key, value in page.series(gpu.THROTTLE_REASON).items()
        if value
    }
    check.expect("throttle reasons", ours == theirs, f"{sorted(theirs)} ({set(masks)})", sorted(ours))
    with suppress(OSError, subprocess.SubprocessError):
        check.keep("machine/dmesg.txt", command("dmesg"))
    log = check.folder / "machine" / "dmesg.txt"
    told = len(re.findall(r"NVRM: Xid", log.read_text())) if log.exists() else 0
    xids = pages[-1].series(gpu.XID_ERRORS)
    counted = {dict(key)["xid"]: value for key, value in xids.items() if value}
    check.expect("XIDs are watched", xids, "series at 0", f"{len(xids)} codes")
    check.expect("XIDs", bool(counted) == bool(told), f"{told} in the kernel's log", counted or "none")
    modes = {sample.smi.get("mig.mode.current") for sample in check.samples}
    instances = pages[-1].series(gpu.INSTANCE_INFO)
    check.expect(
        "MIG is off",
        not instances and "Enabled" not in modes,
        "no instances",
        f"{len(instances)} instances, {modes}",
    )
    shown = {name for name in vars(gpu).values() if isinstance(name, Metric) and pages[-1].series(name)}
    absent = sorted(str(m) for m in vars(gpu).values() if isinstance(m, Metric) and m not in shown)
    check.line("SEEN", "families that --gpu nvml does not show", ", ".join(absent))


def doctor(check: Check) -> None:
    """Run the doctor once with each source."""
    server = check.triton()
    for name in ("nvml", "triton"):
        words = [
            *(sys.executable, "-m", "tritonwatch", "doctor", "--triton", server.http_url),
            *("--triton-metrics", server.metrics_url, "--gpu", name),
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=40 * check.patience, check=False)
        check.keep(f"doctor-{name}.txt", done.stdout + done.stderr)
        titles = re.findall(r"^\[(\w+)\] (.*)$", done.stdout, re.MULTILINE)
        answered = done.stdout.startswith("Triton 2.") and not done.stderr
        check.expect(
            f"doctor --gpu {name}",
            answered,
            "an answer",
            f"exit {done.returncode}, {titles or done.stderr[-300:]}",
        )
        if check.gpu_only(f"findings of doctor --gpu {name}"):
            without = [title for _, title in titles if "No source" in title or "does not answer" in title]
            check.expect(
                f"findings of doctor --gpu {name}",
                not without,
                "a source that answers",
                without or "it answers",
            )


def unload(check: Check) -> None:
    """Unload the busy model: it goes from the page, and its memory from the GPU."""
    before = {name: check.page(name, "before-unload") for name in check.exporters}
    used = _memory_used(check)
    answer = _control(check, "unload", "busy")
    check.expect("unload busy", answer.ok, "200", f"{answer.status_code} {answer.text}")
    for name in check.exporters:
        _, gone = check.wait(
            name,
            lambda page: page.value(state.MODEL_STATE, model="busy", version="1", state="unloaded") == 1,
            20,
        )
        check.expect(f"state of busy, --gpu {name}", gone, "unloaded", "unloaded" if gone else "not unloaded")
    _memory_freed(check, "unloaded busy", used, MODELS["busy"])
    for name, page in before.items():
        after = check.page(name, "after-unload")
        check.keep(f"changes/unload-{name}.txt", changes(page, after))
        if check.gpu_only(f"mapping after unload, --gpu {name}"):
            models = after.labels(gpu.MODEL_GPU_INFO, "model")
            check.expect(f"mapping after unload, --gpu {name}", models == {"idle"}, "idle only", models)


def _memory_used(check: Check) -> float:
    return (number(check.smi().get("memory.used")) or 0.0) * 2**20 if check.has_gpu else 0.0


def _memory_freed(check: Check, what: str, before: float, size: int) -> None:
    """Check that nvidia-smi and the exporter show that the memory was given back."""
    names = f"nvidia-smi: memory of {what}", f"--gpu nvml: memory of {what}"
    if not check.gpu_only(*names):
        return
    deadline = time.monotonic() + 20
    while (after := _memory_used(check)) > before - 0.9 * size and time.monotonic() < deadline:
        time.sleep(0.5)
    check.expect(
        names[0], after <= before - 0.9 * size, f"{size} bytes less than {before:.0f}", f"{after:.0f}"
    )
    page, freed = check.wait(
        "nvml",
        lambda page: (page.value(gpu.MEMORY_USED, gpu_uuid=check.uuid) or before) <= before - 0.9 * size,
        15,
        "memory",
    )
    seen = page.value(gpu.MEMORY_USED, gpu_uuid=check.uuid)
    check.expect(names[1], freed, f"{size} bytes less than {before:.0f}", f"{seen}")


def kill_stub(check: Check) -> None:
    """Kill the process of the idle model."""
    before = {name: check.page(name, "before-stub-kill") for name in check.exporters}
    used, pid = _memory_used(check), int(check.numbers("idle")["pid"])
    os.kill(pid, signal.SIGKILL)
    _memory_freed(check, "killed idle", used, MODELS["idle"])
    statuses = []
    for _ in range(8):  # the exporter wants five failures over five seconds
        answer = _infer(check, "idle", 0.01)
        statuses.append(answer.status_code)
        time.sleep(0.8)
    check.keep("stub-kill.txt", f"{statuses}\n{answer.text}\n")
    name = "requests to a model without its process"
    check.expect(name, 200 not in statuses, "none answered", statuses)
    for name, page in before.items():
        after, noticed = check.wait(
            name,
            lambda page: page.value(state.MODEL_READY, model="idle", version="1") == 0,
            15,
            "after-stub-kill",
        )
        check.expect(
            f"killed idle is not ready, --gpu {name}",
            noticed,
            "triton_model_ready 0",
            "0" if noticed else "1",
        )
        check.keep(f"changes/stub-kill-{name}.txt", changes(page, after))


def reload(check: Check) -> None:
    """Load the model whose process was killed again: it is ready, and Triton is killed with it loaded."""
    killed = check.numbers("idle")["pid"]
    # A load alone does nothing: Triton takes the model for loaded.
    for action in ("unload", "load"):
        answer = _control(check, action, "idle")
        check.expect(f"{action} killed idle", answer.ok, "200", f"{answer.status_code} {answer.text}")
    pid = check.numbers("idle")["pid"]
    check.expect("process of idle after the reload", pid != killed, f"another than {killed}", pid)
    status = _infer(check, "idle", 0.01).status_code
    check.expect("request to idle after the reload", status == 200, "200", status)
    for name in check.exporters:
        page, back = check.wait(
            name,
            lambda page: page.value(state.MODEL_READY, model="idle", version="1") == 1,
            20,
            "after-reload",
        )
        seen = page.value(state.MODEL_READY, model="idle", version="1")
        check.expect(f"idle after the reload, --gpu {name}", back, "triton_model_ready 1", seen)


def kill_triton(check: Check) -> None:
    """Kill Triton, and see what its pages and its processes do."""
    before = {name: check.page(name, "before-kill") for name in check.exporters}
    server, stub = check.triton(), Path(f"/proc/{int(check.numbers('idle')['pid'])}")
    with _killed_alone(server):
        began = time.monotonic()
        while _lives(stub) and time.monotonic() < began + 10:
            time.sleep(0.1)
        held = f", {_memory_used(check):.0f} bytes of the GPU in use" if check.has_gpu else ""
        what = f"{'lives' if _lives(stub) else 'has ended'} {time.monotonic() - began:.1f} s later{held}"
        check.line("SEEN", "the model's process after Triton was killed", what)
    for name, page in before.items():
        after, down = check.wait(name, lambda page: page.value(state.UP) == 0, 15, "after-kill")
        check.expect(
            f"Triton killed, --gpu {name}", down, "triton_up 0", f"triton_up {after.value(state.UP)}"
        )
        check.keep(f"changes/kill-{name}.txt", changes(page, after))
    if check.gpu_only("GPU series without Triton"):
        time.sleep(6)
        page = check.page("nvml", "later-after-kill")
        power = page.value(gpu.POWER, gpu_uuid=check.uuid)
        check.expect("GPU series without Triton, --gpu nvml", power, "power", f"{power} W")
        kept = check.page("triton", "later-after-kill").value(gpu.POWER, gpu_uuid=check.uuid)
        check.line("SEEN", "GPU series without Triton, --gpu triton", f"power {kept}")


@contextmanager
def _killed_alone(server: TritonServer) -> Iterator[None]:
    """Kill the server only, as the kernel does when memory runs out; after the block, what it leaves."""
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGKILL)
    try:
        yield
    finally:
        server.kill()


def _lives(process: Path) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        return "\nState:\tZ" not in (process / "status").read_text()
    except OSError:
        return False


def sizes(check: Check) -> None:
    """Report how large the pages were."""
    for name in ("own", *check.exporters):
        largest = max(len(sample.pages[name].text.encode()) for sample in check.samples)
        check.expect(f"bytes of the page of {name}", largest < 1_000_000, "less than 1 MB", largest)
    for name, exporter in check.exporters.items():
        log = (check.folder / f"exporter-{name}.log").read_text(errors="replace")
        alive = exporter.process.poll() is None and "Traceback" not in log
        check.expect(f"exporter with --gpu {name} at the end", alive, "no traceback", log[-300:])


STEPS: tuple[tuple[float, Callable[[Check], None]], ...] = (
    (90, machine),
    (100, devices),
    (130, start_triton),
    (60, start_exporters),
    (150, load),
    (100, load_failure),
    (110, minute),
    (20, compare),
    (20, energy),
    (30, models_on_gpus),
    (30, health),
    (60, doctor),
    (80, unload),
    (80, kill_stub),
    (100, reload),
    (60, kill_triton),
    (20, sizes),
)
"""Every step with the seconds that it may take; one that fails or takes longer does not stop those after it."""


def run(check: Check) -> None:
    """Run all steps."""
    for limit, step in STEPS:
        began = time.monotonic()
        thread = threading.Thread(target=_guarded, args=(check, step), daemon=True)
        thread.start()
        thread.join(limit * check.patience)
        if thread.is_alive():
            check.line("FAIL", step.__name__, f"expected an end within {limit:g} s, seen none")
        with (check.folder / "times.txt").open("a") as file:
            file.write(f"{step.__name__} {time.monotonic() - began:.1f}\n")


def _guarded(check: Check, step: Callable[[Check], None]) -> None:
    try:
        step(check)
    except BaseException as error:  # noqa: BLE001 - the steps after it have their only chance
        with (check.folder / "errors.txt").open("a") as file:
            file.write(traceback.format_exc())
        check.line("FAIL", step.__name__, f"expected no error, seen {type(error).__name__}: {error}")


def main(folder: Path, seconds: float) -> int:
    """Run everything; returns the exit status."""
    check = Check(folder, seconds)

    def end(*_: object) -> None:
        check.line("FAIL", "the whole check", "expected an end in time, seen SIGTERM")
        _stop(check)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    run(check)
    _stop(check)
    print(f"{check.failed} failed")
    return int(check.failed > 0)


def _stop(check: Check) -> None:
    for exporter in check.exporters.values():
        exporter.process.kill()
    if check.server is not None:
        check.server.kill()


if __name__ == "__main__":
    status = main(Path(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.flush()
    os._exit(status)  # a step that hangs would keep the process
