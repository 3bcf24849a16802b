"""The exceptions that reading a YAML file can raise, and their message: one list for every reader."""

from __future__ import annotations

import yaml

YAML_FAULTS = (
    yaml.YAMLError,
    RecursionError,
    # A value that does not fit its tag, such as `!!bool maybe`, a date of the 13th month, `!!timestamp x`.
    LookupError,
    ValueError,
    AttributeError,
    TypeError,
)


def fault(error: Exception) -> str:
    """Return the reason why a file could not be read, in one line."""
    if isinstance(error, (LookupError, AttributeError, TypeError)):
        return "it contains a value that does not fit its tag, such as !!bool"
    return " ".join(str(getattr(error, "strerror", None) or error).split())
