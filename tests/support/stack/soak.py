"""Run the compose stack's real programs at load during a seeded schedule of faults, and judge the result.

Parts that are killed come back as a container engine's restart policy brings them. In between, models fail to
load and are fixed: each is an incident that on-call must be notified of, and of its end.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import requests

from support.loopback import free_ports
from support.repository import Repository
from support.slack.server import SlackServer
from support.slack.workspace import Posted, Workspace
from support.stack.mounted_stack import MountedStack
from support.stack.soak_record import Fault, Incident, Record
from support.tools import ROOT, alertmanagers, prometheuses
from support.triton import control, infer
from triton_exporter.catalogue import state
from tritonwatch.local import TritonPorts, TritonServer, describe_exit, kill_group

SERVICES = ("exporter", "bridge", "alertmanager", "prometheus")
FAKETIME = "libfaketimeMT.so.1"
NOTIFIED_SECONDS = 600.0
"""After this time a message counts as lost. Far more than it takes, which the report has: on a machine with ten
times the work that it can do, each of the parts that were killed takes ten times as long to start."""
PATIENT_SECONDS = 720.0
"""The same where Alertmanager may have been killed: the bridge asks Alertmanager after five and three minutes."""
BACK_SECONDS = 300.0
"""After this time a part counts as dead, as above."""
LOAD_PAUSE = 0.1


class TimedOutError(AssertionError):
    """A part did not recover, or a message did not arrive, in time."""


class Soak:
    """A running stack, its load, and the faults that are caused in it."""

    def __init__(
        self, folder: Path, slack: SlackServer, stack: MountedStack, seed: int, *, patient: bool
    ) -> None:
        self.folder = folder
        self.record = Record()
        self._slack = slack
        self._stack = stack
        self._random = random.Random(seed)
        # An Alertmanager that is killed forgets what it sent, and never sends the end of it; the bridge finds
        # that out by asking, once Alertmanager has been shown everything again: minutes that a short run lacks.
        self._others = (
            SERVICES if patient else tuple(service for service in SERVICES if service != "alertmanager")
        )
        self._end_seconds = PATIENT_SECONDS if patient else NOTIFIED_SECONDS
        self._began = time.monotonic()
        self._over = threading.Event()
        self._clock = folder / "clock"
        self.faked = _faketime()
        self.mounted = False
        self._repository = Repository(folder / "models")
        self._repository.model("echo")
        ports = TritonPorts(stack.ports["triton"], *free_ports(2))
        self._triton = TritonServer(
            self._repository.path, folder, ports, control="explicit", arguments=["--load-model=echo"]
        )
        self._number = 0
        self._killed: set[int] = set()

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def start(self) -> None:
        """Start every part, in the order of depends_on."""
        self._triton.start()
        self._triton.wait_live()
        self._stack.triton_metrics = self._triton.metrics_url
        data = self._stack.folder / "bridge"
        self.mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=8m", "none", data], capture_output=True, check=False
            ).returncode
            == 0
        )
        assert 0 == self._stack.generate()
        for service in SERVICES:
            self._stack.start(service)
        if self.faked:
            self._clock.write_text("+0")
            for service in ("exporter", "bridge"):
                child = self._stack.children[service]
                child.environment = {
                    **child.environment,
                    "LD_PRELOAD": str(self.faked),
                    "FAKETIME_TIMESTAMP_FILE": str(self._clock),
                    "FAKETIME_CACHE_DURATION": "1",
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                }
                child.stop()
                child.start()
                self._until(lambda name=service: self._answers(name), BACK_SECONDS, f"{service} is back")  # type: ignore[misc]
        for work in (self._supervise, self._infer, self._observe):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """End what the stack does not end."""
        self._over.set()
        self._triton.stop(2)

    def run(self, seconds: float) -> None:
        """Break things until the time is up; every incident's end is waited for."""
        quiet = (self._kill, self._reload, self._jump, self._fill)
        while self.now() < seconds:
            self._incident()
            for _ in range(self._random.randint(1, 2)):
                self._random.choice(quiet)()
                time.sleep(self._random.uniform(2, 6))

    def _incident(self) -> None:
        """Let a model fail to load, cause other faults meanwhile, then fix it."""
        self._number += 1
        model, began = f"broken_{self._number}", self.now()
        self._repository.model(model, **{"raise": f"no weights for {model}"})
        self._control(model, "load")
        for _ in range(self._random.randint(0, 1)):
            self._random.choice((self._kill_other, self._jump, self._fill))()
        self._until(
            lambda: any(model in root.shown for root in self._roots()), NOTIFIED_SECONDS, f"{model} in Slack"
        )
        opened = self.now() - began
        (self._repository.path / model / "1" / "raise").unlink()
        fixed = self.now()
        # Triton may be down just now.
        self._until(lambda: self._control(model, "load"), BACK_SECONDS, f"{model} loads")
        for _ in range(self._random.randint(0, 1)):
            self._kill_other()
        self._until(lambda: self._is_closed(model), self._end_seconds, f"the end of {model} in Slack")
        self.record.incidents.append(Incident(began, model, opened, self.now() - fixed))
        self._control(model, "unload")
        time.sleep(3)  # for the exporter to see it: gone in a crash would be another thing

    def _is_closed(self, model: str) -> bool:
        """Every incident about the model is reported as over, also by its escalation."""
        about = [root for root in self._roots() if model in root.shown]
        return all("Resolved" in root.shown for root in about)

    def _kill(self) -> None:
        self._kill_part(self._random.choice((*SERVICES, "triton")))

    def _kill_other(self) -> None:
        self._kill_part(self._random.choice(self._others))

    def _kill_part(self, part: str) -> None:
        at = self.now()
        process = self._triton.process if part == "triton" else self._stack.children[part].process
        assert process is not None
        self._killed.add(process.pid)
        if part == "triton":
            self._triton.kill()
        else:
            kill_group(process.pid)
            process.wait()
        self._until(lambda: self._answers(part), BACK_SECONDS, f"{part} is back")
        self.record.faults.append(Fault(at, f"kill -9 of {part}", self.now() - at))

    def _reload(self) -> None:
        """Reload a model, well or badly; after a bad reload the old copy goes on."""
        at, good = self.now(), self._random.random() < 0.5
        marker = self._repository.path / "echo" / "1" / "raise"
        if not good:
            marker.write_text("this version cannot be loaded")
        self._control("echo", "load")
        marker.unlink(missing_ok=True)
        self._until(lambda: self._call(), BACK_SECONDS, "echo serves")
        name = f"{'good' if good else 'bad'} hot reload of a model that serves"
        self.record.faults.append(Fault(at, name, self.now() - at))

    def _jump(self) -> None:
        """Set the clock of exporter and bridge an hour ahead or back, and later right again."""
        if not self.faked:
            return
        at = self.now()
        jump = self._random.choice(("+3600", "-3600"))
        self._clock.write_text(jump)
        time.sleep(8)
        self._clock.write_text("+0")
        self._until(
            lambda: self._answers("exporter") and self._answers("bridge"), BACK_SECONDS, "both are back"
        )
        self.record.faults.append(
            Fault(at, f"clock of exporter and bridge {jump} s for 8 s", self.now() - at - 8)
        )

    def _fill(self) -> None:
        """Fill the disk of the bridge for some seconds."""
        if not self.mounted:
            return
        at, filler = self.now(), self._stack.folder / "bridge" / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            for size in (65536, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)
                        file.flush()
        time.sleep(5)
        filler.unlink(missing_ok=True)
        self._until(lambda: self._answers("bridge"), BACK_SECONDS, "the bridge is back")
        self.record.faults.append(Fault(at, "disk of the bridge full for 5 s", self.now() - at - 5))

    def _until(self, promise: Callable[[], object], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not promise():
            if time.monotonic() > deadline:
                raise TimedOutError(
                    f"not within {seconds:g} s at {self.now():.0f} s: {what}\n{self._report()}"
                )
            time.sleep(0.2)

    def _report(self) -> str:
        """Return what was done, what is firing and what Slack shows, to find out why."""
        shown = [f"{root.ts} {root.text}" for root in self._roots()]
        firing: object = "Alertmanager does not answer"
        with contextlib.suppress(requests.RequestException, ValueError):
            alerts = self._stack.get("alertmanager", "/api/v2/alerts").json()
            firing = [
                (alert["labels"], alert["startsAt"], alert["endsAt"], alert["status"]["state"])
                for alert in alerts
            ]
        return "\n".join(map(str, [*self.record.faults[-8:], firing, *shown]))

    def _answers(self, part: str) -> bool:
        try:
            if part == "triton":
                return requests.get(f"{self._triton.http_url}/v2/health/live", timeout=2).status_code == 200
            path = "/-/ready" if part != "exporter" else "/-/healthy"
            return self._stack.get(part, path).status_code == 200
        except requests.RequestException:
            return False

    def _control(self, model: str, action: str) -> bool:
        try:
            return control(self._triton, action, model) == 200
        except requests.RequestException:
            return False

    def _call(self) -> bool:
        try:
            return infer(self._triton, "echo") == 200
        except requests.RequestException:
            return False

    def _roots(self) -> list[Posted]:
        return self._slack.workspace.roots()

    def _infer(self) -> None:
        while not self._over.wait(LOAD_PAUSE):
            if self._call():
                self.record.answers += 1
            else:
                self.record.failures += 1

    def _supervise(self) -> None:
        """Bring back what ended, as `restart: unless-stopped` does."""
        while not self._over.wait(0.5):
            for name, child in self._stack.children.items():
                if self._has_ended(name, child.process):
                    child.start()
            if self._has_ended("triton", self._triton.process):
                self._triton.kill()  # the stubs too
                self._triton.start()

    def _has_ended(self, part: str, process: subprocess.Popen[bytes] | None) -> bool:
        if process is None or (code := process.poll()) is None:
            return False
        if process.pid not in self._killed:
            self.record.ended.append(f"{part} at {self.now():.0f} s: {describe_exit(code)}")
        return True

    def _observe(self) -> None:
        while not self._over.wait(2):
            for name, child in self._stack.children.items():
                with contextlib.suppress(psutil.Error, AttributeError):
                    size = psutil.Process(child.process.pid).memory_info().rss / 2**20  # type: ignore[union-attr]
                    self.record.memory.setdefault(name, []).append((self.now(), size))
            with contextlib.suppress(requests.RequestException, ValueError):
                path = "/api/v2/alerts?active=true&silenced=false&inhibited=false"
                for alert in self._stack.get("alertmanager", path).json():
                    labels = alert["labels"]
                    if labels.get("severity") in ("critical", "warning") and "model" in labels:
                        key = labels["alertname"], labels["model"]
                        self.record.seen[key] = self.record.seen.get(key, 0) + 1

    def settle(self) -> None:
        """Wait until everything works again and what fired last is in Slack."""
        self._until(lambda: not self._dead(), BACK_SECONDS, "every part answers")
        self._until(lambda: not self.undelivered(), NOTIFIED_SECONDS, "every alert is in Slack")

    def undelivered(self) -> list[tuple[str, str]]:
        """Alerts that Alertmanager had and that on-call never saw."""
        return self.record.undelivered(self._slack.workspace.messages)

    def _dead(self) -> list[str]:
        """Parts that do not answer now, and targets that Prometheus cannot scrape."""
        if parts := [part for part in (*SERVICES, "triton") if not self._answers(part)]:
            return parts
        targets = self._stack.get("prometheus", "/api/v1/targets").json()["data"]["activeTargets"]
        blind = (
            [] if f"\n{state.UP} 1" in self._stack.get("exporter", "/metrics").text else ["Triton's metrics"]
        )
        return blind + [target["scrapeUrl"] for target in targets if target["health"] != "up"]

    def tracebacks(self) -> list[str]:
        """Lines of our own parts' logs that begin a traceback."""
        return [
            f"{name}: {line}"
            for name in ("exporter", "bridge")
            for line in (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
            if line.startswith("Traceback")
        ]


@contextmanager
def soaking(folder: Path, seed: int, *, patient: bool = False) -> Iterator[Soak]:
    """Start a soak; everything ends with the block."""
    binaries = {"prometheus": prometheuses()[-1], "alertmanager": alertmanagers()[-1]}
    workspace = Workspace(channels={"C0ALERTS": "#triton-alerts"})
    with (
        SlackServer(workspace) as slack,
        MountedStack(folder, binaries, slack_url=slack.api_url, faster=True) as stack,
    ):
        soak = Soak(folder, slack, stack, seed, patient=patient)
        try:
            soak.start()
            yield soak
        finally:
            soak.stop()
            for child in reversed(stack.children.values()):
                child.stop(5)
            if soak.mounted:
                subprocess.run(["umount", folder / "bridge"], capture_output=True, check=False)


def _faketime() -> Path | None:
    """Return the library that gives a program another clock, where `make soak` or the machine has it."""
    libraries = [
        *(ROOT / ".cache" / "faketime").glob(f"usr/lib/*/faketime/{FAKETIME}"),
        *Path("/usr/lib").glob(f"*/faketime/{FAKETIME}"),
    ]
    return libraries[0] if libraries else None
