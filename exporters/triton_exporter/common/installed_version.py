"""The version of the product that is installed."""

from __future__ import annotations


def installed_version(otherwise: str = "(run from its source folder)") -> str:
    """Return the version of tritonwatch, or `otherwise` where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # a tenth of the time of `--help`

    try:
        return version("tritonwatch")
    except PackageNotFoundError:
        return otherwise
