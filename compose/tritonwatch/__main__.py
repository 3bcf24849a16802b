from __future__ import annotations

from tritonwatch.cli import entry_point

entry_point()
