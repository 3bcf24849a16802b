"""Test that what is not read again because its bytes are the same changes nothing on the page."""

from __future__ import annotations

import random

import pytest

from dashboards.fleet import exposition
from support.thorough import THOROUGH
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.exposition.parse import ParsedFamily, Parser, parse
from triton_exporter.exposition.write import text_pieces
from triton_exporter.lifecycle.tracker import BackendFailures, Lifecycle
from triton_exporter.snapshot import Snapshot


def _bodies(rng: random.Random) -> list[bytes]:
    """Return bodies of three models in which families move, rest, fall, appear, go, break and come again.

    In some bodies the numbers of one model move and those of the others rest.
    """
    moments = [exposition(3, moment).split(b"# HELP ") for moment in range(4)]
    at = [[0] * len(moments[0]) for _ in range(3)]  # of each model
    bodies = []
    for _ in range(40):
        moving = rng.choice(([0], [1], [0, 1, 2], [0, 1, 2]))
        steps = [rng.choice((0, 0, 0, 0, 1, 1, -1)) for _ in moments[0]]
        for model in moving:
            at[model] = [min(3, max(0, each + step)) for each, step in zip(at[model], steps, strict=True)]
        parts = [_mixed([moments[of[place]][place] for of in at]) for place in range(len(moments[0]))]
        if rng.random() < 0.2:
            del parts[rng.randrange(1, len(parts))]
        body = b"# HELP ".join(parts)
        if rng.random() < 0.2:
            lines = body.splitlines(keepends=True)
            lines[rng.randrange(len(lines))] = rng.choice((b"nv_broken{ 1\n", b"", b"# TYPE nv_x counter\n"))
            body = b"".join(lines)
        bodies += [body] * rng.choice((1, 1, 2, 3))
    return bodies


def _mixed(blocks: list[bytes]) -> bytes:
    """Return one family, with the lines of each model from the block of its number; other lines are in all of them."""
    lines = zip(*(block.splitlines(keepends=True) for block in blocks), strict=True)
    return b"".join(
        next((line for number, line in enumerate(each) if b'"model_%d"' % number in line), each[0])
        for each in lines
    )


@pytest.mark.parametrize("seed", range(25 if THOROUGH else 8))
def test_pages_are_the_same_bytes_as_when_everything_is_read_again(seed: int) -> None:
    """The parser that remembers its last body, against one that remembers nothing."""
    rng = random.Random(seed)
    parser = Parser()
    fast, full = Distributions(), Distributions()
    failing, failing_full = (BackendFailures(Lifecycle()) for _ in range(2))
    repeated = 0
    before: dict[str, ParsedFamily] = {}
    for number, body in enumerate(_bodies(rng)):
        now = 100.0 + number
        remembered, read = parser.parse(body), parse(body)
        repeated += sum(family is before.get(name) for name, family in remembered.families.items())
        before = dict(remembered.families)
        for part, exposed in ((fast, remembered), (full, read)):
            (part.observe if number % 3 else part.sample)(exposed, now)
        failing.observe(remembered, now)
        failing_full.observe(read, now)

        assert remembered.text == read.text
        assert remembered.bad == read.bad
        assert b"".join(text_pieces(fast.families(now))) == b"".join(text_pieces(full.families(now)))
        assert failing._rows == failing_full._rows
    failing.observe_snapshot(Snapshot(now, live=True))

    assert repeated > 100, "families came again as the same objects"
