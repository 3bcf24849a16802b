"""Find the files that come with the package, in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def demo_models() -> Path:
    """Return the demo's model repository."""
    return _first_folder(_PACKAGE / "data" / "models", _CHECKOUT / "compose" / "demo" / "models")


def objectives() -> Path:
    """Return the objectives that the stack ships with."""
    return _first_folder(_PACKAGE / "data" / "objectives", _CHECKOUT / "slo" / "objectives")


def _first_folder(*candidates: Path) -> Path:
    for path in candidates:
        if path.is_dir():
            return path
    raise FileNotFoundError(f"missing from this installation: {candidates[0]}")
