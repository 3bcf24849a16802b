"""Test that problems of objectives are in the words of their author, not in those of a library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from triton_slo.fields import Choice
from triton_slo.indicators import Custom, Latency
from triton_slo.objective.exclusion import Exclusion
from triton_slo.objective.model import Alerting, CalendarWindow, Objective, Override, Rolling, Tier
from triton_slo.objective.reading import read
from tritonwatch.cli import main

GOOD: dict[str, Any] = {"name": "a", "target": "99%", "indicator": {"kind": "latency", "threshold": "1s"}}
OURS = re.compile(
    r"[Ii]nput|[Tt]uple|[Dd]ictionary|\bdict\b|instance of|timedelta|datetime|pydantic|NoneType|codec|Traceback"
    r"|\bstr\b|\bint\b|\[key\]|should|Error|[a-z]+_[a-z]+\(\)"
)
"""Words of Python and of the library that reads the fields."""
FIELDS = sorted(
    {
        field
        for form in (Alerting, CalendarWindow, Choice, Custom, Exclusion, Latency, Override, Rolling, Tier)
        for field in form.model_fields
    }
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 10**6)
    | st.floats()
    | st.dates()
    | st.datetimes()
    | st.sampled_from(["", "all", "week", "30d", "99%", "x" * 3000, "10:00", "2027-02-30T10:00Z", "a b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)


def problems(text: str) -> list[str]:
    """Every mistake in a file, as it is printed."""
    return [str(problem) for problem in read([("o.yaml", text)]).problems]


def changed(**fields: object) -> list[str]:
    """Every mistake in a valid objective with these fields."""
    return problems(yaml.safe_dump({**GOOD, **fields}))


@given(field=st.sampled_from(sorted(Objective.model_fields)), value=ANYTHING)
def test_no_mistake_is_reported_in_the_words_of_a_library(field: str, value: object) -> None:
    """For any value of a field, the reader need not know what a tuple is."""
    assert [] == [problem for problem in changed(**{field: value}) if OURS.search(problem)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"alerting": 3}, "alerting: must be a mapping of fields, and is the number 3 (fix: write a mapping"),
        (
            {"exclusions": ["x"]},
            "exclusions.0: must be a mapping of fields, and is 'x' (fix: write a list of",
        ),
        ({"alerting": {"tiers": []}}, "alerting.tiers: is empty, and must hold at least one"),
        ({"description": 3}, "description: must be text, and is the number 3 (fix: put it in quotes"),
        ({"name": "A b"}, "name: 'A b' is not written as it must be (fix: use small letters"),
        ({"labels": {1: "a"}}, "labels.1: must be text, and is the number 1"),
        (
            {"alerting": {"min_failures": -1}},
            "alerting.min_failures: must be at least 0, and is the number -1",
        ),
        ({"window": {}}, "window: has neither a length (rolling) nor a period"),
        (
            {"window": {"rolling": "30d", "calendar": "month"}},
            "window: a window is rolling or of the calendar",
        ),
        ({"window": {"rolling": "30d", "timezone": "UTC"}}, "window: a rolling window has no time zone"),
        ({"window": "３０d"}, "window.rolling: '３０d' is not a duration"),
        ({"target": "９９%"}, "target: '９９%' is not a share"),
        ({"target": "9_9%"}, "target: '9_9%' is not a share"),
        ({"indicator": {"kind": "latency", "threshold": "9" * 400 + "s"}}, "of more than a hundred years"),
        (
            {"indicator": {"kind": "errors", "reasons": []}},
            "indicator: reasons is empty, so no failure would count",
        ),
        (
            {"exclusions": [{"reason": "r", "days": ["funday"], "start": "10:00", "end": "11:00"}]},
            "exclusions.0.days.0: 'funday' is none of monday",
        ),
        # The same file makes the same rules everywhere.
        *(
            (
                {"window": {"calendar": "month", "timezone": zone}},
                f"window.timezone: {zone!r} is not the same zone on every machine",
            )
            for zone in ("localtime", "right/Europe/Berlin", "posix/Europe/Berlin", "posixrules", "Factory")
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_shown_and_the_right_kind_named(
    fields: dict[str, object], expected: str
) -> None:
    """What is there, what must be there, and how to write it, in one line."""
    (problem,) = changed(**fields)

    assert expected in problem


@pytest.mark.parametrize(
    ("line", "place", "expected"),
    [
        ("description: 2026-13-45", 4, "'2026-13-45' looks like a date and cannot be read as one"),
        (
            f"alerting: {{min_failures: {'9' * 5000}}}",
            4,
            "looks like a whole number and cannot be read as one",
        ),
        ("description: !!python/object:os.system x", 4, "the tag !!python/object:os.system is not allowed"),
        ("? [a]\n: b", 4, "a key must be a single word"),
        ("description: a\ndescription: b", 5, "the key 'description' is written twice, first in line 4"),
    ],
)
def test_a_value_that_yaml_cannot_read_is_shown_at_its_line(line: str, place: int, expected: str) -> None:
    """The line is not that at which the objective begins."""
    (problem,) = problems(f"name: a\ntarget: 99%\nindicator: errors\n{line}\n")

    assert problem.startswith(f"o.yaml:{place}: ")
    assert expected in problem


@pytest.mark.parametrize("off", ["off", "'off'", '"off"'])
def test_alerting_off_is_short_for_not_enabled(off: str) -> None:
    """YAML 1.1 reads `off` as false; programs that write YAML quote it."""
    text = f"name: a\ntarget: 99%\nindicator: errors\nalerting: {off}\n"
    (objective,) = read([("o.yaml", text)]).objectives

    assert not objective.alerting.enabled


@pytest.mark.parametrize("verb", [["check"], ["convert", "--from", "sloth"]])
def test_a_folder_without_files_is_named(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without objectives is not a success, and the message names where there are none."""
    assert 2 == main([*verb, str(tmp_path)])
    assert f"folder {tmp_path}: contains no *.yaml or *.yml file" in capsys.readouterr().err


def test_generate_warns_as_check_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Users who never run `check` get the same warnings, and the rules."""
    objectives, out = tmp_path / "objectives", tmp_path / "out"
    objectives.mkdir()
    (objectives / "o.yaml").write_text(yaml.safe_dump({**GOOD, "target": "90%"}))

    assert 0 == main(["generate", "--objectives", str(objectives), "--out", str(out), "--only", "rules"])
    assert "warning: " in (printed := capsys.readouterr().err)
    assert "o.yaml:1: a: alerting: tier page_fast can never fire" in printed
    assert (out / "slo-a.yml").is_file()
