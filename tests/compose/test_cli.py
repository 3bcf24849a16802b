"""The command line itself: what every verb shares."""

from __future__ import annotations

import pytest

from tritonwatch.cli import VERBS, main


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Help names the verb's usage and gives an example that starts as a user would type it."""
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"usage: tritonwatch {verb}" in text
    assert "example: tritonwatch " in text


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_flag_is_answered_with_the_usage_of_its_verb(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage exits 2 and shows the flags of this verb, not only the list of verbs."""
    assert main([verb, "--no-such-flag"]) == 2
    assert f"usage: tritonwatch {verb}" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` ends with 0 and one line."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tritonwatch ")
