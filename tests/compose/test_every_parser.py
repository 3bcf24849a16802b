"""Test every verb: exit codes, no abbreviated options, and no secret in an error message."""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tritonwatch.cli import main
from tritonwatch.parser import Parser
from tritonwatch.usage import VERBS

NOBODY = "http://127.0.0.1:1"
SECRET = "xoxb-s3cret"
GIVEN = {
    "backtest": ["--objectives", "slo/objectives"],
    "check": ["slo/objectives"],
    "dashboards": ["write", "--per-model", "--out", "/nowhere"],
    "generate": ["--objectives", "slo/objectives", "--out", "/nowhere", "--check"],
    "incidents": ["--data", "slo"],
    "reload": ["--objectives", "slo/objectives", "--out", tempfile.gettempdir()],  # it is locked, and kept
}
"""What a verb needs before it asks its Prometheus."""


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every parser of every verb, with the words that lead to it."""
    for verb, usage in VERBS.items():
        parser = Parser(prog=verb)
        usage.configure(parser)
        yield from _below(verb, parser)


def _below(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                yield from _below(f"{words} {name}", verb)


PARSERS = dict(parsers())
ASKING = [
    words
    for words, parser in PARSERS.items()
    if "--prometheus" in parser._option_string_actions and words not in ("init", "bridge", "web", "mcp")
]
"""Verbs that ask their Prometheus first: `init` asks Triton before, servers when asked."""


def given(words: str) -> list[str]:
    return GIVEN.get(words, GIVEN.get(words.split()[0], []))


def printed(*words: str) -> tuple[int, str]:
    """Return the exit code, and all that was written."""
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(written):
        code = main(words)
    return code, written.getvalue()


@pytest.mark.parametrize(
    "words", [words for words, parser in PARSERS.items() if "--objectives" in parser._option_string_actions]
)
def test_an_empty_folder_of_objectives_is_refused(words: str) -> None:
    """A variable that is not set leaves it; it would be the current folder."""
    action = ["list"] if words == "dashboards" else []
    code, written = printed(*words.split(), *action, "--objectives", "")

    assert 2 == code
    assert "--objectives: the value is empty; is a variable unset?" in written


def test_each_verb_that_reads_prometheus_can_name_a_tenant() -> None:
    """A Mimir with tenants rejects requests without a header that names one."""
    options = {words: parser._option_string_actions.keys() for words, parser in PARSERS.items()}
    reading = {words for words, names in options.items() if "--prometheus" in names}

    assert {"status", "gate", "web", "report", "backtest", "mcp", "bridge"} <= reading
    assert set() == {words for words in reading if "--header" not in options[words]}


def test_no_parser_takes_an_abbreviation() -> None:
    """A wrong `--token xoxb-...` would be taken for `--token-file`, and the secret for a file's name."""
    assert [] == [words for words, parser in PARSERS.items() if parser.allow_abbrev]


@pytest.mark.parametrize("words", PARSERS)
def test_no_message_repeats_a_secret(words: str) -> None:
    """Neither the value of an option that takes a secret, or is near one, nor what follows an unknown one."""
    options = [
        option_string_action
        for option_string_action in PARSERS[words]._option_string_actions
        if option_string_action.startswith("--")
    ]
    secret = [option for option in options if re.search("token|password|secret|header|key|user", option)]
    near = [option.removesuffix("-file") for option in secret] + [f"{option}x" for option in secret]
    for option in (*secret, *near, "--slack-token", "-p", "-H"):
        for given in ([option, SECRET], [f"{option}={SECRET}"]):
            code, written = printed(*words.split(), *given, "--no-such-option")

            assert (2, False) == (code, SECRET in written), written
        if option in secret or option in options:
            continue
        code, written = printed(*words.split(), option, SECRET)
        assert (2, False) == (code, SECRET in written), written


@pytest.mark.parametrize("words", ["bridge", "bridge test"])
def test_a_secret_in_the_place_of_something_else_is_not_repeated(words: str) -> None:
    """A token instead of the name of its file, as a channel, or as a word of its own."""
    options = [
        option_string_action
        for option_string_action in PARSERS["bridge"]._option_string_actions
        if option_string_action.endswith("-file")
    ]
    for given in (*[[option, SECRET] for option in options], ["--mention", SECRET], ["--listen", SECRET]):
        code, written = printed("bridge", *given, *words.split()[1:])
        assert (2, False) == (code, SECRET in written), written
    code, written = printed(*words.split(), SECRET)
    assert (2, False) == (code, SECRET in written), written


@pytest.mark.parametrize("words", ASKING)
def test_a_prometheus_that_does_not_answer_has_one_exit_code(words: str) -> None:
    """1 in every verb: it ran, and did not succeed."""
    more = given(words)
    code, written = printed(*words.split(), *more, "--prometheus", NOBODY)

    assert "not reachable" in written
    assert 1 == code


@pytest.mark.parametrize(
    "words",
    [
        "check /nowhere.yaml",
        "convert --from sloth /nowhere.yaml",
        "generate --objectives /nowhere --out /nowhere",
        "generate --objectives slo/objectives --alerts /nowhere.yaml --out /nowhere",
        "reload --objectives /nowhere --out /nowhere --prometheus http://127.0.0.1:1",
        "status --objectives /nowhere --prometheus http://127.0.0.1:1",
        "gate --objectives /nowhere --prometheus http://127.0.0.1:1",
        "backtest --objectives /nowhere --prometheus http://127.0.0.1:1",
        "exporter --config /nowhere.yaml",
        "status --prometheus ftp://nonsense",
    ],
)
def test_a_file_or_address_that_cannot_be_is_wrong_usage(words: str) -> None:
    """Exit code 2: nothing ran."""
    assert 2 == printed(*words.split())[0]


@pytest.mark.parametrize(
    "words",
    [
        "check {}",
        "generate --objectives {} --out /nowhere",
        "backtest --objectives {}",
        "status --objectives {}",
    ],
)
def test_a_mistake_in_a_file_is_a_finding(words: str, tmp_path: Path) -> None:
    """Exit code 1, and it is named with its line, before any Prometheus is asked."""
    (tmp_path / "o.yaml").write_text("name: a\ntarget: 0%\nindicator: errors\n")
    asking = words.startswith(("backtest", "status"))
    given = words.format(tmp_path).split() + asking * ["--prometheus", NOBODY]
    code, written = printed(*given)

    assert (1, True) == (code, f"{tmp_path / 'o.yaml'}:2: " in written), written


@pytest.mark.parametrize(
    "words", [parser for parser in PARSERS if "--prometheus" in PARSERS[parser]._option_string_actions]
)
def test_every_prometheus_can_be_given_by_the_variable(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help names the variable; a verb asks the server that it names, over http without a scheme; an option wins."""
    monkeypatch.setenv("TRITONWATCH_PROMETHEUS", "127.0.0.1:1")

    assert "TRITONWATCH_PROMETHEUS" in str(PARSERS[words]._option_string_actions["--prometheus"].help)
    if words in ASKING:
        asked = [*words.split(), *given(words)]
        assert "http://127.0.0.1:1" in printed(*asked)[1]
        assert "http://127.0.0.1:2" in printed(*asked, "--prometheus", "127.0.0.1:2")[1]


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("tritonwatch sta", {"status"}),
        ("tritonwatch status --fail", {"--fail-on"}),
        ("tritonwatch status --fail-on bur", {"burning"}),
        ("tritonwatch dashboards push --graf", {"--grafana", "--grafana-token-file"}),
        ("tritonwatch completion z", {"zsh"}),
    ],
)
def test_bash_completes_verbs_options_and_choices(line: str, completed: set[str], tmp_path: Path) -> None:
    """The printed script works in a real bash; zsh recognises its own by its first line."""
    assert printed("completion", "zsh")[1].startswith("#compdef tritonwatch")
    (tmp_path / "completion").write_text(printed("completion", "bash")[1])
    words = line.split()
    script = (
        f"source {tmp_path / 'completion'}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
        "_shtab_tritonwatch; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert completed == set(done.stdout.split())


def test_help_shows_every_default_in_the_same_words() -> None:
    """An option with a value of its own where none is given ends with `(default: ...)`."""
    hidden = [
        (words, action.option_strings[-1])
        for words, parser in PARSERS.items()
        for action in parser._actions
        if action.option_strings
        and action.default not in (None, "", False, [], argparse.SUPPRESS)
        and "default: " not in str(action.help)
    ]

    assert [] == hidden


@pytest.mark.parametrize("words", PARSERS)
def test_help_begins_with_a_sentence_and_ends_with_an_example_and_exit_codes(words: str) -> None:
    """A user who has found the verb needs no other page to try it or to use it in a script."""
    code, text = printed(*words.split(), "--help")
    _, description, *_, end = text.split("\n\n")
    example, *rest = end.splitlines()

    assert 0 == code
    assert text.startswith(f"usage: tritonwatch {words}")
    assert re.fullmatch(r"[A-Z].{20,}\.", description, re.DOTALL)
    assert example.startswith(f"example: tritonwatch {words}")
    assert {"0", "2"} <= {line.split()[0] for line in rest[rest.index("exit codes:") + 1 :]}
    plain = " ".join(text.split())
    if "that tritonwatch ships" in plain:
        assert "(default: those of the project file, else those that tritonwatch ships)" in plain
