"""Parts shared by both formats: valid names, labels and annotations, and objectives that are valid or reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from triton_slo import problem_words
from triton_slo.convert.entry import Entry
from triton_slo.convert.ledger import Ledger
from triton_slo.objective.model import RESERVED_LABELS, Objective

ORIGINAL = "original_"
"""Before the name of a label or an annotation that the rules set themselves."""
_MAX_NAME = 63
_MAX_TEXT = 2000
_SET_ANNOTATIONS = frozenset({"summary", "description", "cause", "runbook_url", "dashboard_url"})


def slug(text: str) -> str:
    """Return the text in small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MAX_NAME].rstrip("-")


def name(ledger: Ledger, entry: Entry, wanted: str, taken: set[str]) -> str:
    """Return a free objective's name as near as can be to the wanted one; empty where nothing is left of it."""
    plain = slug(wanted)
    if not plain:
        ledger.lost(entry, f"nothing of {wanted!r} can be in an objective's name", "the SLO is left out")
        return ""
    free, count = plain, 1
    while free in taken:
        count += 1
        free = f"{plain[: _MAX_NAME - len(str(count)) - 1]}-{count}"
    taken.add(free)
    if free != wanted:
        ledger.noted(entry, f"{wanted!r} cannot be, or already is, an objective's name: it is named {free}")
    return free


def alert_labels(ledger: Ledger, entries: Mapping[str, Entry]) -> tuple[dict[str, str], str]:
    """Return labels for alerts, and the owner if a label names one; those that the rules set get another name."""
    labels: dict[str, str] = {}
    owner = ""
    for key, entry in entries.items():
        value = _label_text(ledger, entry)
        if key == "owner":
            owner = value[:200]
        elif key in RESERVED_LABELS:
            labels[f"{ORIGINAL}{key}"] = value
            ledger.noted(
                entry,
                f"the rules set the label {key} themselves: kept as {ORIGINAL}{key}, for routes to match",
            )
        else:
            labels[label_name(ledger, entry, key)] = value
    return labels, owner


def alert_annotations(ledger: Ledger, entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return annotations for alerts; those that ours have already get another name."""
    texts: dict[str, str] = {}
    for key, entry in entries.items():
        value = _label_text(ledger, entry)
        if "{{" in value:
            ledger.lost(entry, "annotations are never run as templates", "alerts show it as it is written")
        wanted = f"{ORIGINAL}{key}" if key in _SET_ANNOTATIONS else key
        if wanted != key:
            ledger.noted(entry, f"alerts write the annotation {key} themselves: kept as {wanted}")
        texts[label_name(ledger, entry, wanted)] = value
    return texts


def label_name(ledger: Ledger, entry: Entry, key: str) -> str:
    """Return the nearest name that a label, an annotation or an alert can have."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", key).lstrip("_")
    if not plain or plain[0].isdigit():
        plain = f"label_{plain}"
    if plain != key:
        ledger.noted(entry, f"{key!r} is not a name in Prometheus: kept as {plain}")
    return plain


def _label_text(ledger: Ledger, entry: Entry) -> str:
    if entry.is_list:
        value = ",".join(item.text() for item in entry.items())
        ledger.lost(entry, "a label has one value", f"joined to {value!r}")
    else:
        value = entry.text()
    if len(value) > _MAX_TEXT:
        ledger.lost(entry, f"longer than {_MAX_TEXT} characters", "cut there")
    return value[:_MAX_TEXT]


def objective(
    ledger: Ledger, whole: Entry, data: Mapping[str, Any], where: Mapping[str, Entry]
) -> Objective | None:
    """Return the objective, or None with the reason at the entry that its field came from (`where`)."""
    try:
        return Objective.model_validate(dict(data))
    except ValidationError as error:
        for detail in problem_words.without_consequences(error.errors()):
            path = ".".join(str(step) for step in detail["loc"])
            entry = next((place for field, place in where.items() if path.startswith(field)), whole)
            ledger.lost(entry, problem_words.reason(detail), "the SLO is left out")
    return None


def joined_description(parts: Iterable[str]) -> str:
    """Return a description of what is there, no longer than one may be."""
    return " ".join(part.strip() for part in parts if part.strip())[:_MAX_TEXT]
