"""The verb `bridge`: what its page promises, and what it answers to mistakes."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from support.bridge_world import body_of
from triton_alerts.bridge import command
from triton_alerts.bridge.audit import Audit
from tritonwatch.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "on-call.md"


def test_every_option_of_the_page_exists() -> None:
    """Whoever copies a command from docs/on-call.md can run it."""
    parser = argparse.ArgumentParser()
    command.configure(parser)
    known = set(re.findall(r"--[a-z-]+", parser.format_help())) | {"--json"}
    named = set(re.findall(r"--[a-z][a-z-]+", PAGE.read_text(encoding="utf-8")))

    assert set() == named - known
    assert len(named) > 15


def test_the_pictures_of_the_page_exist() -> None:
    """No broken picture."""
    pictures = re.findall(r"\]\((pictures/[^)]+)\)", PAGE.read_text(encoding="utf-8"))

    assert pictures
    assert [True] * len(pictures) == [(PAGE.parent / picture).exists() for picture in pictures]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no way to reach Slack"),
        (["--dry-run", "--listen", "nowhere"], "HOST:PORT"),
        (["--dry-run", "--token-file", "/nonexistent"], "cannot be read"),
        (["--dry-run", "--channel-for", "loud=C1"], "SEVERITY=CHANNEL"),
        (["--dry-run", "--mention", "<!everyone>"], "not understood"),
        (["render", "/nonexistent.json"], "cannot be read"),
        (["log", "--data", "/nonexistent"], "no folder"),
    ],
)
def test_a_mistake_is_said_with_its_mending(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, one line a mistake, with what to do."""
    code = main(["bridge", *arguments])
    line = capsys.readouterr().err

    assert 1 == code
    assert said in line
    assert "(fix: " in line


def test_a_wrong_length_of_time_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 is argparse's."""
    assert 2 == main(["bridge", "--escalate-after", "soon"])
    assert "write 90s, 15m or 2h" in capsys.readouterr().err


def test_render_shows_the_message_of_a_captured_body(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bare body and a capture with headers alike, as text and as Slack's JSON."""
    bare, capture = tmp_path / "bare.json", tmp_path / "capture.json"
    bare.write_bytes(body_of("g0", {"a": 100.0}, {}))
    capture.write_text(json.dumps({"headers": {}, "body": json.loads(bare.read_bytes())}))
    codes = [main(["bridge", "render", str(bare)]), main(["bridge", "render", "--json", str(capture)])]
    shown = capsys.readouterr().out

    assert [0, 0] == codes
    assert "│ 🔴 Model a failed to load" in shown
    assert '"type": "header"' in shown


def test_log_shows_who_did_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line an action, oldest first."""
    Audit(tmp_path / "audit.jsonl").write(1_700_000_000.0, "U0ANA", "acknowledge", "ab12cd34", "You have it.")

    assert 0 == main(["bridge", "log", "--data", str(tmp_path)])
    assert (
        "2023-11-14 22:13:20+00:00  ab12cd34  U0ANA  acknowledge  You have it.\n" == capsys.readouterr().out
    )


def test_a_sample_can_be_sent_without_slack(capsys: pytest.CaptureFixture[str]) -> None:
    """`bridge test --dry-run` shows an incident from its opening to its end."""
    assert 0 == main(["bridge", "test", "--dry-run"])
    shown = capsys.readouterr().out

    assert "🔴 This is a test" in shown
    assert "all resolved after 4 min" in shown
