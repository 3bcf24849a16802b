"""A report as Markdown, and as one HTML page that needs nothing else and prints well."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from triton_slo.report.report_text import Section

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { border-bottom: 1px solid #8888; padding: .3rem .6rem; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
thead { display: table-header-group; }
@media print {
  body { font-size: 10pt; margin: 0; max-width: none; }
  h2, h3 { break-after: avoid; }
  tr { break-inside: avoid; }
  @page { margin: 15mm; size: A4 landscape; }
}
"""


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


def html(title: str, sections: Iterable[Section]) -> str:
    """Return a report as an HTML document without scripts and without anything that must be loaded."""
    body = "\n".join(line for section in sections for line in _section(section))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _section(section: Section) -> Iterator[str]:
    yield f"<h{section.level}>{escape(section.heading)}</h{section.level}>"
    for sentence in section.sentences:
        yield f"<p>{escape(sentence)}</p>"
    if section.columns:
        yield "<table>"
        heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in section.columns)
        yield f"<thead><tr>{heads}</tr></thead>"
        yield "<tbody>"
        for row in section.rows:
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        yield "</tbody>\n</table>"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Return text that no Markdown reader takes for markup."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)
