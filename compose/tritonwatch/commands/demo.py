"""`tritonwatch demo`: run a real Triton with a broken and an overloaded model, and show their alerts.

Start the stack, send traffic, print each step and message, and stop everything.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from triton_exporter.common.duration import DAY, in_words
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.demo.load import LoadGenerator
from tritonwatch.demo.stack import Ports, Stack, check_machine
from tritonwatch.demo.steps import (
    BEFORE_REPAIR,
    STEPS,
    MessageLog,
    Observation,
    read_notices,
    read_rows,
    without_links,
)
from tritonwatch.local import CannotStartError

DEADLINE_SECONDS = 300.0
"""Limit of a run with --once; all steps take well under 180 s on two free cores."""


class PartEndedError(Exception):
    """A process of the demo ended unexpectedly; the message names it and shows its last lines."""


def run(args: argparse.Namespace) -> int:
    """Run the demo until the last step (--once) or Ctrl-C."""
    if args.dir and args.dir.exists() and (not args.dir.is_dir() or any(args.dir.iterdir())):
        raise ProblemsError(Problem(f"--dir {args.dir}", "is not an empty folder", "name a new one"))
    ports = Ports(args.port_base)
    try:
        check_machine(ports, args.dir or Path(tempfile.gettempdir()))
    except CannotStartError as problem:
        raise ProblemsError(Problem("", f"nothing was started: {problem}")) from problem
    stack = Stack(_new_folder(args.dir), ports, args.time_scale)
    load = LoadGenerator(stack.triton.http_url)
    with _handled(_interrupt, signal.SIGTERM, signal.SIGHUP):
        try:
            for line in stack.start():
                _say(line)
            load.start()
            return _watch(stack, once=args.once)
        except (CannotStartError, PartEndedError) as problem:
            _say(f"tritonwatch demo: {problem}")
            return 1
        except KeyboardInterrupt:
            _say("stopping")
            return 130 if args.once else 0
        finally:
            # A second Ctrl-C must not interrupt this.
            with _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                load.stop()
                stack.stop()
            _say(f"everything is stopped; logs and data are in {stack.directory}")


def _new_folder(chosen: Path | None) -> Path:
    if chosen is None:
        return Path(tempfile.mkdtemp(prefix="tritonwatch-demo-"))
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot be created: {error.strerror}"
        raise ProblemsError(Problem(f"--dir {chosen}", reason, "name another folder")) from error
    return chosen.resolve()


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
    prometheus = Prometheus(Access(stack.ports.url("Prometheus")))
    done: set[str] = set()
    log = MessageLog(stack.bridge_log)
    started, triton_ended, repaired = time.monotonic(), "", False
    while True:
        if ended := stack.ended():
            raise PartEndedError(ended)
        if not triton_ended and (triton_ended := stack.triton_ended()):
            _say(f"{triton_ended}; now watch the alert arrive")
        for message in log.new_messages():
            _say(without_links(message))
        elapsed = time.monotonic() - started
        seen = Observation(read_rows(prometheus), read_notices(stack.bridge_data), repaired)
        for name, happened in STEPS.items():
            if name not in done and happened(seen):
                done.add(name)
                _say(f"{elapsed:4.0f} s  {name}")
        missing = [name for name in STEPS if name not in done]
        if BEFORE_REPAIR.keys() <= done and not repaired:
            repaired = True
            stack.repair()
            _say(f"{elapsed:4.0f} s  repairing `broken`: adding its weights.txt")
        if once and not missing:
            _say(f"all steps completed after {elapsed:.0f} s")
            return 0
        if once and (triton_ended or elapsed > DEADLINE_SECONDS):
            reason = "Triton ended" if triton_ended else f"gave up after {DEADLINE_SECONDS:g} s"
            _say("\n  - ".join([f"tritonwatch demo: {reason}; these steps are missing:", *missing]))
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
