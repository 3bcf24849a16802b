"""Start one set of real servers for the tests of the documentation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from docs.recipe_servers import RecipeServers, running


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecipeServers]:
    """Yield the servers that the recipes were tried on."""
    with running(tmp_path_factory.mktemp("recipes")) as started:
        yield started
