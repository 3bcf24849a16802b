"""Arguments that several verbs take, parsed the same way everywhere."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from triton_alerts import alerts_file
from triton_alerts.alerts_file import AlertsFile
from triton_exporter.common.duration import DAY, duration_between, parse_seconds
from triton_exporter.common.moments import parse_moment, parse_past_moment, utc_text
from triton_exporter.common.options import adder, is_web_address, parsed
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.group_status import GroupStatus
from triton_slo.promql import parse_selector
from tritonwatch.command_error import CommandError, EncodingError, UsageError
from tritonwatch.parser import did_you_mean

T = TypeVar("T")
AS_GENERATED = "values that the rules were generated with"
"""Title of the flags by which a verb repeats those of `generate`."""


def scale(text: str) -> float:
    """Return a factor above 0 and at most 1, as 0.005 or 1/120."""
    value = _finite_number(text, "a number such as 0.005 or 1/120")
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is out of range; it must be above 0 and at most 1")
    return value


def whole(text: str) -> int:
    """Return a whole number, not below 0."""
    value = _finite_number(text, "a whole number")
    if value < 0 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 0 or more")
    return int(value)


def checked(read: Callable[[str], object]) -> Callable[[str], str]:
    """Make a type of arguments that returns the text itself if `read` accepts it, or if it is empty."""
    parse = parsed(read)

    def check(text: str) -> str:
        if text:
            parse(text)
        return text

    return check


seconds = parsed(parse_seconds)
"""A duration such as 5m, in seconds."""

interval = parsed(duration_between(0.001, DAY))
"""A duration of at most a day, in seconds, also written as a bare number of them."""

moment = parsed(parse_moment)
"""A moment such as 2026-05-01T09:30Z, in Unix seconds."""


selector = checked(parse_selector)
"""PromQL matchers without braces, parsed here because a mistake in them would break every query."""


def web_address(text: str) -> str:
    """Return an http or https address with a host. Raises ValueError on any other text."""
    if not is_web_address(text):
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:9096/alertmanager")
    return text


def _runbook(text: str) -> None:
    try:
        web_address(text.format(alert="TritonServerDown"))
    except (LookupError, AttributeError, ValueError):
        raise ValueError(f"{text!r} is not a URL such as https://wiki.example.org/{{alert}}") from None


def add_runbook_url(add: Callable[..., None]) -> None:
    """Declare the flag that gives the URL of a runbook; `add` is from `adder`."""
    usual = Options().runbook_url
    text = f"URL of a runbook; {{alert}} is replaced by the alert's name (default: {usual})"
    add("--runbook-url URL", text, checked(_runbook), default=usual)


def add_scrape_interval(add: Callable[..., None]) -> None:
    """Declare the flag that gives the interval at which Prometheus scrapes, in seconds; `add` is from `adder`."""
    add("--scrape-interval DURATION", "scrape interval of Prometheus (default: 15s)", interval, default=15.0)


def add_time_scale(add: Callable[..., None], default: float = 1.0, shown: str = "1") -> None:
    """Declare the flag that shortens the windows of the rules; `add` is from `adder`."""
    text = (
        "factor by which every window and every `for` of the rules is multiplied, such as 1/60 for demos and "
        f"tests (default: {shown})"
    )
    add("--time-scale F", text, scale, default=default)


def add_selector(add: Callable[..., None]) -> None:
    """Declare the flag that gives the matchers of Triton's series; `add` is from `adder`."""
    text = "PromQL label matchers to add to every selector, such as 'cluster=\"eu1\"'"
    add("--selector MATCHERS", text, selector, default="")


def add_rule_options(add: Callable[..., None]) -> None:
    """Declare the flags that `rule_options` reads, which rules are generated with; `add` is from `adder`."""
    add_selector(add)
    add_scrape_interval(add)
    add_time_scale(add)


def rule_options(args: argparse.Namespace) -> Options:
    """Return the options that `add_rule_options` declares; all others have their defaults."""
    return Options(
        time_scale=args.time_scale, scrape_interval_seconds=args.scrape_interval, selector=args.selector
    )


def path(text: str) -> Path:
    """Return a path; an empty one, which an unset variable leaves, would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty; is a variable unset?")
    return Path(text)


def check_out(out: Path, parts: Sequence[str], objectives: Path) -> None:
    """Raise UsageError unless files can be written to a folder and its parts beside these objectives."""
    if os.path.isfile(out):
        raise UsageError(f"--out {out} is a file, not a folder; nothing was written; name a folder")
    written = [folder.resolve() for folder in (out, *(out / part for part in parts))]
    if any(objectives.resolve() in (folder, *folder.parents) for folder in written):
        raise UsageError(
            f"--out {out} would write into the folder of the objectives, {objectives}; choose another folder"
        )


def text_of(file: Path, encoding: str = "utf-8") -> str:
    """Return a file's text. Raises UsageError, which names the file and the reason: EncodingError if not UTF-8."""
    try:
        return file.read_text(encoding=encoding)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        reason = f"not UTF-8 text (byte {error.start})"
        raise EncodingError(f"{file}:{line}", reason, "save the file as UTF-8") from error


def yaml_files(given: Sequence[Path]) -> list[Path]:
    """Return each file once: as given, and *.yaml and *.yml of folders. Raises UsageError for one without any."""
    files = [file for place in given for file in (_yaml_files_in(place) if os.path.isdir(place) else [place])]
    first: dict[str, Path] = {}
    for file in files:
        first.setdefault(os.path.realpath(file), file)
    return list(first.values())


def _yaml_files_in(folder: Path) -> list[Path]:
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    if not files:
        raise UsageError(f"folder {folder} contains no *.yaml or *.yml file; name another folder")
    return files


def objective_texts(folder: Path) -> list[tuple[str, str]]:
    """Return every *.yaml and *.yml of a folder as (name, text). Raises UsageError."""
    if not os.path.isdir(folder):
        raise UsageError(f"--objectives {folder} is not a folder")
    try:
        return [(str(file), text_of(file)) for file in yaml_files([folder])]
    except UsageError as error:
        raise UsageError(f"cannot read the objectives: {error}") from error


def add_alerts(parser: argparse.ArgumentParser) -> None:
    """Declare the flag that names the file of alert settings."""
    text = "alert settings (alerts.yaml): disables alerts, or changes their threshold, `for` or severity"
    adder(parser.add_argument)("--alerts FILE", text, path)


def add_links(parser: argparse.ArgumentParser) -> None:
    """Declare the flag that adds links to the dashboards."""
    text = (
        "link to show at the top of every dashboard, such as to logs or traces: a URL, or a path in "
        "Grafana; Grafana replaces variables such as ${model} and ${__from} (repeatable)"
    )
    adder(parser.add_argument)("--link TITLE=URL...", text, _parse_link)


def _parse_link(text: str) -> tuple[str, str]:
    title, _, url = text.partition("=")
    if not title.strip() or not (url.startswith("/") or is_web_address(url)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a link such as Logs=https://logs.example.org/?q=${{model}}"
        )
    return title.strip(), url


def alert_settings(file: Path | None) -> AlertsFile:
    """Read the file of alert settings; without one, nothing is changed. Raises UsageError."""
    return alerts_file.read(str(file), text_of(file)) if file else AlertsFile()


def tuned(file: Path | None) -> Tuning:
    """Return the alert settings of a file without mistakes. Raises CommandError with all mistakes."""
    settings = alert_settings(file)
    if settings.problems:
        raise CommandError(*settings.problems)
    return settings.tuning


def add_objective_filter(parser: argparse.ArgumentParser) -> None:
    """Declare the flag by which a verb shows or judges some objectives only."""
    add = adder(parser.add_argument)
    add("--objective NAME...", "use only this objective (repeatable)")


def add_group_filter(parser: argparse.ArgumentParser, text: str, **how: object) -> None:
    """Declare the flags by which a verb shows or judges some objectives, and the groups of one model, only."""
    add_objective_filter(parser)
    adder(parser.add_argument)("--model NAME", text, **how)


def add_at(add: Callable[..., None], use: str = "time to evaluate at") -> None:
    """Declare the flag that gives the time a verb is about, None for now; `add` is from `adder`."""
    add("--at TIME", f"{use}: 2026-05-01T09:30Z or Unix seconds (default: now)", parsed(parse_past_moment))


def at_words(at: float | None) -> str:
    """Return the time of --at for the end of a phrase: ` at 2026-05-01 09:30:00 UTC`; empty for now."""
    return "" if at is None else f" at {utc_text(at)}"


def misspelt(args: argparse.Namespace, rows: Sequence[GroupStatus]) -> list[str]:
    """Return a message for each name of --objective and --model that no row has, with the nearest known name."""
    known = {"objective": {row.slo for row in rows}, "model": {row.model for row in rows}}
    asked = {"objective": args.objective, "model": [args.model] if args.model else []}
    return [
        f"Prometheus has no data of {kind} {name}{at_words(args.at)}{did_you_mean(name, known[kind])}"
        for kind, names in asked.items()
        for name in names
        if name not in known[kind]
    ]


def _finite_number(text: str, kind: str) -> float:
    try:
        # Not Fraction for all: it would work out every digit of 1e999999999.
        value = float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind}")
    return value
