"""Lines of the threat page that no other test shows."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tritonwatch.cli import main
from tritonwatch.commands import bridge
from tritonwatch.exporter_options import choose

_ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join(9 * [f'*{before}'])}]\n"
    for before, after in zip("abcdefghi", "bcdefghij", strict=True)
)
_CUSTOM = """\
name: sure
description: The model is sure of its answers.
owner: ml-platform
target: 95%
window: 30d
indicator:
  kind: custom
  good: {good}
  total: rate(answers_total[{{{{window}}}}])
"""


def _nested(depth: int) -> str:
    return _CUSTOM.format(good=f"'{'(' * depth}rate(answers_total[{{{{window}}}}]){')' * depth}'")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(_ALIASES, "x.yaml:1: a: unknown field", id="aliases of aliases"),
        pytest.param(f"name: {'[' * 3000}{']' * 3000}", "x.yaml:1: name: must be text", id="nested YAML"),
        pytest.param(_nested(3000), "x.yaml:8: sure: indicator.good: nested too deeply", id="nested PromQL"),
        pytest.param(_nested(100_000), "x.yaml:6: indicator: good is longer than", id="endless PromQL"),
    ],
)
def test_hostile_objectives_are_refused_with_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    """A file made to fill memory or to overflow a parser's stack is a mistake like any other."""
    path = tmp_path / "x.yaml"
    path.write_text(text)

    assert 1 == main(["check", str(path)])
    assert said in capsys.readouterr().err


def test_what_listens_is_on_loopback_unless_asked() -> None:
    """Nobody opens a port to the network, or a receiver at all, by leaving a flag out."""
    exporter = choose({"triton": "http://gpu1:8000"}, {}).settings
    parser = argparse.ArgumentParser()
    bridge.configure(parser)

    assert ("127.0.0.1", None) == (exporter.listen_host, exporter.otlp_listen)
    assert "127.0.0.1:9096" == parser.parse_args(["--dry-run"]).listen
