"""Test `tritonwatch convert` with hostile files: it converts, or prints an error and writes nothing."""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tritonwatch.cli import main

SLOTH = """
version: prometheus/v1
service: shop
labels: {team: a}
slos:
  - name: orders
    objective: 99.9
    labels: {zone: b}
    sli:
      events: {error_query: 'rate(e[{{.window}}])', total_query: 'rate(t[{{.window}}])'}
    alerting:
      name: Shop
      labels: {category: c}
      annotations: {note: d}
      page_alert: {labels: {severity: critical}}
      ticket_alert: {disable: true}
"""
OPENSLO = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: shop, displayName: Shop, labels: {a: b}, annotations: {tritonwatch/objective: '{}'}}
spec:
  description: Orders.
  service: shop
  indicator:
    metadata: {name: orders}
    spec:
      ratioMetric:
        counter: true
        bad: {metricSource: {type: Prometheus, spec: {query: e}}}
        total: {metricSource: {type: Prometheus, spec: {query: t}}}
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.99}]
  alertPolicies:
    - kind: AlertPolicy
      metadata: {name: p}
      spec:
        alertWhenBreaching: true
        conditions:
          - kind: AlertCondition
            metadata: {name: c}
            spec: {severity: page, condition: {kind: burnrate, threshold: 2, lookbackWindow: 1h, alertAfter: 0m}}
"""
JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["{{.window}}", "{{", '"', "a\nb", "1M", "30d", "rate(x[5m])", "SLI", "-1d", "0", "9" * 400]
    )
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
    | st.dates()
)


def paths(value: object, before: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value of a document stands."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [before, *(path for key, child in children for path in paths(child, (*before, key)))]


def changed(document: dict[str, Any], path: tuple[Any, ...], junk: object) -> object:
    """Return the document with one value replaced."""
    if not path:
        return junk
    document = copy.deepcopy(document)
    holder: Any = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = junk
    return document


@given(st.data())
def test_a_document_with_a_wrong_value_is_converted_or_refused_in_words(data: st.DataObject) -> None:
    """Any value replaced by any other: an exit code that is documented, and a reason for every loss."""
    source = data.draw(st.sampled_from(["sloth", "openslo"]))
    document = yaml.safe_load(SLOTH if source == "sloth" else OPENSLO)
    broken = changed(document, data.draw(st.sampled_from(paths(document))), data.draw(JUNK))
    output, printed = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "in.yaml"), Path(folder, "out.yaml")
        file.write_text(yaml.safe_dump(broken), encoding="utf-8")
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(printed):
            code = main(["convert", "--from", source, str(file), "--out", str(out)])
            if code in (0, 3):
                assert 0 == main(["check", str(out)]) or "can never fire" in output.getvalue()

        assert code in (0, 1, 3)
        assert (code == 1) == (not out.exists())
        assert (code == 0) == (
            not any(
                "in.yaml" in splitline or "contain nothing that can be converted" in splitline
                for splitline in output.getvalue().splitlines()
                if not splitline.startswith("note: ")
            )
        )
        assert "Traceback" not in output.getvalue()


def test_a_file_that_expands_without_end_takes_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Aliases of aliases and merges of merges are expanded only where they are read."""
    names = "abcdefghijklmnop"
    lines = ["a: &a {x: 1}"] + [
        f"{new}: &{new} {{<<: [*{old}, *{old}, *{old}, *{old}], l: [*{old}, *{old}, *{old}]}}"
        for old, new in pairwise(names)
    ]
    (tmp_path / "bomb.yaml").write_text(
        "\n".join([*lines, "version: prometheus/v1", "service: s", "slos: *p"])
    )

    assert 1 == main(["convert", "--from", "sloth", str(tmp_path / "bomb.yaml")])
    assert "slos: this should be a list, and is a mapping" in capsys.readouterr().err


@pytest.mark.parametrize("query", ["(" * 50_000 + "x", "x" + "+x" * 1200, "x" + "+x" * 30_000])
def test_a_query_nested_without_end_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], query: str
) -> None:
    """The parser of PromQL recurses, and must not take the process with it."""
    objective = {"name": "a", "target": 0.99, "indicator": {"kind": "custom", "error": query, "total": "x"}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(objective))
    sloth = yaml.safe_load(SLOTH)
    sloth["slos"][0]["sli"] = {"events": {"error_query": query, "total_query": "x"}}
    (tmp_path / "sloth.yaml").write_text(yaml.safe_dump(sloth))

    assert 1 == main(["check", str(tmp_path / "a.yaml")])
    output = capsys.readouterr().err
    assert "longer than 4000 characters" in output or "is not a counter" in output
    assert main(["convert", "--from", "sloth", str(tmp_path / "sloth.yaml")]) in (1, 3)


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage is exit code 2, with the file's name."""
    assert 2 == main(["convert", "--from", "sloth", str(tmp_path / "none.yaml")])
    assert "none.yaml" in capsys.readouterr().err
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\xd8")
    assert 2 == main(["convert", "--from", "openslo", str(tmp_path / "binary.yaml")])
    assert "tritonwatch convert: " in capsys.readouterr().err
    assert 2 == main(["convert", str(tmp_path)])
