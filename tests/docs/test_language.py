"""Test that everything a person reads uses the words of the field, not the private words of earlier versions."""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.tools import ROOT
from tritonwatch.cli import VERBS

PRIVATE = re.compile(
    r"\b(told|tells|hears?|heard|lest|whoever|elder|courier|seam|dawdles?|mend(s|ed|ing)?|"
    r"speak(s|ing)?|spoken|nobody knows|(?<!there )(is|are) no (?!longer|more\b)|for want of|by itself|"
    r"losing nothing|dear|tame|pours?|hangs? together|no ground for|keeper|deserv(es?|ed)|sound|hair|"
    r"lies (between|in)|says no|scenes?|specimens?|strangers?|doors?|manner|house|story)\b",
    re.IGNORECASE,
)
"""Words of earlier versions that a reader had to guess; `docs/glossary.md` has those that replace them. 'There is
no data' is English, 'this is no URL' is not."""

PRIVATE_IN_NOTES = re.compile(
    r"\b(say(s|ing)?|said|tell(ing)?|look(s|ed|ing)?(?! back\b)|(?<!promote, )holds?|holding|held|kept|rooms?|"
    r"floors?|world|cast|glances?|hurry|stood|stands? in(?! for\b)|"
    r"(is|are|was|were) over(?! (a|an|the|its|all|[0-9]))|than (it|they) may)\b",
    re.IGNORECASE,
)
"""Further private words, absent from docstrings, comments and names of tests. Prometheus 'looks back'; the verdict
`hold` is code, except in 'promote, hold or roll back'."""

CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "alerts/runbooks/*.md", "compose/kubernetes/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)


def private_words(text: str, private: re.Pattern[str] = PRIVATE) -> list[str]:
    """Return the private words of a text, each with the text around it; code is left out."""
    prose = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    return [
        " ".join(prose[max(0, match.start() - 40) : match.end() + 20].split())
        for match in private.finditer(prose)
    ]


PACKAGES = ("exporters", "slo", "alerts", "dashboards", "compose", "tests")

PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
PRIVATE_PART = re.compile(
    r"room|kept|scene|look(s|ed)?|says|said|tells|told|hears|heard|door|strangers?|homes|rungs|specimen|"
    r"courier|mend(s|ed)?|elder|story|cast|house|floor|glance|seam|keeper|unheard|witness(es)?|bearable|dust|world|hurry|honest",
    re.IGNORECASE,
)
"""Private words as parts of names: `_has_room`, `NEVER_LOOKED`, `ParsedStory`. `rung` is a label of rules."""
LIBRARY_NAMES = {"floor": "rounds down, in `math` and `numpy`"}
"""Names that contain such a word and are a library's own."""
NAMES_NOTHING = re.compile(r"(.* )?((?<!to )one|(?<!not )found( .*)?)", re.IGNORECASE)
"""A loop over `one` in a list `found` does not show what they contain, nor do `_one`, `write_one` and `found_full`.
`one_form` and `one_to_one` count; `NotFoundError` is an error."""


def _names(source: str) -> Iterator[str]:
    """Functions, classes, attributes, variables, parameters and imports of a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.alias(name=name, asname=chosen):
                yield chosen or name


def private_names(source: str) -> set[str]:
    """Return the names in a module that contain a private word, or that name nothing."""
    return {
        name
        for name in set(_names(source)) - LIBRARY_NAMES.keys()
        if names_nothing(name)
        or any(map(PRIVATE_PART.fullmatch, PART.findall(name)))
        or private_words(sentence_of(name))
    }


def sentence_of(name: str) -> str:
    """Return the sentence that the name of a test is; empty for other names."""
    return name.removeprefix("test_").replace("_", " ") if name.startswith("test_") else ""


def names_nothing(name: str) -> bool:
    """Whether a name does not show what it holds; the name of a test is a sentence."""
    return not name.startswith("test_") and NAMES_NOTHING.fullmatch(" ".join(PART.findall(name))) is not None


_FSTRING = {getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}  # new in Python 3.12


def _texts(source: str) -> Iterator[str]:
    """Comments, docstrings and messages: what of a module a person reads. A string without a blank is a name."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, *_FSTRING) and " " in token.string:
            yield token.string


def _notes(source: str) -> Iterator[str]:
    """Comments, docstrings and the names of tests, as sentences."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
            case ast.FunctionDef(name=name):
                yield sentence_of(name)


def _annotations() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "alerts" / "generated" / "rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                for name, text in (rule.get("annotations") or {}).items():
                    yield f"{rule.get('alert')}.{name}", str(text)


@pytest.mark.parametrize("page", PAGES)
def test_pages_use_the_words_of_the_field(page: str) -> None:
    """README, docs, runbooks, CHANGELOG."""
    assert [] == private_words((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("verb", VERBS)
def test_help_uses_the_words_of_the_field(verb: str) -> None:
    """The help of a verb, of its flags, and its line in the list of verbs."""
    parser = argparse.ArgumentParser(description=VERBS[verb])
    importlib.import_module(f"tritonwatch.commands.{verb}").configure(parser)

    assert [] == private_words(parser.format_help())


def test_alert_texts_use_the_words_of_the_field() -> None:
    """The annotations that Slack, Alertmanager and Prometheus show."""
    actual = {place: words for place, text in _annotations() if (words := private_words(text))}

    assert {} == actual


@pytest.mark.parametrize("package", PACKAGES)
def test_code_uses_the_words_of_the_field(package: str) -> None:
    """Docstrings, comments, messages, panel titles and descriptions, Slack texts."""
    actual = {
        path.relative_to(ROOT).as_posix(): words
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != Path(__file__)  # it lists the words
        if (words := [word for text in _texts(path.read_text()) for word in private_words(text)])
    }

    assert {} == actual


@pytest.mark.parametrize("package", PACKAGES)
def test_notes_use_the_words_of_the_field(package: str) -> None:
    """Docstrings, comments and names of tests; other strings are data or messages."""
    actual = {
        path.relative_to(ROOT).as_posix(): words
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != Path(__file__)
        if (
            words := [
                word for text in _notes(path.read_text()) for word in private_words(text, PRIVATE_IN_NOTES)
            ]
        )
    }

    assert {} == actual


@pytest.mark.parametrize("package", PACKAGES)
def test_names_use_the_words_of_the_field(package: str) -> None:
    """Modules, functions, classes, attributes, variables and parameters."""
    actual = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted((ROOT / package).rglob("*.py"))
        if (names := private_names(f"{path.stem}\n{path.read_text()}"))
    }

    assert {} == actual


@pytest.mark.parametrize(
    "name",
    [
        "_KEPT",
        "_has_room",
        "vanished_scene",
        "SceneOfProof",
        "is_stranger",
        "one",
        "_one",
        "write_one",
        "_found",
        "found_full",
        "test_whoever_reads_it",
        "test_what_is_relayed_is_sound",
        "test_this_is_no_address",
    ],
)
def test_a_private_word_in_a_name_is_found(name: str) -> None:
    """As a function, a variable, a parameter and an attribute."""
    for source in (f"def {name}(): pass", f"{name} = 1", f"def f({name}): pass", f"f.{name}"):
        assert {name} == private_names(source)


@pytest.mark.parametrize(
    "name",
    [
        "lookup",
        "broadcast",
        "floors",
        "math.floor",
        "bedroom",
        "one_form",
        "one_to_one",
        "NotFoundError",
        "test_it_is_found",
        "test_there_is_no_address",
    ],
)
def test_a_part_of_another_word_is_not_a_private_word(name: str) -> None:
    """Whole parts of a name count, and names of libraries do not."""
    assert set() == private_names(f"f({name})")


def test_a_private_word_in_a_docstring_or_a_message_is_found() -> None:
    """Planted in each kind of text; names and code are left out."""
    source = '''
def told(name="told"):  # whoever reads this
    """Say what it was told."""
    print(f"it heard {name}, `told` again")
'''

    assert 3 == sum(len(private_words(text)) for text in _texts(source))


def test_a_private_word_in_the_description_of_a_test_is_found() -> None:
    """Planted in a docstring, a comment and a name; code and other strings are left out."""
    source = '''
def test_the_limit_holds() -> None:  # as the page says
    """What was kept is over; the verdict is `hold`."""
    print("it says no")
'''

    assert 4 == sum(len(private_words(text, PRIVATE_IN_NOTES)) for text in _notes(source))


@pytest.mark.parametrize(
    "sentence",
    [
        "What it was told is on disk before it answers.",
        "Whoever reaches this address could page.",
        "Triton retries by itself.",
        "This is no URL.",
        "The model is mended.",
    ],
)
def test_a_private_word_is_found(sentence: str) -> None:
    """Each sentence was in an earlier version."""
    assert private_words(sentence)


@pytest.mark.parametrize(
    "sentence",
    ["The model is no longer ready.", "There is no data.", "Write `told` in code.", "Lists are read."],
)
def test_plain_english_is_accepted(sentence: str) -> None:
    """Idiom and code are not private words."""
    assert [] == private_words(sentence)
