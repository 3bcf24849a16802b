"""The incidents in the folder of a bridge, for the verbs and pages that show them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from triton_alerts.bridge.incidents.database import NewerSchemaError
from triton_alerts.bridge.incidents.history import OlderSchemaError, RecordedIncident, list_incidents
from tritonwatch.command_error import CommandError, UsageError


def recorded_incidents(data: Path, option: str = "--data") -> list[RecordedIncident]:
    """Return the incidents, the oldest first. Raises CommandError, which names the option that gave the folder."""
    if not data.is_dir():
        raise UsageError(
            f"{option} {data} is not a folder; give the folder that the bridge was given as --data"
        )
    try:
        return list_incidents(data)
    except OlderSchemaError as error:
        raise CommandError(
            f"{option} {data}: {error}; start the bridge of this version once on this folder, which migrates "
            "the file"
        ) from error
    except NewerSchemaError as error:
        raise CommandError(f"{option} {data}: {error}; use the tritonwatch of the bridge") from error
    except sqlite3.Error as error:
        raise CommandError(f"{option} {data}: the database cannot be read: {error}") from error
