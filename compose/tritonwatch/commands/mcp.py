"""`tritonwatch mcp`: answer the questions of an assistant about status, gate, backtest, incidents and reports."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from triton_alerts.bridge.incidents.history import last_written
from triton_exporter.common.installed_version import installed_version
from triton_slo.problem_words import count
from tritonwatch import access, objective_files
from tritonwatch.assistant_tool import AssistantTool, polled_ago


def run(args: argparse.Namespace) -> int:
    """Answer until standard input ends."""
    # A mistake in an option ends the command at once, not the first question.
    access.from_arguments(args, os.environ)
    objective_files.load(args.objectives)
    from tritonwatch.mcp_server import serve  # the SDK, which takes most of a second to import

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


def _limits_of_status(document: Mapping[str, Any]) -> list[str]:
    """Return how many groups are unknown, and how many have a source that misses something."""
    rows = document["group_statuses"]
    unknown = sum(row["state"] == "unknown" for row in rows)
    limited = sum(bool(row["caveats"]) for row in rows)
    limitations = (
        [f"{unknown} of {count(len(rows), 'group')} unknown: nothing is known of its state"]
        if unknown
        else []
    )
    if limited:
        limitations.append(
            f"{limited} of {count(len(rows), 'group')} with a source that misses something, see caveats"
        )
    return limitations


def _limits_of_gate(document: Mapping[str, Any]) -> list[str]:
    """Return how many judgements have no data, or data of unknown age."""
    judgements = document["judgements"]
    limitations = ["nothing was judged"] if not judgements else []
    if document["verdict"] == "cannot tell":
        limitations.append("the verdict is: cannot tell")
    unknown = sum(judgement["unknown"] for judgement in judgements)
    ageless = sum(judgement["data_age_seconds"] is None for judgement in judgements)
    if unknown:
        limitations.append(f"{unknown} of {count(len(judgements), 'judgement')} without data")
    if ageless:
        limitations.append(f"{ageless} of {count(len(judgements), 'judgement')} on data of unknown age")
    return limitations


def _limits_of_backtest(document: Mapping[str, Any]) -> list[str]:
    """Return which share of the history has no data, and which data begin late."""
    if not document["series"]:
        return ["the history has no data"]
    limitations = [f"{document['unknown']:.2%} of the history has no data"] if document["unknown"] else []
    late = sum(at > document["start"] for at in document["data_from"].values())
    if late:
        limitations.append(
            f"the data of {count(late, 'objective')} begin later than the history that was asked for"
        )
    return limitations


def _limits_of_report(document: Mapping[str, Any]) -> list[str]:
    """Return how many objectives are unknown, and whether the period is still in progress."""
    objectives = [objective for owner in document["owners"] for objective in owner["objectives"]]
    unknown = sum(owner["unknown"] for owner in document["owners"])
    limited = sum(any(group["caveats"] for group in objective["groups"]) for objective in objectives)
    limitations = ["the period has not ended"] if document["period"]["in_progress"] else []
    if unknown:
        limitations.append(f"{unknown} of {count(len(objectives), 'objective')}: not known whether met")
    if limited:
        limitations.append(
            f"{limited} of {count(len(objectives), 'objective')} with a source that misses something"
        )
    if document["incidents"] is None:
        limitations.append("incidents are not known: the server has no folder of a bridge")
    return limitations


def _newest_record(document: Mapping[str, Any]) -> float:
    """Return the last moment of the period at which any objective of a report was recorded."""
    return max(
        (
            objective["recorded_until"]
            for owner in document["owners"]
            for objective in owner["objectives"]
            if "recorded_until" in objective
        ),
        default=0.0,
    )


_RECORDED = {"prometheus": "prometheus", "objectives": "objectives"}

TOOLS = (
    AssistantTool(
        "status",
        "Status and error budget of every objective and model: state, SLI, burn rates, budget left, cause.",
        _status,
        _RECORDED,
        polled_ago,
        _limits_of_status,
        about_now=True,
    ),
    AssistantTool(
        "gate",
        "Whether a release may be promoted: verdict promote, hold, rollback or cannot tell, with the reasons. "
        "With `canary` and `baseline` two versions of a model are compared.",
        _gate,
        _RECORDED,
        polled_ago,
        _limits_of_gate,
        about_now=True,
    ),
    AssistantTool(
        "backtest",
        "Which pages and tickets the alert rules would have raised over a past time. Reads "
        "raw samples: query days, not months.",
        _backtest,
        {**_RECORDED, "scrape-interval": "scrape_interval"},
        lambda _, document: time.time() - document["end"],
        _limits_of_backtest,
    ),
    AssistantTool(
        "incidents",
        "Incidents that the bridge recorded: title, start time, who acknowledged it, timeline.",
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
        _report,
        {**_RECORDED, "bridge-data": "bridge_data"},
        lambda _, document: document["at"] - _newest_record(document),
        _limits_of_report,
    ),
)
"""All tools, each with the name of its verb."""
