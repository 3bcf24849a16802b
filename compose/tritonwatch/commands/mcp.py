"""`tritonwatch mcp`: answer the questions of an assistant about status, gate, backtest, incidents and reports."""

from __future__ import annotations

import argparse
import os
import time
from typing import Annotated, Any

from pydantic import Field

from triton_alerts.bridge.incidents.history import last_written
from triton_exporter.common.installed_version import installed_version
from tritonwatch import access, objective_files
from tritonwatch.assistants import limitations
from tritonwatch.assistants.assistant_tool import AssistantTool, polled_ago
from tritonwatch.command_error import UsageError
from tritonwatch.commands import backtest, gate, incidents, report, status
from tritonwatch.parser import declare
from tritonwatch.project import Asked

EXAMPLE = "tritonwatch mcp --prometheus http://127.0.0.1:9090 --bridge-data /var/lib/tritonwatch-bridge"
OPTIONS = Asked
EXIT_CODES = {0: "standard input ended"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve the Model Context Protocol to an AI assistant, on standard input and output. The "
        "assistant starts this command itself (docs/web.md). The command changes nothing: it only "
        "queries Prometheus and reads incidents."
    )
    declare(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Answer until standard input ends."""
    try:
        from tritonwatch.assistants.mcp_server import serve
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the package {error.name!r} is not installed; try: pip install 'tritonwatch[mcp,slo,alerts]'"
        ) from error
    # A mistake in an option ends the command at once, not the first question.
    access.from_arguments(args, os.environ)
    objective_files.load(args.objectives)
    serve(TOOLS, args, installed_version())
    return 0


Names = Annotated[list[str] | None, Field(description="only these names (default: all)")]
Name = Annotated[str | None, Field(description="only this name (default: all)")]
Moment = Annotated[str | None, Field(description="time instead of now: 2026-05-01T09:30Z or Unix seconds")]
Length = Annotated[str, Field(description="a duration such as 12h or 7d")]


def _status(objective: Names = None, model: Name = None, at: Moment = None) -> dict[str, Any]:
    return {"objective": objective, "model": model, "at": at}


def _gate(
    model: Name = None,
    version: Name = None,
    objective: Names = None,
    canary: Annotated[str | None, Field(description="new version, compared with `baseline`")] = None,
    baseline: Annotated[str | None, Field(description="version that `canary` is compared with")] = None,
    window: Annotated[str | None, Field(description="time to compare, such as 1h (default)")] = None,
    at: Moment = None,
) -> dict[str, Any]:
    versions = {"version": version, "canary": canary, "baseline": baseline, "window": window}
    return {"model": model, "objective": objective, "at": at, **versions}


def _backtest(
    last: Length = "7d",
    at: Moment = None,
) -> dict[str, Any]:
    return {"last": last, "at": at}


def _incidents(last: Length = "7d") -> dict[str, Any]:
    return {"last": last}


def _report(
    period: Annotated[str, Field(description="2026-10, 2026-Q3, last-month, this-month, ...")] = "last-month",
    owner: Names = None,
    timezone: Annotated[str, Field(description="such as Europe/Berlin")] = "UTC",
) -> dict[str, Any]:
    return {"period": period, "owner": owner, "timezone": timezone}


def _written_ago(args: argparse.Namespace, _document: Any) -> float | None:
    written = last_written(args.data)
    return None if written is None else time.time() - written


_RECORDED = {"prometheus": "prometheus", "objectives": "objectives"}
TOOLS = (
    AssistantTool(
        "status",
        "Status and error budget of every objective and model: state, SLI, burn rates, budget left, cause.",
        status,
        _status,
        _RECORDED,
        polled_ago,
        limitations.of_status,
        about_now=True,
    ),
    AssistantTool(
        "gate",
        "Whether a release may be promoted: verdict promote, hold, rollback or cannot tell, with the reasons. "
        "With `canary` and `baseline` two versions of a model are compared.",
        gate,
        _gate,
        _RECORDED,
        polled_ago,
        limitations.of_gate,
        about_now=True,
    ),
    AssistantTool(
        "backtest",
        "Which pages and tickets the alert rules would have raised over a past time. Reads "
        "raw samples: query days, not months.",
        backtest,
        _backtest,
        {**_RECORDED, "scrape-interval": "scrape_interval"},
        lambda _, document: time.time() - document["end"],
        limitations.of_backtest,
    ),
    AssistantTool(
        "incidents",
        "Incidents that the bridge recorded: title, start time, who acknowledged it, timeline.",
        incidents,
        _incidents,
        {"data": "bridge_data"},
        _written_ago,
        lambda _: [],
        about_now=True,
        needs="bridge_data",
    ),
    AssistantTool(
        "report",
        "Which objectives were met or missed in a calendar month or quarter, by owner, weighted by events.",
        report,
        _report,
        {**_RECORDED, "bridge-data": "bridge_data"},
        lambda _, document: document["at"] - limitations.newest_record(document),
        limitations.of_report,
    ),
)
"""All tools, each with the name of its verb."""
