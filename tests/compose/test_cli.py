"""Test the command line: what all verbs share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.tools import ROOT
from tritonwatch.cli import main
from tritonwatch.usage import VERBS


def test_help_loads_nothing_that_only_the_work_of_a_verb_needs() -> None:
    """These take longer to load than everything that help needs; the sidecar image has only some of them."""
    program = """\
import sys
from tritonwatch.cli import main
from tritonwatch.usage import VERBS
assert not any(main([verb, "--help"]) for verb in VERBS)
work = {"numpy", "requests", "prometheus_api_client", "prometheus_client", "promql_parser", "grafanalib", "rich", "mcp"}
print(sorted(work & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "[]\n" == done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_flag_is_one_line_that_names_the_help_of_its_verb(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage exits 2 with a line, not with a screen of flags that hides the mistake."""
    assert 2 == main([verb, "--no-such-flag"])
    assert [f"tritonwatch {verb}: unknown option --no-such-flag (see tritonwatch {verb} --help)"] == (
        capsys.readouterr().err.splitlines()
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["statsu"], "unknown command statsu; did you mean status? (see tritonwatch --help)"),
        (["status", "--promtheus", "http://x"], "unknown option --promtheus; did you mean --prometheus"),
        (["incidents", "list", "--jsno"], "unknown option --jsno; did you mean --json?"),
        (["status", "--prom", "http://x"], "did you mean --prometheus"),
        (["generate", "--objectives", "o", "--out", "o", "more"], "unrecognized arguments: more"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An abbreviated option counts as mistyped, too: it could become another option in a later release."""
    assert 2 == main(words)
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line


def test_a_token_on_the_command_line_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """`--slack-token` was once read as `--slack-token-file` and its value printed as a missing file."""
    for words in (["--slack-token", "xoxb-1-secret"], ["--slack-token=xoxb-1-secret"]):
        assert 2 == main(["bridge", *words])
        printed = capsys.readouterr()
        assert "unknown option --slack-token; did you mean --slack-token-file" in printed.err
        assert "xoxb" not in printed.out + printed.err


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """As `kubectl` and `git` do; the exit code is that of wrong usage."""
    assert 2 == main([])
    text = capsys.readouterr().out
    assert all(f" {verb} " in text for verb in VERBS)


def test_a_history_file_takes_precedence_over_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable must not make `backtest --history` ambiguous."""
    monkeypatch.setenv("TRITONWATCH_PROMETHEUS", "http://127.0.0.1:1")
    assert 2 == main(["backtest", "--history", "/no/such.csv"])
    assert "/no/such.csv: No such file" in capsys.readouterr().err


def test_missing_options_are_shown_in_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """`generate --check` alone cannot know which objectives and which files to compare, nor `status` what to ask."""
    assert 2 == main(["status"])
    message = capsys.readouterr().err
    assert (
        "--prometheus: is missing (fix: give --prometheus URL, or write it into tritonwatch.yaml" in message
    )
    assert 2 == main(["generate", "--check"])
    message = capsys.readouterr().err
    assert (
        "--objectives: is missing (fix: give --objectives DIR, or write it into tritonwatch.yaml" in message
    )
    assert "--out: is missing (fix: give --out DIR" in message


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` ends with 0 and one line."""
    assert 0 == main(["--version"])
    assert capsys.readouterr().out.startswith("tritonwatch ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: " + b"[" * 5000, ": not YAML: "),
        (b"name: !!bool maybe", "o.yaml:1: 'maybe' looks like a yes or no and cannot be read as one"),
        (b"name: !!timestamp soon", "o.yaml:1: 'soon' looks like a date and cannot be read as one"),
        (b"name: \xa6", "o.yaml:1: not UTF-8 text (byte 6)"),
        (b"{name: a, target: 99%, indicator: errors, exclusions: all}", "exclusions: must be a list"),
        (b"{name: a, target: 99%, indicator: errors, window: fortnight}", "or week, month or quarter"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "generate"])
def test_a_file_without_objectives_is_named_with_the_reason(
    verb: str, content: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file and the mistake; there is no traceback, and nothing is written."""
    folder = tmp_path / "objectives"
    folder.mkdir()
    (folder / "o.yaml").write_bytes(content)
    out = ["--objectives", str(folder), "--out", str(tmp_path / "out")]

    assert main([verb, *([str(folder / "o.yaml")] if verb == "check" else out)]) in (1, 2)

    output = capsys.readouterr()
    assert expected in output.out + output.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("triton", "instance"),
    [
        ("http://triton:8000", "triton:8000"),
        ("gpu-7:8000/", "gpu-7:8000"),
        ("https://me:secret@triton.example/v2", "triton.example"),
    ],
)
def test_a_target_is_named_after_its_triton(triton: str, instance: str, tmp_path: Path) -> None:
    """Messages name the server that failed, without its password."""
    words = ["--objectives", str(ROOT / "slo" / "objectives"), "--only", "targets", "--out", str(tmp_path)]
    assert 0 == main(["generate", *words, "--target", f"exporter:9401={triton}"])

    written = yaml.safe_load((tmp_path / "triton.yml").read_text())
    assert [{"targets": ["exporter:9401"], "labels": {"instance": instance}}] == written
