"""Run the demo: start the stack, send traffic, print each step and message, and stop everything."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from triton_exporter.common.duration import DAY, in_words
from tritonwatch.demo.load import LoadGenerator
from tritonwatch.demo.stack import Ports, Stack
from tritonwatch.demo.steps import (
    MessageLog,
    Observation,
    Progress,
    Viewer,
    read_notices,
    without_links,
)
from tritonwatch.local import CannotStartError

DEADLINE_SECONDS = 300.0
"""Limit of a run with --once; all steps take well under 180 s on two free cores."""


class PartEndedError(Exception):
    """A process of the demo ended unexpectedly; the message names it and shows its last lines."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    directory: Path
    port_base: int
    time_scale: float
    once: bool


def run_demo(settings: DemoSettings) -> int:
    """Run the demo until the last step (`once`) or Ctrl-C. Returns the exit code."""
    stack = Stack(settings.directory, Ports(settings.port_base), settings.time_scale)
    load = LoadGenerator(stack.triton.http_url)
    with _handled(_interrupt, signal.SIGTERM, signal.SIGHUP):
        try:
            for line in stack.start():
                _say(line)
            load.start()
            return _watch(stack, once=settings.once)
        except (CannotStartError, PartEndedError) as problem:
            _say(f"tritonwatch demo: {problem}")
            return 1
        except KeyboardInterrupt:
            _say("stopping")
            return 130 if settings.once else 0
        finally:
            # A second Ctrl-C must not interrupt this.
            with _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                load.stop()
                stack.stop()
            _say(f"everything is stopped; logs and data are in {settings.directory}")


def _watch(stack: Stack, *, once: bool) -> int:
    """Poll every second, and print what is new; with `once`, until the last step or the deadline."""
    for name, url in stack.addresses.items():
        _say(f"{name:>14}  {url}")
    if (scale := stack.time_scale) != 1:
        _say(
            f"time is scaled: what rules and messages call 1h is {in_words(3600 * scale)} here, and 30d is "
            f"{in_words(30 * DAY * scale)}"
        )
    _say("running; all steps take about half a minute (the links of the messages are left out)")
    viewer, progress, log = Viewer(stack.ports.url("Prometheus")), Progress(), MessageLog(stack.bridge_log)
    started, triton_ended, repaired = time.monotonic(), "", False
    while True:
        if ended := stack.ended():
            raise PartEndedError(ended)
        if not triton_ended and (triton_ended := stack.triton_ended()):
            _say(f"{triton_ended}; now watch the alert arrive")
        for message in log.new_messages():
            _say(without_links(message))
        elapsed = time.monotonic() - started
        for step in progress.update(Observation(viewer.rows(), read_notices(stack.bridge_data), repaired)):
            _say(f"{elapsed:4.0f} s  {step.name}")
        if progress.ready_for_repair and not repaired:
            repaired = True
            stack.repair()
            _say(f"{elapsed:4.0f} s  repairing `broken`: adding its weights.txt")
        if once and not progress.missing:
            _say(f"all steps completed after {elapsed:.0f} s")
            return 0
        if once and (triton_ended or elapsed > DEADLINE_SECONDS):
            reason = "Triton ended" if triton_ended else f"gave up after {DEADLINE_SECONDS:g} s"
            missing = "".join(f"\n  - {name}" for name in progress.missing)
            _say(f"tritonwatch demo: {reason}; these steps are missing:{missing}")
            return 1
        time.sleep(1.0)


def _say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def _handled(
    handler: signal.Handlers | Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> Iterator[None]:
    """Handle these signals with `handler` inside the `with` block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
