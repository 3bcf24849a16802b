"""Write what a benchmark measured into its section of docs/measurements.md."""

from __future__ import annotations

from datetime import UTC, datetime

from support.tools import ROOT

PAGE = ROOT / "docs" / "measurements.md"


def record(section: str, command: str, text: str, heading: str = "") -> None:
    """Replace a section between its two comments, with today's date and the command that measures it again.

    A section that may be without figures has its heading inside.
    """
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- begin {section} -->\n", f"<!-- end {section} -->"
    head, tail = page[: page.index(begin) + len(begin)], page[page.index(end) :]
    today = datetime.now(UTC).date()
    title = f"## {heading}\n\n" if heading else ""
    PAGE.write_text(
        f"{head}{title}Measured on {today} with `{command}`.\n\n{text.strip()}\n{tail}", encoding="utf-8"
    )
