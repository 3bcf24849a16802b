"""Test mistakes in objectives: all of them are found, each with its place, its reason and its fix."""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import history
from support.tools import promtools
from triton_exporter.catalogue import state, triton
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.lint import Surroundings, findings, hidden_failures
from triton_slo.objective.reading import read
from triton_slo.sources import BACKEND_COUNTERS, UNTRACED_QUEUE
from tritonwatch.cli import main

CLIENTS = {
    "name": "c",
    "target": "99%",
    "indicator": {"kind": "custom", "counts_failures": True, "error": "a", "total": "b"},
}
GOOD = {"name": "a", "target": "99%", "indicator": {"kind": "latency", "threshold": "1s"}}


def mistakes(**changes: object) -> list[str]:
    """Return the problems of a valid objective with these changes."""
    return [str(problem) for problem in read([("o.yaml", yaml.safe_dump({**GOOD, **changes}))]).problems]


@pytest.mark.parametrize(
    ("changes", "printed"),
    [
        # It becomes a label, a file and a group.
        *(({"name": name}, "name") for name in ("A", "a b", "a{", "../a", "", "a" * 64, "-a", "ä")),
        (
            {"target": "100%"},
            "between 0% and 100%, and 100% leaves no budget to burn (fix: write for example",
        ),
        ({"target": 1}, "between 0% and 100%, and 100% leaves no budget to burn (fix: write for example"),
        ({"target": 0}, "between 0% and 100%, and 0% promises nothing (fix: write for example 99.9%)"),
        ({"target": -1}, "between 0% and 100%, and this is below 0% (fix: write for example 99.9%)"),
        ({"target": 999}, "between 0% and 100%, and this is above 100% (fix: write for example 99.9%)"),
        ({"target": "150%"}, "between 0% and 100%, and this is above 100% (fix: write for example 99.9%)"),
        ({"target": math.inf}, "between 0% and 100%, and this is above 100% (fix: write for example 99.9%)"),
        (
            {"target": math.nan},
            "between 0% and 100%, and this is not a number (fix: write for example 99.9%)",
        ),
        (
            {"target": "1.2"},
            "or a percentage (99.9%), and this is the number 1.2 (fix: write for example 99.9%)",
        ),
        ({"target": "99"}, "or a percentage (99.9%), and this is the number 99 (fix: write 99%)"),
        ({"target": "ninety"}, "'ninety' is not a share (fix: write for example 99.5%)"),
        ({"target": 99.95}, "(fix: write 99.95%)"),
        ({"target": [99]}, "must be a share, and is a list (fix: write for example 99.5%)"),
        ({"window": "3d"}, "a rolling window has 7 to 90 whole days"),
        ({"window": {"calendar": "month", "timezone": "Mars/Base"}}, "'Mars/Base' is not a time zone"),
        ({"indicator": {"kind": "speed"}}, "use one of readiness, latency, queue"),
        ({"indicator": "LATENCY"}, "'LATENCY' is not a kind of indicator (fix: did you mean 'latency'?)"),
        ({"TARGETS": "99%"}, "TARGETS: unknown field (fix: did you mean 'target'?)"),
        (
            {"unknown": {"policy": "ignore"}},
            "unknown: unknown field (fix: see docs/objectives.md for the fields)",
        ),
        ({"indicator": {"kind": "latency"}}, "indicator.threshold: required field is missing"),
        ({"indicator": {"kind": "latency", "threshold": 1}}, "write it with its unit"),
        (
            {"indicator": {"kind": "latency", "threshold": "0.0001ms"}},
            "0.0001ms is below 0.001ms, the smallest threshold",
        ),
        ({"models": {"regex": "a("}}, "models.regex: not a regular expression"),
        ({"models": {"regex": "(?=a)"}}, "no look-around"),
        ({"models": {"regex": "a++"}}, "no possessive a++"),
        ({"models": {"regex": "(?>a)b"}}, "no atomic groups"),
        ({"models": [1]}, "models.names.0: must be text, and is the number 1"),
        ({"overrides": [{"models": "a"}]}, "an override needs a target or a threshold"),
        (
            {"group_by": ["instance"], "overrides": [{"models": "a", "target": "90%"}]},
            "which group_by leaves out",
        ),
        (
            {"group_by": ["model"], "overrides": [{"models": "a", "versions": ["1"], "target": "90%"}]},
            "overrides choose by version, which group_by leaves out",
        ),
        ({"labels": {"severity": "x"}}, "labels the rules set themselves: severity"),
        ({"labels": {"zone": "x"}, "group_by": ["zone"]}, "labels the rules set themselves: zone"),
        (
            {"group_by": ["model", "event", "threshold"]},
            "group_by contains labels that the rules set themselves: event, threshold",
        ),
        (
            {"group_by": ["slo", "cause", "source", "le"]},
            "group_by contains labels that the rules set themselves: cause, le, slo, source",
        ),
        ({"alerting": {"severities": {"page": "critical"}}}, "name tiers that do not exist: page"),
        ({"alerting": {"labels": {"page": {"a": "b"}}}}, "labels name tiers that do not exist: page"),
        (
            {"alerting": {"labels": {"page_fast": {"severity": "x"}}}},
            "labels the rules set themselves: severity",
        ),
        (
            {"alerting": {"name": "Slow"}},
            "only custom objectives name their alerts; TritonLatencyBudgetBurn is",
        ),
        (
            {"indicator": {"kind": "custom", "error": "a", "total": "sum(b)"}},
            "total is not a counter, but sum() of",
        ),
        ({"indicator": {"kind": "custom", "error": "a)", "total": "b"}}, "error is not PromQL"),
        *(
            ({"indicator": {"kind": "custom", "error": error, "total": "t_total"}}, wrong)
            for error, wrong in (
                ("increase(e_total[5m])", "increase() of one"),
                ("increase(e_total[5m])", "write the counter itself"),
                ("sum_over_time(e_total[5m])", "sum_over_time() of one"),
                ("sum by (model) (rate(e_total[{{window}}]))", "error has a window"),
                ("sum(e_total)", "sum() of one"),
                ("e_total[5m]", "a window of one"),
                ("e_total - t_total", "`-` of one"),
                ('h_count - ignoring (le) g_bucket{le="1"}', "`-` of one"),
                ("-e_total", "`-` of one"),
                ("e_total offset 5m", "the past of one"),
                ("e_total / t_total", "`/` of one"),
            )
        ),
        (
            {"indicator": {"kind": "latency", "threshold": "1s", "treshold": "2s"}},
            "indicator.treshold: unknown field (fix: did you mean 'threshold'?)",
        ),
        (
            {"overrides": [{"model": "a", "target": "90%"}]},
            "overrides.0.model: unknown field (fix: did you mean 'models'?)",
        ),
        (
            {"alerting": {"tiers": [{"nam": "a"}]}},
            "alerting.tiers.0.nam: unknown field (fix: did you mean 'name'?)",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(changes: dict[str, object], printed: str) -> None:
    """Each mistake has its line in the file, and a text about what is wrong."""
    actual = mistakes(**changes)

    assert any(printed in problem for problem in actual), actual
    assert all(problem.startswith("o.yaml:") for problem in actual)


def test_mistakes_are_listed_in_the_order_of_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File by file and from the top to the bottom, as they are corrected; doubts among them."""
    (tmp_path / "a.yaml").write_text(
        "name: a\nindicator: latncy\nname: a\ntarget: 99\n"
        "---\nname: b\ntarget: 50%\nindicator: errors\n"
        "---\nname: c\nindicator: errors\ntaget: 99%\n"
    )
    (tmp_path / "b.yaml").write_text("name: d\ntarget: 99%\nindicator: speed\n")

    assert 1 == main(["check", str(tmp_path)])
    _, _, printed = capsys.readouterr().err.partition("\n\n")  # after the notes
    lines = [
        (Path(place[0]).name, int(place[1])) for place in (line.split(":") for line in printed.splitlines())
    ]
    assert sorted(lines) == lines
    assert {"a.yaml", "b.yaml"} == {file for file, _ in lines}
    assert 6 <= len(lines)


def test_all_mistakes_are_reported_at_once() -> None:
    """The second mistake must not appear only after the first is fixed."""
    assert 3 == len(mistakes(target="0%", window="1d", colour="blue"))
    several = mistakes(
        window="1d",
        group_by=["zone"],
        labels={"zone": "a"},
        alerting={"name": "Slow"},
        overrides=[{"models": "a", "target": "90%"}],
    )
    for expected in (
        "window: a rolling window",
        "labels the rules set themselves: zone",
        "only custom objectives name their alerts",
        "overrides choose by model",
    ):
        assert 1 == len([mistake for mistake in several if expected in mistake]), several
    assert 4 == len(several)
    custom = mistakes(indicator={"kind": "custom", "error": "rate(a[5m])", "total": "b)"})
    assert ["error is not a counter", "total is not PromQL"] == [
        next(words for words in ("error is not a counter", "total is not PromQL") if words in mistake)
        for mistake in custom
    ]


@pytest.mark.parametrize(
    ("others", "hiding", "noted"),
    [
        pytest.param([], None, ["failures may be hidden: if the backend"], id="nothing is known"),
        pytest.param([{"name": "p", "target": "99%", "indicator": "probe"}], None, [], id="a probe"),
        pytest.param([CLIENTS], None, [], id="counted by the clients"),
        pytest.param([], frozenset(), [], id="no such model"),
        pytest.param(
            [], frozenset("ab"), ["failures may be hidden of a, b: if the backend"], id="models by name"
        ),
        pytest.param(
            [{"name": "p", "target": "99%", "indicator": "probe", "models": ["a"]}],
            frozenset("ab"),
            ["failures may be hidden of b: if the backend"],
            id="a probe of one of them",
        ),
    ],
)
def test_failures_that_nothing_sees_are_noted(
    others: list[dict[str, object]], hiding: frozenset[str] | None, noted: list[str]
) -> None:
    """`errors` alone is 100 % when a Python model answers with errors: check notes it, with a remedy."""
    errors = {"name": "e", "target": "99.9%", "indicator": "errors"}
    reading = read([("o.yaml", yaml.safe_dump({"objectives": [errors, *others]}))])

    by_source = None if hiding is None else {BACKEND_COUNTERS: hiding}
    actual = [
        str(hidden_failure) for hidden_failure in hidden_failures(reading, Surroundings(hiding=by_source))
    ]
    assert len(noted) == len(actual)
    assert all(
        printed in problem and "`indicator: probe`" in problem
        for printed, problem in zip(noted, actual, strict=True)
    )


def test_what_several_notes_share_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every objective is named with its line, and then the explanation and the fix; JSON has a note for each."""
    file = tmp_path / "o.yaml"
    file.write_text(
        "".join(f"---\nname: {name}\ntarget: 99%\nindicator: errors\nmodels: [{name}]\n" for name in "abc")
    )

    assert 0 == main(["check", str(file)])
    shown = capsys.readouterr()
    [note] = shown.err.splitlines()
    named = "; ".join(
        f"{file}:{line}: {name}: failures may be hidden" for line, name in ((4, "a"), (9, "b"), (14, "c"))
    )
    assert note.startswith(f"note: {named}: if the backend answers a request")
    assert "(fix: add an objective that counts such failures" in note
    assert 0 == main(["check", "--json", str(file)])
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert 3 == len(notes)
    assert 1 == len({(note["meaning"], note["fix"]) for note in notes})


def test_rejections_that_no_trace_shows_are_noted() -> None:
    """A queue with a limit and without traces is named by model, for each objective that counts rejections."""
    objectives = [
        {"name": "q", "target": "99%", "indicator": {"kind": "queue", "threshold": "100ms"}},
        {"name": "e", "target": "99%", "indicator": {"kind": "errors", "reasons": ["QUEUE_FULL"]}},
        {"name": "default", "target": "99%", "indicator": "errors"},
    ]
    reading = read([("o.yaml", yaml.safe_dump({"objectives": objectives}))])

    actual = [
        str(hidden_failure)
        for hidden_failure in hidden_failures(reading, Surroundings(hiding={UNTRACED_QUEUE: frozenset("a")}))
    ]
    assert 2 == len(actual)
    for name, problem in zip("qe", actual, strict=True):
        assert f" {name}: rejections may be hidden of a: Triton does not count requests" in problem
        assert "--otlp-listen" in problem
    assert [] == [
        hidden_failure
        for hidden_failure in hidden_failures(reading, Surroundings())
        if "rejections" in str(hidden_failure)
    ], "nothing is known of queues without a Prometheus"


@pytest.mark.parametrize(
    ("text", "options", "printed"),
    [
        ("{name: a, target: 90%, indicator: errors}", (), "tier page_fast can never fire"),
        ("{name: a, target: 99%, indicator: errors}", ("--scrape-interval", "90"), "fewer than 4 scrapes"),
        (
            "{name: a, target: 99%, indicator: errors}",
            ("--retention", "15d"),
            "exceed the retention of Prometheus",
        ),
        (
            "{name: a, target: 99%, indicator: errors, models: [x], overrides: [{models: y, target: 98%}]}",
            (),
            "'y' is not among the objective's models",
        ),
        (
            "{name: a, target: 99%, models: [m], group_by: [route], indicator: {kind: custom, total: t, error: e}}",
            (),
            "models: group_by has no model, so that this does not restrict the query",
        ),
        (
            (
                "{name: a, target: 99%, indicator: errors, "
                "exclusions: [{reason: r, start: 2026-01-01T10:00Z, end: 2099-12-31T09:17Z}]}"
            ),
            (),
            "leaves out 27027 days",
        ),
        (
            "{name: a, target: 99%, indicator: {kind: errors, reasons: [BACKEND, REJECT]}}",
            (),
            "Triton counts no failure as 'REJECT': it would never be bad",
        ),
    ],
)
def test_check_finds_what_prometheus_would_accept(
    text: str, options: tuple[str, ...], printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rules that load and never fire are mistakes, too."""
    file = tmp_path / "o.yaml"
    file.write_text(text)

    assert 1 == main(["check", str(file), *options])
    assert printed in capsys.readouterr().err


def test_the_tiers_that_cannot_fire_at_one_target_are_one_mistake() -> None:
    """A line for each tier and target would hide the other mistakes of a file."""
    overrides = [{"models": "m", "target": "50%"}]
    reading = read([("o.yaml", yaml.safe_dump({**GOOD, "target": "80%", "overrides": overrides}))])

    worst, low = (
        str(finding) for finding in findings(reading, Surroundings()) if "can never fire" in finding.reason
    )
    assert worst.endswith(
        "tiers page_fast, page_slow can never fire at a target of 80%: they need 288%, 120% of events to fail "
        "(14.4, 6 times the budget) (fix: raise the target above 93.06%, or give them a burn under 5)"
    )
    assert "tiers page_fast, page_slow, ticket_fast can never fire at a target of 50%: they need" in low


def test_a_file_that_is_not_text_does_not_hide_the_mistakes_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is one mistake of its file."""
    (tmp_path / "a.yaml").write_text("{name: a, target: 100%, indicator: errors}")
    (tmp_path / "b.yaml").write_bytes(b"name: b\ntarget: \xa6\n")

    assert 1 == main(["check", str(tmp_path)])
    printed = capsys.readouterr()
    assert f"{tmp_path}/a.yaml:1: target: a target must be between" in printed.err
    assert f"{tmp_path}/b.yaml:2: not UTF-8 text (byte 16) (fix: save the file as UTF-8)" in printed.err
    assert "0 objectives in 2 files, 2 mistakes" in printed.out


def test_a_file_that_is_given_twice_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its objectives do not take their own names."""
    file = tmp_path / "o.yaml"
    file.write_text(yaml.safe_dump(GOOD))

    assert 0 == main(["check", str(file), str(tmp_path), f"{tmp_path}/./o.yaml"])
    assert "1 objective in 1 file, 0 mistakes" in capsys.readouterr().out


def test_a_doubt_names_the_line_of_its_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line is not that of the objective's beginning, which may be screens above."""
    file = tmp_path / "o.yaml"
    file.write_text(
        "name: a\ntarget: 99%\ngroup_by: [route]\nmodels: [m]\nindicator:\n  kind: custom\n  total: t\n  error: e\n"
        "---\nname: b\ntarget: 99%\nindicator:\n  kind: latency\n  threshold: 300ms\n"
    )

    assert 1 == main(["check", str(file)])
    printed = capsys.readouterr().err.splitlines()
    note, gap, mistake = printed
    assert note.startswith(f"note: {file}:14: b: threshold 300ms is between the exporter's default buckets")
    assert "" == gap
    assert mistake.startswith(f"{file}:4: a: models: group_by has no model")
    assert "(fix: " in note
    assert "(fix: " in mistake


HEAD = "name: a\ntarget: 99%\nindicator: errors\noverrides:\n"
BERT = "  - {models: {regex: bert-.*}, target: 98%}\n"


@pytest.mark.parametrize(
    ("overrides", "printed"),
    [
        (BERT + "  - {models: [bert-large, bert-base], target: 95%}\n", "6: a: overrides.1: never applies"),
        (
            BERT + "  - {models: [gpt, bert-base], target: 95%}\n",
            "6: a: overrides.1: never applies to bert-base:",
        ),
        (BERT + "  - {models: [bert-a], versions: ['1'], target: 95%}\n", "6: a: overrides.1: never applies"),
        (BERT + "  - {models: {regex: bert-.*}, versions: ['1'], target: 95%}\n", "6: a: overrides.1: never"),
        (
            "  - {versions: ['1'], target: 98%}\n  - {models: [m], versions: ['1'], target: 95%}\n",
            "6: a: overrides.1",
        ),
        (
            "  - {models: [m, n], target: 98%}\n  - {models: [n], target: 95%}\n",
            "6: a: overrides.1: never applies",
        ),
        # A special case above the general one, other models, other versions.
        ("  - {models: [bert-large], target: 95%}\n" + BERT, ""),
        (BERT + "  - {models: [gpt], target: 95%}\n", ""),
        (
            "  - {models: {regex: bert-.*}, versions: ['1'], target: 98%}\n  - {models: [bert-a], target: 95%}\n",
            "",
        ),
    ],
)
def test_an_override_that_earlier_ones_leave_nothing_is_named_with_its_line(
    overrides: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first that matches applies, so the special case must stand above the general one."""
    (tmp_path / "o.yaml").write_text(HEAD + overrides)

    assert bool(printed) == main(["check", str(tmp_path / "o.yaml")])
    message = capsys.readouterr().err
    assert not printed or f"o.yaml:{printed}" in message
    reason = "the override of line 5 applies first (fix: move it above line 5, or drop it)"
    assert bool(printed) == (reason in message)


@pytest.mark.real
def test_a_model_that_nobody_serves_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real Prometheus knows the models; a name that matches none is a slip of the pen, each of its own."""
    file = tmp_path / "o.yaml"
    now = time.time()
    values = history.counter(now - 600, now, 15, 0.0)
    series = [
        (str(state.MODEL_STATE), {"model": model, "version": "1", "state": "ready"}, values)
        for model in ("embedder", "ranker")
    ]
    told = []
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        for models in ("embeder", "embedder, rankr"):
            file.write_text(f"name: a\ntarget: 99%\nindicator: errors\nmodels: [{models}]\n")
            assert 1 == main(["check", str(file), "--prometheus", url])
            told.append(capsys.readouterr().err)

    where = f"{file}:4: a: models"
    assert f"{where}: matches no model that Prometheus knows (fix: did you mean 'embedder'?)" in told[0]
    assert f"{where}: Prometheus knows no model 'rankr' (fix: did you mean 'ranker'?)" in told[1]


@pytest.mark.real
def test_every_group_is_named_whose_source_cannot_carry_an_objective(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known from the exporter's series, before the rules of the objective are loaded anywhere."""
    file = tmp_path / "o.yaml"
    file.write_text("name: fast\ntarget: 99%\nindicator: {kind: latency, threshold: 300ms}\n")
    now = time.time()

    def fed(
        model: str, source: str, error: float | None = None, rate: float = 1.0
    ) -> Iterator[history.Series]:
        own = {"instance": "a", "model": model, "version": "1"}
        always = history.counter(now - 600, now, 15, rate)
        for counted in (state.REQUEST_DURATION.count, triton.REQUEST_SUCCESS):
            yield str(counted), own, always
        yield state.REQUEST_DURATION.bucket, own | {"le": "0.3"}, always
        yield (
            str(state.DISTRIBUTION_SOURCE),
            own | {"signal": "request", "source": source},
            [(at, 1.0) for at, _ in always],
        )
        if error is not None:
            labels = own | {"signal": "request", "le": "0.3"}
            yield str(state.DISTRIBUTION_ERROR), labels, [(at, error) for at, _ in always]

    series = [
        *(row for i in range(5) for row in fed(f"mean{i}", "sampled_mean")),
        *fed("blurred", "decomposed", 0.034),
        *fed("sure", "decomposed", 0.004),
        *fed("traced", "trace"),
        *fed("quiet", "sampled_mean", rate=0.0),
    ]
    with history.serve(history.openmetrics(series), tmp_path / "p") as url:
        assert 0 == main(["check", str(file), "--prometheus", url])

    lines = capsys.readouterr().err.splitlines()
    notes = [line for line in lines if "too uncertain" in line]
    [quiet] = [line for line in lines if "quiet" in line]
    assert quiet.startswith(f"note: {file}:3: fast: no traffic in the last hour: quiet version 1 (fix: ")
    place = f"note: {file}:3: fast: estimated"
    error = "error +-3.4 points; the target allows 1 % to fail"
    means = ", ".join(f"mean{i} version 1" for i in range(5))
    assert 2 == len(notes)
    assert all(
        any(line.startswith(f"{place} ({words}") for line in notes)
        for words in (
            f"sampled_mean), too uncertain for the target: {means}: ",
            f"decomposed), too uncertain for the target: blurred version 1 ({error}): ",
        )
    )
    assert all("(fix: let Triton trace some requests" in line for line in notes)
    assert any("all requests between two samples count with their mean duration" in line for line in notes)
    assert not any("buckets" in line for line in lines)  # this one exists


def test_the_shipped_objectives_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """What the stack ships has no mistake that it warns others of."""
    assert 0 == main(["check", "slo/objectives"])
    assert "4 objectives in 4 files, 0 mistakes" in capsys.readouterr().out


HOSTILE = st.text(min_size=1, max_size=12) | st.sampled_from(
    [
        '"',
        "\\",
        "a\nb",
        "{{ .Value }}",
        "{{",
        "}}",
        "{{ define",
        "'",
        "`",
        "$1",
        "a|b",
        "\x00",
        "\u2028",
        "🙂",
        "#",
        ": ",
        "%q",
    ]
)


@pytest.mark.real
@settings(max_examples=3, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE), min_size=25, max_size=25))
def test_hostile_text_gives_valid_rules_or_a_refusal(rows: list[tuple[str, ...]]) -> None:
    """Quotes, braces, newlines, templates: promtool accepts the rules, or we refused."""
    documents = [
        {
            **GOOD,
            "name": f"n{number}",
            "models": [model, "other"],
            "versions": [label],
            "overrides": [{"models": [owner, model], "versions": [note], "target": "98%"}],
            "indicator": {"kind": "errors", "reasons": [description]},
            "owner": owner,
            "description": description,
            "labels": {"team": label},
            "annotations": {"note": note},
        }
        for number, (model, owner, description, label, note) in enumerate(rows)
    ]
    reading = read(
        [(f"{document['name']}.yaml", yaml.safe_dump(document, allow_unicode=True)) for document in documents]
    )
    assert len(documents) == len(reading.objectives) + len(
        {problem.place.split(":")[0] for problem in reading.problems}
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for artifact in artifacts(reading.objectives, Options()):
            if artifact.part == "rules":
                paths.append(Path(folder, artifact.name))
                paths[-1].write_text(artifact.text, encoding="utf-8")
        for promtool in promtools():
            command: list[str | Path] = [promtool, "check", "rules", *paths]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

            assert 0 == done.returncode, done.stderr


def test_check_writes_what_it_found_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For CI: places, reasons and fixes on standard output, nothing else, with the same exit codes."""
    (tmp_path / "o.yaml").write_text("name: a\ntarget: 0%\nindicator: errors\n")
    assert 1 == main(["check", str(tmp_path / "o.yaml"), "--json"])
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert ("", 1, 0) == (shown.err, document["files"], document["objectives"])
    [mistake] = document["mistakes"]
    assert f"{tmp_path / 'o.yaml'}:2" == mistake["place"]
    assert "target must be" in mistake["reason"]

    (tmp_path / "o.yaml").write_text("name: a\ntarget: 99%\nindicator: {kind: latency, threshold: 1s}\n")
    assert 0 == main(["check", str(tmp_path / "o.yaml"), "--json"])
    assert [] == json.loads(capsys.readouterr().out)["mistakes"]
