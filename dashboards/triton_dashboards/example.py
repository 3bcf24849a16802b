"""The committed example of a model's own dashboard: `python -m triton_dashboards.example OBJECTIVES...`."""

from __future__ import annotations

import sys
from pathlib import Path

from triton_dashboards.grafana.dashboard import dashboard_text
from triton_dashboards.per_model import ModelFacts, dashboard
from triton_slo.artifact import Options
from triton_slo.objective.reading import read

FACTS = ModelFacts("classifier", ("1", "2"), "tensorrt")


def text(files: list[Path]) -> str:
    """Return the dashboard of a model `classifier`, with the limits that objectives files give it."""
    loaded = read([(str(path), path.read_text(encoding="utf-8")) for path in files])
    return dashboard_text(dashboard(FACTS, loaded.objectives, Options()))


if __name__ == "__main__":
    sys.stdout.write(text([Path(path) for path in sys.argv[1:]]))
