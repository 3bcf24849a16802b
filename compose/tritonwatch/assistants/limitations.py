"""Limits of an answer as sentences, read off the JSON documents of the commands so that both always agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_slo.problem_words import count

Document = Mapping[str, Any]


def of_status(document: Document) -> list[str]:
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


def of_gate(document: Document) -> list[str]:
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


def of_backtest(document: Document) -> list[str]:
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


def of_report(document: Document) -> list[str]:
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


def newest_record(document: Document) -> float:
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
