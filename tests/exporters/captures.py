"""Read recorded bodies of Triton and dcgm-exporter; tests/captures/README.md names their sources."""

from __future__ import annotations

import gzip

from support.tools import ROOT

CAPTURES = ROOT / "tests" / "captures"


def bodies(folder: str, pattern: str) -> list[tuple[str, bytes]]:
    """Name and content of each capture that matches, at least one."""
    captures = []
    for path in sorted((CAPTURES / folder).glob(pattern)):
        content = path.read_bytes()
        captures.append((path.name, gzip.decompress(content) if path.suffix == ".gz" else content))
    if not captures:
        raise LookupError(f"no capture {folder}/{pattern}")
    return captures
