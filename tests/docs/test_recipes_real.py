"""Test the files and commands of each recipe on a real Triton, Prometheus and Alertmanager."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from docs.recipe_servers import RECIPES, SETUP, RecipeServers
from docs.recipes import Block, missing, write_files

pytestmark = [pytest.mark.real, pytest.mark.thorough]
RUN = [
    name
    for name, blocks in RECIPES.items()
    if name != SETUP and {"sh", "text"} <= {b.language for b in blocks}
]
ACTS = re.compile(r"-X POST|(load|sweep)\.py|sed -i|silence add|\brm |\bcp |reload|> ")
"""What changes something is done once."""
PATIENCE_SECONDS = 240.0
"""A gate with a margin of 1 % wants 300 requests of each version; a busy machine answers 40 a second."""


def _follow(servers: RecipeServers, blocks: tuple[Block, ...]) -> None:
    """Write the files and run the commands of a page, and compare their output with the page's."""
    write_files(tuple(replace(block, text=servers.local(block.text)) for block in blocks), servers.directory)
    shown = [block for block in blocks if not block.title]
    traffic = ""
    for block, after in zip(shown, [*shown[1:], None], strict=True):
        if block.language == "sh":
            promised = after.text if after is not None and after.language == "text" else ""
            # Commands that only read are repeated, as a person would: scrapes and rules need a moment.
            patience = 0.0 if ACTS.search(block.text) else PATIENCE_SECONDS
            _see(servers, block.text, promised, patience, traffic)
            traffic = "".join(line for line in block.text.splitlines(True) if "load.py" in line) or traffic


def _see(servers: RecipeServers, commands: str, promised: str, patience_seconds: float, traffic: str) -> None:
    """Run commands until they print what is expected, while clients go on.

    On a busy machine the page's seconds of traffic are few requests.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        ran = servers.shell(commands)
        absent = missing(promised, ran.stdout)
        if not (ran.returncode or absent):
            return
        if time.monotonic() > deadline:
            assert [] == absent, ran.stdout + ran.stderr
            assert 0 == ran.returncode, f"{commands}\n{ran.stdout}\n{ran.stderr}"
        # Clients and commands at full speed take the cores from the scrapes and rules that one waits for.
        time.sleep(3)
        if traffic:
            servers.shell(traffic + "\nwait")


@pytest.mark.parametrize("recipe", RUN)
def test_a_recipe_prints_what_its_page_shows(servers: RecipeServers, recipe: str) -> None:
    """Anyone who follows the page sees what it promises. The recipes of a page build on one another."""
    _follow(servers, RECIPES[recipe])
