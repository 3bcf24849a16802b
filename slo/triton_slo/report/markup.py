"""A report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from triton_slo.report.report_text import Section


def markdown(title: str, sections: Iterable[Section]) -> str:
    """Return a report as Markdown, in which no name becomes markup."""
    lines = [f"# {escape_markdown(title)}"]
    for section in sections:
        lines += ["", f"{'#' * section.level} {escape_markdown(section.heading)}"]
        for sentence in section.sentences:
            lines += ["", escape_markdown(sentence)]
        if section.columns:
            lines += ["", _row(section.columns), _row(["---"] * len(section.columns))]
            lines += [_row(map(escape_markdown, row)) for row in section.rows]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Return text that no Markdown reader takes for markup."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)
