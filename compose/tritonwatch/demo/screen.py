"""The demo's table in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triton_alerts.alertmanager_client import ListedAlert
from triton_exporter.common.duration import measured_text
from triton_slo.amounts import budget_left, burn_rate
from tritonwatch.demo.demo_view import DemoView, ModelRow
from tritonwatch.demo.steps import AFTER_REPAIR, BEFORE_REPAIR, Progress

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
    for name in ("requests/s", "mean latency", "in queue", "batch size", "burn rate", "budget left"):
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
            _coloured(row.budget_left, budget_left, row.budget_left is not None and row.budget_left < 0),
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
