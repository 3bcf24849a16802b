"""A hook of MkDocs: pages outside docs/ join the site, and links to files become links that work there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")


def pages() -> dict[str, str]:
    """Path in the repository -> path in the site, of every page."""
    outside = {
        "README.md": "index.md",
        "CHANGELOG.md": "changelog.md",
        "CONTRIBUTING.md": "contributing.md",
        "compose/kubernetes/README.md": "kubernetes.md",
        "alerts/runbooks/README.md": "runbooks/index.md",
    }
    runbooks = sorted((ROOT / "alerts" / "runbooks").glob("*.md"))
    inside = sorted((ROOT / "docs").glob("*.md"))
    return (
        {f"alerts/runbooks/{page.name}": f"runbooks/{page.name}" for page in runbooks}
        | {f"docs/{page.name}": page.name for page in inside}
        | outside
    )


def rewritten(text: str, source: str, repository: str) -> str:
    """Return a page's text whose relative links lead to pages or pictures of the site, or to the repository."""
    known = pages()
    here = known[source]

    def lead(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        kept = target.removeprefix("docs/") if Path(target).suffix in {".png", ".svg"} else None
        place = known.get(target, kept)
        if place is None and not (ROOT / target).exists():
            return match[0]  # MkDocs names it
        if place is None:
            return f"{repository}/blob/main/{target}"
        return posixpath.relpath(place, posixpath.dirname(here) or ".")

    return _LINK.sub(lead, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live elsewhere in the repository."""
    for source, place in pages().items():
        if not source.startswith("docs/"):
            files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of each page."""
    source = next(source for source, place in pages().items() if place == page.file.src_uri)
    return rewritten(markdown, source, (config.repo_url or "").rstrip("/"))
