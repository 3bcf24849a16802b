"""Test the threat page: it names a test for each behaviour; the tests that no other file has are here."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_alerts.bridge.settings import BridgeSettings
from triton_exporter.app.settings import Settings
from tritonwatch.cli import main
from tritonwatch.project import Pages

_ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join(9 * [f'*{before}'])}]\n"
    for before, after in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        pytest.param(_ALIASES, "x.yaml:1: a: unknown field", id="aliases of aliases"),
        pytest.param(f"name: {'[' * 3000}{']' * 3000}", "x.yaml:1: name: must be text", id="nested YAML"),
    ],
)
def test_hostile_objectives_are_refused_with_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, printed: str
) -> None:
    """A file made to fill memory or to overflow a parser's stack is a mistake like any other."""
    path = tmp_path / "x.yaml"
    path.write_text(text)

    assert 1 == main(["check", str(path)])
    assert printed in capsys.readouterr().err


def test_every_listener_is_on_loopback_by_default() -> None:
    """A flag that is left out opens no port to the network, and no receiver."""
    exporter = Settings.read({"triton": "http://gpu1:8000"}, {})

    assert ("127.0.0.1", None) == (exporter.listen[0], exporter.otlp_listen)
    assert ("127.0.0.1", 9096) == BridgeSettings.read({"dry_run": "true"}, {}).listen
    assert ("127.0.0.1", 9097) == Pages.read({"prometheus": "http://p:9090"}, {}).listen
