"""Arguments that several verbs take, parsed the same way everywhere."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

from triton_slo.promql import parse_selector


def scale(text: str) -> float:
    """A factor above 0 and at most 1, as 0.005 or 1/120."""
    value = _number(text, "a number such as 0.005 or 1/120")
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    value = _number(text, "a number")
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def checked(read: Callable[[str], object]) -> Callable[[str], str]:
    """Keep the text of an argument that `read` understands; its ValueError says what is wrong."""

    def check(text: str) -> str:
        try:
            if text:  # argparse checks the default, which means no such thing, too
                read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


selector = checked(parse_selector)
"""PromQL matchers without braces: a slip in them would break every query, and none of them loudly."""


def text_of(path: Path, encoding: str = "utf-8") -> str:
    """A file's text. Raises OSError, which names the file and the reason, also where it is no text at all."""
    try:
        return path.read_text(encoding=encoding)
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OSError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def yaml_files(given: Sequence[Path]) -> list[Path]:
    """Files as they are given, and the *.yaml and *.yml of folders. Raises OSError for a folder without any."""
    return [path for one in given for path in (_inside(one) if one.is_dir() else [one])]


def _inside(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    if not found:
        raise OSError(f"no *.yaml in the folder {folder}")
    return found


def objective_texts(folder: Path, verb: str) -> list[tuple[str, str]] | None:
    """Every *.yaml and *.yml of a folder as (name, text); says what is wrong and gives None otherwise."""
    if not folder.is_dir():
        print(f"tritonwatch {verb}: --objectives {folder} is not a folder", file=sys.stderr)
        return None
    try:
        return [(str(path), text_of(path)) for path in yaml_files([folder])]
    except OSError as error:
        print(f"tritonwatch {verb}: cannot read the objectives: {error}", file=sys.stderr)
        return None


def _number(text: str, kind: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind}") from None
