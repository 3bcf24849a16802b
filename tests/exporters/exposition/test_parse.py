"""Test the parser of Prometheus text: what it returns, what it drops and how it counts that."""

from __future__ import annotations

import math
import subprocess
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporters.captures import bodies
from support.tools import promtools
from triton_exporter.exposition.parse import Exposition, Parser, parse, parse_series

Samples = Counter[tuple[str, frozenset[tuple[str, str]], str]]

BODY = b"""# HELP a First family
# TYPE a counter
a{model="m",version="1"} 1
a{model="m",version="2"} 2
# HELP h Second family
# TYPE h histogram
h_bucket{le="1"} 3
h_bucket{le="+Inf"} 4
h_sum 5.5
h_count 4
"""


def ours(exposition: Exposition) -> Samples:
    # prometheus_client gives the samples of every counter the suffix that OpenMetrics asks for.
    return Counter(
        (
            series.name.removesuffix("_total") + "_total" if family.kind == "counter" else series.name,
            frozenset(series.labels.items()),
            repr(value),
        )
        for family in exposition.families.values()
        for series, value in family.samples()
    )


def theirs(body: str) -> Samples:
    return Counter(
        (sample.name, frozenset(sample.labels.items()), repr(float(sample.value)))
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    )


def values(exposition: Exposition) -> dict[str, float]:
    return {
        series.name + "".join(series.labels.values()): value
        for family in exposition.families.values()
        for series, value in family.samples()
    }


def test_a_family_has_its_kind_help_series_and_lines() -> None:
    """A family has its kind, its help, its series and its lines as they were written."""
    family = parse(BODY).families["h"]

    assert ("h", "histogram", "Second family") == (family.name, family.kind, family.help)
    assert [3, 4, 5.5, 4] == list(family.values)
    assert ["h_bucket", "h_bucket", "h_sum", "h_count"] == [series.name for series in family.series]
    assert BODY[BODY.index(b"# HELP h") :].decode() == family.text


def test_a_good_body_is_relayed_unchanged() -> None:
    """A good body comes out as it went in."""
    assert BODY.decode() == parse(BODY).text


def test_a_single_family_is_parsed_alone() -> None:
    """Asked for one family, the parser reads no other."""
    exposition = Parser().parse(BODY + b"broken\n", only={"a"})

    assert ["a"] == list(exposition.families)
    assert [1, 2] == list(exposition.families["a"].values)
    assert {} == exposition.faults


@pytest.mark.parametrize("body", [BODY, BODY.replace(b'"m"', b'"m n"')], ids=["plain", "spaces"])
def test_series_are_reused_while_their_lines_are_the_same(body: bytes) -> None:
    """While the lines of a family stay the same, so do its series, for any values."""
    parser = Parser()

    first = parser.parse(body)
    second = parser.parse(body.replace(b"} 1\n", b"} 7\n"))

    assert first.families["a"].series is second.families["a"].series
    assert [7, 2] == list(second.families["a"].values)


def test_series_come_and_go() -> None:
    """A series that stays keeps its identity when its neighbours come and go."""
    parser = Parser()
    stays = parser.parse(BODY).families["a"].series[1]

    shrunk = parser.parse(BODY.replace(b'a{model="m",version="1"} 1\n', b""))
    grown = parser.parse(BODY.replace(b"# HELP h", b'a{model="n",version="1"} 9\n# HELP h'))

    assert [stays] == list(shrunk.families["a"].series)
    assert stays is grown.families["a"].series[1]
    assert [1, 2, 9] == list(grown.families["a"].values)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'a{model="\xff"} 1', "encoding"),
        (b'a{model="m" 1', "syntax"),
        (b"a", "syntax"),
        (b"a-1", "syntax"),
        (b"9a 1", "syntax"),
        (b'{model="m"} 1', "syntax"),
        (b'a{model="m",model="n"} 1', "syntax"),
        (b'a{model="x\n"} 1', "syntax"),
        (b'a{__name__="b"} 1', "syntax"),
        (b"a 1 2 3", "syntax"),
        (b"...", "syntax"),
        (b'a{model="m"} one', "value"),
        (b"a 1_000", "value"),
        (b"a 0x10", "value"),
        (b"a +NaN", "value"),
        (b"a 1e999", "value"),
        (b"a 1.2.3", "value"),
        (b"a 1 -5", "syntax"),
        (b"a 1 99999999999999999999", "syntax"),
        (b'h_bucket{le="x"} 1', "value"),
        ("a \u0661".encode(), "value"),
        (b'a{version="1", model="m"} 3', "duplicate"),
        (b"# TYPE b banana", "type"),
        (b"# TYPE a gauge", "type"),
        (b"# HELP a Again", "type"),
    ],
)
def test_a_bad_line_is_counted_and_costs_no_other_line(line: bytes, fault: str) -> None:
    """A bad line is counted by its kind and costs no other line."""
    exposition = parse(BODY + line + b"\n" + b"z 26\n")

    assert {fault} == set(exposition.faults)
    assert {**values(parse(BODY)), "z": 26} == values(exposition)


@pytest.mark.parametrize(
    "bad", [b"1.2.3", b"", b"one", b"1_0", b"1e999", b"+NaN", "\u0661".encode(), b"9" * 400]
)
def test_a_number_goes_bad(bad: bytes) -> None:
    """A line that was good in the last body is dropped when its value is not a number any more."""
    parser = Parser()
    parser.parse(BODY)
    exposition = parser.parse(BODY.replace(b'"2"} 2\n', b'"2"} ' + bad + b"\n"))

    assert 1 == sum(exposition.faults.values())
    assert [1] == list(exposition.families["a"].values)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (rb"# HELP z \N of \d \\ \n", "\\N of \\d \\ \n"),
        (rb"# HELP z said \"so\"", 'said \\"so\\"'),
        (rb"# HELP z ends in \ "[:-1], "ends in \\"),
    ],
)
def test_an_unknown_escape_in_a_help(line: bytes, expected: str) -> None:
    """A HELP that only Prometheus' scraper can read is corrected, so that every reader accepts it."""
    exposition = parse(line + b"\n# TYPE z gauge\nz 1\n")

    assert {"corrected": 1} == exposition.faults
    assert expected == exposition.families["z"].help
    again = parse(exposition.text.encode())
    assert {} == again.faults
    assert expected == again.families["z"].help


@pytest.mark.parametrize(
    ("line", "whole"),
    [(b"# TYPE z  gauge", b"# TYPE z gauge"), (b"# TYPE z gauge ", b"# TYPE z gauge"), (b" z 1", b"z 1")],
)
def test_blanks_in_the_wrong_place(line: bytes, whole: bytes) -> None:
    """Blanks for which Prometheus refuses a whole body are left out."""
    exposition = parse(b"y 1\n" + line + b"\n")

    assert {"corrected": 1} == exposition.faults
    assert b"y 1\n" + whole + b"\n" == exposition.text.encode()


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("histogram", 'z_bucket{%s="x"} 1'),
        ("histogram", 'z_count{a="",%s=""} 1'),
        ("summary", 'z{%s="1e999"} 1'),
    ],
)
def test_a_bound_that_is_not_a_number_is_a_fault(kind: str, line: str) -> None:
    """A bucket or quantile at no number is left out wherever its TYPE stands; in another family it is a label."""
    bound = {"histogram": "le", "summary": "quantile"}[kind]
    bad, head = f"{line % bound}\n", f"# TYPE z {kind}\n"
    good = bad.replace('x"', '1"').replace('""} 1', '"2"} 1').replace("1e999", "0.5")

    for body in (f"{head}{bad}", f"{bad}{head}", f"{head}{good}{bad}"):
        assert {"value": 1} == parse(body.encode()).faults
    assert {} == parse(f"{head}{good}".encode()).faults
    assert {} == parse(f"# TYPE z gauge\n{bad}".encode()).faults


def test_an_unknown_escape_in_a_label_value() -> None:
    """A backslash that begins no escape is doubled: the value stays, the same value twice is found."""
    parser = Parser()
    for _ in range(2):
        exposition = parser.parse(b'z{path="C:\\models"} 1\nz{path="C:\\\\models"} 2\n')

        assert {"corrected": 1, "duplicate": 1} == exposition.faults
        assert [{"path": r"C:\models"}] == [series.labels for series in exposition.families["z"].series]
        assert 'z{path="C:\\\\models"} 1\n' == exposition.text


@pytest.mark.parametrize(
    "changed",
    [b"a\n1 b 2\n", b"a 1\nb2 \n", b"a 1\n2\n", b"a 1\nNaN\n", b"a 1 \nb 2\n", b" a 1\nb 2\n", b"a 1\n\n"],
)
def test_the_same_words_in_other_lines(changed: bytes) -> None:
    """A body that differs from the last one in its blanks and line ends only is read anew."""
    parser = Parser()
    parser.parse(b"# HELP a text\n" + b"a 1\n" + b'a{b="c"} 2\n')
    changed = changed.replace(b"b", b'a{b="c"}')

    cached, fresh = parser.parse(b"# HELP a text\n" + changed), parse(b"# HELP a text\n" + changed)

    assert (fresh.text, fresh.faults) == (cached.text, cached.faults)


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        (b"a 1\nb 123", "a 1\n"),
        ('a 1\nb{model="é"} 2\nb{model="é'.encode()[:-1], 'a 1\nb{model="é"} 2\n'),
        (b"a 1\n# HE", "a 1\n"),
    ],
    ids=[
        "a number, which is a wrong number",
        "a character",
        "a comment, of which what follows would be a part",
    ],
)
def test_a_line_that_is_cut_short_is_dropped(cut: bytes, whole: str) -> None:
    """It is counted, and costs no other line."""
    exposition = parse(cut)

    assert whole == exposition.text
    assert {"truncated": 1} == exposition.faults


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('a{b="x y 5"} 1', {"b": "x y 5"}),
        (r'a{b="quote \" brace } comma , end"} 1', {"b": 'quote " brace } comma , end'}),
        (r'a{b="backslash \\ newline \n"} 1', {"b": "backslash \\ newline \n"}),
        ('a{b="# HELP"} 1', {"b": "# HELP"}),
        ('a { b = "c" , d = "e" , } 1', {"b": "c", "d": "e"}),
        ('a{b="c"} 1 1700000000000', {"b": "c"}),
        ('a{b="c"}\t1', {"b": "c"}),
        ("a{} 1", {}),
    ],
)  # fmt: skip
def test_unusual_lines_are_read_as_the_format_defines(line: str, expected: dict[str, str]) -> None:
    """Hostile label values, odd spacing and timestamps are read as the format means them."""
    (family,) = parse(f"{line}\n".encode()).families.values()

    assert [1] == list(family.values)
    assert expected == family.series[0].labels


def test_spellings_of_not_a_number() -> None:
    """Triton prints Nan for an empty summary; it is a value, not a fault."""
    exposition = parse(b"a Nan\nb +Inf\nc -Inf\nd NaN\n")

    assert {} == exposition.faults
    assert math.isnan(values(exposition)["a"])
    assert (math.inf, -math.inf) == (values(exposition)["b"], values(exposition)["c"])


def test_a_family_in_pieces_is_joined() -> None:
    """A family whose lines stand apart comes out in one piece, without what it repeats."""
    exposition = parse(BODY + BODY + b'a{model="late"} 3\n')

    assert [1, 2, 3] == list(exposition.families["a"].values)
    assert {"duplicate": 6, "type": 4} == exposition.faults


def test_declared_after_its_samples() -> None:
    """Samples that come before the TYPE of their family still belong to it, once."""
    samples = b'h_bucket{le="1"} 3\nh_count 4\n'
    exposition = parse(samples + b"# TYPE h histogram\n" + samples + b"h_sum 5\n")

    assert ["h"] == list(exposition.families)
    assert [3, 4, 5] == list(exposition.families["h"].values)
    assert {"duplicate": 2} == exposition.faults


def test_gauge_named_like_a_sum() -> None:
    """A family that bears the name of another's sum keeps its sample, wherever that stands."""
    exposition = parse(b"# TYPE s summary\ns_sum 1\ns_count 2\n# TYPE s_sum gauge\ns_sum 3\n")

    assert ([2.0], [1.0]) == (
        list(exposition.families["s"].values),
        list(exposition.families["s_sum"].values),
    )
    assert {"duplicate": 1} == exposition.faults


def test_the_text_of_a_series_gives_its_name_and_labels() -> None:
    """A series' text gives its name and labels; anything else gives nothing."""
    series = parse_series('x{a="1"}')

    assert series is not None
    assert ("x", {"a": "1"}) == (series.name, series.labels)
    assert parse_series('x{a="1"') is None


@pytest.mark.parametrize(
    "line",
    [
        b'a{model="m",version="1"} 5',
        b'a{version="1",model="m"} 5',
        b'a{ model="m",version="1"} 5',
        b'a{model="m",version="1",} 5',
    ],
)
def test_same_series_in_other_words(line: bytes) -> None:
    """A series is the same however its labels are ordered and spaced, also when the lines come late."""
    parser = Parser()
    parser.parse(BODY)
    exposition = parser.parse(BODY.replace(b"# HELP h", line + b"\n# HELP h"))

    assert {"duplicate": 1} == exposition.faults
    assert [1, 2] == list(exposition.families["a"].values)


names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
# Those with two underscores are reserved, and prometheus_client refuses some of them.
label_names = st.from_regex(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True)
label_values = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)
numbers = st.floats(width=64) | st.integers(0, 2**64).map(float)


@st.composite
def expositions(draw: st.DrawFn) -> str:
    """Draw a valid body: families with unique names, each with unique series."""
    lines = []
    for name in draw(st.lists(names, unique=True, max_size=5)):
        kind = draw(st.sampled_from(["counter", "gauge", "untyped", ""]))
        lines += [f"# HELP {name} text", f"# TYPE {name} {kind}"] if kind else []
        labels = st.dictionaries(label_names, label_values, max_size=3).map(
            lambda d: tuple(sorted(d.items()))
        )
        for pairs in draw(st.lists(labels, unique=True, max_size=4)):
            inside = ",".join(f'{key}="{_escape(value)}"' for key, value in pairs)
            number = draw(numbers)
            lines.append(f"{name}{{{inside}}} {number!r}" if pairs else f"{name} {number!r}")
    return "".join(f"{line}\n" for line in lines)


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@given(expositions())
@example('a{b="x } 5"} 1.0\n')
def test_as_prometheus_client_reads_it(body: str) -> None:
    """Every sample of a valid body is read as prometheus_client's parser reads it, and relayed unchanged."""
    exposition = parse(body.encode())

    assert {} == exposition.faults
    assert theirs(body) == ours(exposition)
    assert body == exposition.text


@given(expositions(), expositions())
def test_an_earlier_body_does_not_change_the_next(first: str, second: str) -> None:
    """What a parser read before never shows in what it reads next."""
    parser = Parser()
    parser.parse(first.encode())

    assert ours(parse(second.encode())) == ours(parser.parse(second.encode()))


fragments = st.sampled_from(
    [b"a", b"b_bucket", b"{", b"}", b'"', b"=", b",", b" ", b"\t", b"\n", b"\\", b"# TYPE b histogram\n",
     b"# ", b"1", b"1e9", b"nan", b"\xff", b"\x00", b"\r", b'{le="1"} 2\n', b"a 1\n", b"# HELP a\n"]
)  # fmt: skip


@given(st.lists(fragments, max_size=30).map(b"".join))
def test_the_parsed_part_of_any_body_is_clean(body: bytes) -> None:
    """For any body, the parsed series are clean: read again they give the same values and no fault."""
    parsed = parse(body)
    again = parse(parsed.text.encode())

    assert {} == again.faults
    assert ours(parsed) == ours(again)
    assert ours(parsed) == theirs(parsed.text)


@given(st.lists(fragments, max_size=30).map(b"".join), st.sets(st.sampled_from(["a", "b", "h"])))
@example(b"# TYPE a counter\nb 1\na 1\n# TYPE b gauge\nb 2\n", {"b"})
def test_families_read_alone_are_those_of_the_whole_body(body: bytes, wanted: set[str]) -> None:
    """What a sampling reads of a few families is what it takes from a body that a scrape had parsed as a whole."""
    whole, alone = parse(body), Parser().parse(body, wanted)
    part = whole.only(wanted)

    if not whole.scattered:
        assert (part.families.keys(), part.faults) == (alone.families.keys(), alone.faults)
        assert ours(part) == ours(alone)
    assert whole.declared == alone.declared


def test_families_that_were_not_asked_for_stay_known() -> None:
    """A parser that reads a few families between two scrapes still knows the others at the next scrape."""
    parser = Parser()
    before = parser.parse(BODY)
    parser.parse(BODY, only={"a"})
    after = parser.parse(BODY)

    assert [family.series for family in before.families.values()] == [
        family.series for family in after.families.values()
    ]
    assert all(family.series is after.families[name].series for name, family in before.families.items())


def test_recorded_bodies_are_read_without_loss() -> None:
    """Every recorded body of Triton is read without loss."""
    for name, body in bodies("triton", "*metrics*"):
        text = body.decode()
        expected = [line for line in text.splitlines() if line and line[0] != "#"]
        exposition = parse(body)

        assert len(expected) == sum(len(family.series) for family in exposition.families.values()), name
        assert sorted(expected) == sorted(
            line for line in exposition.text.splitlines() if not line.startswith("#")
        ), name
        assert theirs(exposition.text) == ours(exposition), name


def test_promtool_accepts_what_is_parsed() -> None:
    """Prometheus' own parser accepts the good part of a broken body."""
    broken = BODY + b"junk here\n# TYPE b banana\nb 1\nb 1\na\xff 1\nc 1e999\nd 1"
    for promtool in promtools():
        parsed = parse(broken).text.encode()
        raw = subprocess.run([promtool, "check", "metrics"], input=broken, capture_output=True)
        good = subprocess.run([promtool, "check", "metrics"], input=parsed, capture_output=True)

        assert b"error while linting" in raw.stderr
        assert b"error while linting" not in good.stderr
