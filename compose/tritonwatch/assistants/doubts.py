"""Limits of an answer as sentences, read off the JSON documents of the commands so that both always agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_slo.problem import count

Document = Mapping[str, Any]


def of_status(document: Document) -> list[str]:
    """Unknown groups, and those whose source misses something."""
    rows = document["group_statuses"]
    unknown = sum(row["state"] == "unknown" for row in rows)
    limited = sum(bool(row["caveats"]) for row in rows)
    found = (
        [f"{unknown} of {count(len(rows), 'group')} unknown: nothing is known of its state"]
        if unknown
        else []
    )
    if limited:
        found.append(
            f"{limited} of {count(len(rows), 'group')} with a source that misses something, see caveats"
        )
    return found


def of_gate(document: Document) -> list[str]:
    """Judgements without data, or on data of unknown age."""
    judgements = document["judgements"]
    found = ["nothing was judged"] if not judgements else []
    if document["verdict"] == "cannot tell":
        found.append("the verdict is: cannot tell")
    unknown = sum(one["reason"].startswith("unknown") for one in judgements)
    ageless = sum(one["data_age_seconds"] is None for one in judgements)
    if unknown:
        found.append(f"{unknown} of {count(len(judgements), 'judgement')} without data")
    if ageless:
        found.append(f"{ageless} of {count(len(judgements), 'judgement')} on data of unknown age")
    return found


def of_backtest(document: Document) -> list[str]:
    """Steps of the history without data."""
    if not document["series"]:
        return ["the history has no data"]
    found = [f"{document['unknown']:.2%} of the history has no data"] if document["unknown"] else []
    late = sum(at > document["start"] for at in document["data_from"].values())
    if late:
        found.append(
            f"the data of {count(late, 'objective')} begin later than the history that was asked for"
        )
    return found


def of_report(document: Document) -> list[str]:
    """Objectives of which it is not known whether they were met, and a period that has not ended."""
    objectives = [one for owner in document["owners"] for one in owner["objectives"]]
    unknown = sum(one["result"].startswith("unknown") for one in objectives)
    limited = sum(any(group["caveats"] for group in one["groups"]) for one in objectives)
    found = ["the period has not ended"] if document["period"]["in_progress"] else []
    if unknown:
        found.append(f"{unknown} of {count(len(objectives), 'objective')}: not known whether met")
    if limited:
        found.append(
            f"{limited} of {count(len(objectives), 'objective')} with a source that misses something"
        )
    if document["incidents"] is None:
        found.append("incidents are not known: the server has no folder of a bridge")
    return found


def newest_record(document: Document) -> float:
    """Return the last moment of the period at which any objective of a report was recorded."""
    return max(
        (
            next((pause["start"] for pause in one["not_recorded"] if pause["end"] == one["end"]), one["end"])
            for owner in document["owners"]
            for one in owner["objectives"]
            if "end" in one
        ),
        default=0.0,
    )
