"""Test regular expressions that choose models: Prometheus and Python agree on them, or they are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.promtool import evaluated, promtool, rule_file
from support.tools import promtools
from triton_slo.fields import Choice
from triton_slo.promql import for_metricsql, quote

SAME = (
    "a.*",
    "(?i)bert.*",
    "(?i:BERT)-v[0-9]+",
    r"a\.b|c\[d\]",
    "[a-z]{1,1000}",
    "(?:a{100}b*){10}",
    r"\d+\w*",
    "(?P<n>x)y",
    r"\Aa$",
    "[]a]+",
    "k{l",
)
"""Legal in both."""
ONLY_PROMETHEUS = {
    r"bert\z": r"leave out \z",
    "bert(?i)large": "write (?i) at the beginning, or (?i:...)",
    "(?U)a+": "write (?i) at the beginning, or (?i:...)",
    r"\pL+": r"write \p, \Q and \x{...} as characters",
    r"\Qa.b\E": r"write \p, \Q and \x{...} as characters",
    r"\x{61}": r"write \p, \Q and \x{...} as characters",
    "[[:alpha:]]+": "as [a-zA-Z]",
}
ONLY_PYTHON = {
    "(?=a)b": "no look-around",
    r"(a)\1": "no look-around and no back-references",
    "a++": "no possessive",
    r"a\Z": r"no \Z",
    "(?x)a b": "no flags but i, m and s",
    "a(?#comment)": "no comments",
    "a{1001}": "no repetition over 1000",
    "a{1001,}": "no repetition over 1000",
}


@pytest.mark.parametrize("regex", SAME)
def test_what_both_read_is_accepted(regex: str) -> None:
    """The check finds no problem."""
    assert regex == Choice.model_validate({"regex": regex}).regex


@pytest.mark.parametrize(
    ("regex", "printed"),
    [*ONLY_PROMETHEUS.items(), *ONLY_PYTHON.items(), ("(" * 1900, "nested too deeply")],
    ids=range(len(ONLY_PROMETHEUS) + len(ONLY_PYTHON) + 1),
)
def test_what_one_of_them_does_not_read_is_refused_with_its_reason(regex: str, printed: str) -> None:
    """The message names what to write instead, or what Prometheus lacks."""
    with pytest.raises(ValueError, match="regex") as refused_regex:
        Choice.model_validate({"regex": regex})

    assert printed in str(refused_regex.value)


@pytest.mark.real
@pytest.mark.parametrize("binary", promtools(), ids=str)
def test_promtool_agrees_which_regexes_are_valid(binary: Path, tmp_path: Path) -> None:
    """Its own checker decides which list an expression belongs to."""

    def refused(*regexes: str) -> bool:
        rules = [{"record": "r", "expr": f"x{{model=~{quote(regex)}}}"} for regex in regexes]
        (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
        return promtool(binary, "check", "rules", tmp_path / "rules.yml").returncode != 0

    assert not refused(*SAME, *ONLY_PROMETHEUS)
    assert [True] * len(ONLY_PYTHON) == [refused(regex) for regex in ONLY_PYTHON]


@pytest.mark.real
def test_names_are_chosen_as_prometheus_chooses_them(tmp_path: Path) -> None:
    """A real rule engine selects the same series with each expression."""
    regexes = (
        *SAME,
        "(?i)[^a-c]x|B.T",
        r"(?:v\d{1,3}|x\.y)*-?[\w.]+",
        r"\bbert\b.*",
        "(a|aa)+b?",
        "(a+)+",
        r"[[&&~\d+--]+|\W",
        "",
    )
    chosen = ["a.b", "BERT-v12", "bert-large", "bert", "aaab", "v1v22-x", "zx", "xy", "é", "[&+1", "k{l"]
    chosen += ["a" * 40, "a" * 40 + "!"]  # Python tried the repetitions of a repetition for years
    series = {f'x{{model="{name}"}}': "1x5" for name in chosen}
    asked = [(f"group by (model) (x{{model=~{quote(regex)}}})", 60.0) for regex in regexes]

    answers = evaluated(promtools()[-1], tmp_path, rule_file({}), series, asked, interval=30, evaluation=30)

    for regex, answer in zip(regexes, answers, strict=True):
        expected = {labels["model"] for labels, _ in answer}
        assert expected == {name for name in chosen if Choice.model_construct(regex=regex).includes(name)}, (
            regex
        )


@pytest.mark.parametrize(
    ("promql", "metricsql"),
    [
        (
            'sum (rate(a{b=~"x)]"}[5m])) / rate(c[90s] offset 3m)',
            'sum ((increase(a{b=~"x)]"}[5m]) / 300)) / (increase(c[90s] offset 3m) / 90)',
        ),
        ("slo:sli_events:rate1h + irate(a[1m])", "slo:sli_events:rate1h + irate(a[1m])"),
        ('a{b="rate(c[5m])"}', 'a{b="rate(c[5m])"}'),
        ("rate(sum(rate(a[1m]))[5m:15s])", "(increase(sum((increase(a[1m]) / 60))[5m:15s]) / 300)"),
    ],
)
def test_rates_of_vmalert_are_those_of_prometheus(promql: str, metricsql: str) -> None:
    """Only calls are changed: no name, no quoted text."""
    assert metricsql == for_metricsql(promql)
