"""Run the demo: start the stack, send traffic, show each step in a table, and stop everything."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from triton_alerts.alertmanager_client import ListedAlert
from triton_exporter.common.duration import measured_text
from triton_slo.amounts import burn_rate
from tritonwatch.demo.load import LoadGenerator
from tritonwatch.demo.stack import Ports, Stack
from tritonwatch.demo.steps import (
    AFTER_REPAIR,
    BEFORE_REPAIR,
    DemoView,
    MessageLog,
    ModelRow,
    Observation,
    Progress,
    Viewer,
    read_notices,
)
from tritonwatch.local import CannotStartError

DEADLINE_SECONDS = 300.0
"""Limit of a run with --once; all steps take well under 180 s on two free cores."""


class PartEndedError(Exception):
    """A process of the demo ended unexpectedly; the message names it and shows its last lines."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """Options of the demo."""

    directory: Path
    port_base: int
    time_scale: float
    once: bool


def run_demo(settings: DemoSettings, console: Console) -> int:
    """Run the demo until the last step (`once`) or Ctrl-C. Returns the exit code."""
    stack = Stack(settings.directory, Ports(settings.port_base), settings.time_scale)
    load = LoadGenerator(stack.triton.http_url)
    with _handled(_interrupt, signal.SIGTERM, signal.SIGHUP):
        try:
            for line in stack.start():
                console.print(line)
            load.start()
            return _DemoLoop(settings, stack, console).watch()
        except (CannotStartError, PartEndedError) as problem:
            console.print(f"tritonwatch demo: {problem}", style="bold red", markup=False)
            return 1
        except KeyboardInterrupt:
            console.print("stopping")
            return 130 if settings.once else 0
        finally:
            # A second Ctrl-C must not interrupt this.
            with _handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                load.stop()
                stack.stop()
            console.print(f"everything is stopped; logs and data are in {settings.directory}", markup=False)


class _DemoLoop:
    """The loop that polls, records the completed steps, and draws."""

    def __init__(self, settings: DemoSettings, stack: Stack, console: Console) -> None:
        self._settings = settings
        self._stack = stack
        self._console = console
        self._viewer = Viewer(stack.ports.url("Prometheus"), stack.ports.url("Alertmanager"))
        self._progress = Progress()
        self._started = time.monotonic()
        self._repaired = False
        self._triton_end_reported = False
        self._view = DemoView()
        self._bridge_log = MessageLog(stack.bridge_log)

    def watch(self) -> int:
        """Poll every second until the last step or the deadline; without `once`, until interrupted."""
        self._console.print("running; all steps take about half a minute", style="dim")
        with self._screen() as draw:
            while True:
                self._poll()
                draw()
                if self._settings.once and not self._progress.missing:
                    break
                if self._settings.once and (reason := self._reason_to_give_up()):
                    return self._fail(reason)
                time.sleep(1.0)
        self._console.print(self._render())
        self._console.print(f"all steps completed after {self._elapsed:.0f} s", style="bold green")
        return 0

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _poll(self) -> None:
        if ended := self._stack.ended():
            raise PartEndedError(ended)
        if (ended := self._stack.triton_ended()) and not self._triton_end_reported:
            self._triton_end_reported = True
            self._console.print(f"{ended}; now watch the alert arrive", style="bold red", markup=False)
        self._view = self._viewer.poll()
        notices = read_notices(self._stack.bridge_data)
        for message in self._bridge_log.new_messages():
            if not self._console.is_terminal:
                self._console.print(message, markup=False, highlight=False, soft_wrap=True)
        observation = Observation(self._view, notices, self._repaired)
        for step in self._progress.update(observation, self._elapsed):
            self._console.print(f"{self._elapsed:4.0f} s  {step.name}", style="green", markup=False)
        if self._progress.ready_for_repair and not self._repaired:
            self._repaired = True
            self._stack.repair()
            self._console.print(f"{self._elapsed:4.0f} s  repairing `broken`: adding its weights.txt")

    def _reason_to_give_up(self) -> str:
        if self._triton_end_reported:
            return "Triton ended"
        return f"gave up after {DEADLINE_SECONDS:g} s" if self._elapsed > DEADLINE_SECONDS else ""

    def _fail(self, reason: str) -> int:
        self._console.print(self._render())
        self._console.print(f"tritonwatch demo: {reason}; these steps are missing:", style="bold red")
        for name in self._progress.missing:
            self._console.print(f"  - {name}", markup=False)
        return 1

    def _render(self) -> RenderableType:
        newest, elapsed = self._bridge_log.newest, self._elapsed
        return render(self._view, self._progress, self._stack.addresses, newest, elapsed)

    @contextmanager
    def _screen(self) -> Iterator[Callable[[], None]]:
        if not self._console.is_terminal:
            yield lambda: None
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            yield lambda: live.update(self._render(), refresh=True)


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


_COLOURS = {"critical": "bold red", "warning": "yellow", "info": "cyan", "none": "dim"}


def render(
    view: DemoView, progress: Progress, addresses: Mapping[str, str], last_notice: str, elapsed_seconds: float
) -> RenderableType:
    """Draw the screen of the demo: models, alerts, steps, addresses."""
    return Group(
        _headline(view, elapsed_seconds),
        _model_table(view.rows),
        _alert_table(view.alerts),
        *_step_lines(progress),
        Text(""),
        *(Text.assemble((f"{name:>14}  ", "dim"), url) for name, url in addresses.items()),
        *([Text(""), Text("last message to on-call", style="dim"), Text(last_notice)] if last_notice else []),
    )


def _headline(view: DemoView, elapsed_seconds: float) -> Text:
    def word(name: str, good: str, bad: str) -> tuple[str, str]:
        value = view.server.get(name)
        if value is None:
            return f"{name} ?", "dim"
        return (good, "green") if value == 1 else (bad, "bold red")

    return Text.assemble(
        ("tritonwatch demo", "bold"),
        f"  {elapsed_seconds:4.0f} s   Triton: ",
        word("up", "up", "DOWN"),
        ", ",
        word("live", "live", "NOT LIVE"),
        ", ",
        word("ready", "ready", "not ready (strict: one failed model is enough)"),
    )


def _model_table(rows: Sequence[ModelRow]) -> Table:
    table = Table(expand=False, title_justify="left", header_style="bold")
    table.add_column("model", no_wrap=True)
    table.add_column("version")
    table.add_column("ready")
    for name in ("requests/s", "mean latency", "in queue", "batch size", "burn rate"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.model,
            row.version,
            _ready_text(row.ready),
            _number_text(row.requests_per_second, "{:.1f}"),
            measured_text(row.mean_latency_seconds),
            _number_text(row.queue_share, "{:.0%}"),
            _number_text(row.batch_size, "{:.1f}"),
            _coloured(row.burn_rate, burn_rate, row.burn_rate is not None and row.burn_rate > 1),
        )
    return table


def _alert_table(alerts: Sequence[ListedAlert]) -> RenderableType:
    shown = [alert for alert in alerts if alert.severity != "none" and not alert.inhibited]
    inhibited = sum(alert.inhibited for alert in alerts)
    if not shown:
        return Text("no alerts firing", style="dim")
    table = Table(expand=False, header_style="bold")
    for name in ("alert firing", "severity", "what"):
        table.add_column(name, overflow="fold")
    for alert in shown:
        colour = _COLOURS.get(alert.severity, "")
        table.add_row(
            Text(alert.name, style=colour),
            Text(alert.severity, style=colour),
            alert.annotations.get("summary", ""),
        )
    if inhibited:
        table.caption = f"and {inhibited} more that follow from these, inhibited"
    return table


def _step_lines(progress: Progress) -> list[Text]:
    lines = []
    for step in (*BEFORE_REPAIR, *AFTER_REPAIR):
        at = progress.done.get(step.name)
        mark = (f"{at:4.0f} s  ", "green") if at is not None else ("   ...  ", "dim")
        lines.append(Text.assemble(mark, (step.name, "" if at is not None else "dim")))
    return lines


def _ready_text(value: float | None) -> Text:
    if value is None:
        return Text("?", style="dim")
    return Text("ready", style="green") if value == 1 else Text("NOT READY", style="bold red")


def _number_text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _coloured(value: float | None, written: Callable[[float], str], bad: bool) -> Text:
    return Text("-" if value is None else written(value), style="bold red" if bad else "")
