"""A dashboard of one model's own: its thresholds, and only the rows that it has."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from triton_dashboards import shared
from triton_dashboards.boards import model
from triton_dashboards.boards.model import View, model_view
from triton_dashboards.values import Dashboard
from triton_slo.artifact import Options
from triton_slo.objective.model import Objective

UID_PREFIX = "triton-m-"
TAG = "triton-per-model"
"""Tag of these dashboards. Hundreds of them in the menu, which has a tag of its own, would hide the others."""
BACKEND_ROWS = {"vllm": ("language",), "tensorrtllm": ("language",), "ensemble": ("ensemble",)}
"""Backend or platform of a model -> rows that only such a model has."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about a model: its versions, its backend, whether it caches, and whether it reports tokens."""

    name: str
    versions: tuple[str, ...] = ()
    backend: str = ""
    cached: bool = False
    language: bool = False

    @property
    def rows(self) -> tuple[str, ...]:
        """Keys of the rows that this model has beyond those of all."""
        found = {"language": self.language, "cache": self.cached}
        rows = (*BACKEND_ROWS.get(self.backend, ()), *(row for row, is_there in found.items() if is_there))
        return tuple(dict.fromkeys(rows))


def uid(name: str) -> str:
    """Return a stable and legal uid: names of models may contain dots, slashes and any script."""
    return f"{UID_PREFIX}{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:16]}"


def _heading(name: str) -> str:
    """Return a name in a row's heading: an invisible joiner keeps Grafana from taking `$version` for a variable."""
    return name.replace("$", "$\u2060").replace("[[", "[\u2060[")


def dashboard(facts: ModelFacts, objectives: Sequence[Objective], options: Options) -> Dashboard:
    template = model.dashboard(options)
    view = _with_limits(model_view(facts.name, options), facts, objectives)
    version = replace(
        shared.VERSION,
        selector=shared.VERSION.selector.replace('model="$model"', view.objectives.scope.matchers[0]),
    )
    return replace(
        template,
        uid=uid(facts.name),
        title=f"Triton / Model / {facts.name}",
        tags=(TAG, *template.tags[1:]),
        variables=(*shared.variables("cluster", "job", "instance"), version),
        annotations=model.marks(view),
        rows=model.rows(view, _heading(facts.name), facts.rows),
    )


def _with_limits(view: View, facts: ModelFacts, objectives: Sequence[Objective]) -> View:
    """Return the view with this model's limits; where versions differ, the strictest."""
    limits: dict[str, list[float]] = defaultdict(list)
    for objective in objectives:
        for version in facts.versions or ("1",):
            promise = objective.resolve(facts.name, version)
            limit = None if promise is None else objective.indicator.limit(*promise)
            if limit is not None:
                limits[objective.indicator.kind].append(round(limit, 12))
    return replace(view, limits={kind: min(values) for kind, values in limits.items()})
