"""Test `tritonwatch convert --from sloth`: the result is checked, generated and loaded by every promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.conversion import SLOTH, convert, converted
from support.tools import promtools
from triton_slo.artifact import Options
from triton_slo.convert import queries
from triton_slo.indicators import Custom
from triton_slo.plan import Plan
from triton_slo.rules import groups
from tritonwatch.cli import main

PAGED = """\
    alerting:
      name: CheckoutFails
      labels: {team: payments}
      annotations: {summary: 'Orders fail in {{ $labels.region }}'}
      page_alert:
        labels: {severity: info, channel: '#pay'}
      ticket_alert:
        disable: true
  - name: speed
    objective: 99
    sli:
      events:
        error_query: sum by (region) (rate(slow_total[{{.window}}]))
        total_query: sum by (region) (rate(orders_total[{{.window}}]))
"""


def test_what_can_be_expressed_comes_whole(tmp_path: Path) -> None:
    """The exit code is 0, and every query has the same meaning."""
    assert 0 == convert("sloth", tmp_path, SLOTH)

    (objective,) = converted(tmp_path).values()
    assert ("checkout-orders", 0.999, "30d") == (objective.name, objective.target, objective.window.nominal)
    assert Custom(error='orders_total{outcome="failed"}', total="orders_total") == objective.indicator
    assert ((), {"service": "checkout"}, "Orders are taken.") == (
        objective.group_by,
        objective.labels,
        objective.description,
    )


def test_what_is_lost_is_reported_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each loss has file, line, field, reason and replacement; the exit code shows that there are some."""
    assert 3 == convert("sloth", tmp_path, SLOTH + PAGED + "    colour: blue\n")

    printed = capsys.readouterr().err
    source = tmp_path / "in.yaml"
    assert (
        f"{source}:14: slos[0].alerting.annotations.summary: annotations are never run as templates"
        in printed
    )
    assert (
        f"note: {source}:14: slos[0].alerting.annotations.summary: alerts write the annotation summary"
        in printed
    )
    assert f"{source}:25: slos[1].colour: not known, or of no use here; instead: left out" in printed
    assert all("instead: " in line for line in printed.splitlines() if line.startswith(str(source)))
    objectives = converted(tmp_path)
    orders = objectives["checkout-orders"]
    assert ["page_fast", "page_slow"] == [tier.name for tier in orders.alerting.tiers]
    assert {"page_fast": "info", "page_slow": "info"} == orders.alerting.severities
    assert {key: {"channel": "#pay"} for key in ("page_fast", "page_slow")} == orders.alerting.labels
    assert "CheckoutFails" == orders.alerting.name
    assert ("region",) == objectives["checkout-speed"].group_by


@pytest.mark.real
@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_what_comes_out_passes_check_generate_and_promtool(tmp_path: Path, promtool: Path) -> None:
    """A converted file is as good as one written by hand."""
    assert 3 == convert("sloth", tmp_path, SLOTH + PAGED)

    folder, out = tmp_path / "objectives", tmp_path / "out"
    assert 0 == main(["check", str(folder)])
    assert 0 == main(["generate", "--objectives", str(folder), "--out", str(out)])
    rules = sorted((out / "rules").glob("slo-checkout-*.yml"))
    assert 2 == len(rules)
    subprocess.run([promtool, "check", "rules", *rules], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a: [", "in.yaml:2: not YAML"),
        ("", "in.yaml: is empty"),
        ("- a", "in.yaml:1: this should be a mapping, and is a single value"),
        (
            "apiVersion: openslo/v1\nkind: SLO",
            "in.yaml:1: apiVersion: 'openslo/v1' is neither Sloth's prometheus/v1 nor",
        ),
        ("service: a\nslos: []", "in.yaml:1: the required field version is missing"),
        ("version: prometheus/v2\nservice: a\nslos: []", "in.yaml:1: version: 'prometheus/v2' is neither"),
        (SLOTH + "service: b\n", "in.yaml:11: the key 'service' is written twice"),
        (SLOTH.replace("99.9", "much"), "in.yaml:5: slos[0].objective: this should be a number"),
        (SLOTH.replace("99.9", ".nan"), "in.yaml:5: slos[0].objective: this should be a number"),
        (SLOTH.replace("99.9", "100"), "in.yaml:5: slos[0].objective: a target must be between"),
        (SLOTH.replace('failed"}[', 'failed"}}['), "in.yaml:9: slos[0].sli.events.error_query: not PromQL"),
        (SLOTH.replace("[{{ .window }}]", "[{{ .w }}]"), "the template {{ .w }} is not known"),
        (SLOTH.replace("name: orders", "name: '{{}}'").replace("checkout", "+"), "nothing of '+-{{}}'"),
        # Failures of a model are no share of the events of all models.
        (
            SLOTH.replace("sum(rate(orders_total{", "sum by (model) (rate(orders_total{"),
            "failed events are summed by model, and all events by nothing",
        ),
        ("version: prometheus/v1\nservice: s\nslos: []\n", "in.yaml:3: slos: holds no SLO"),
        ("a: &a [*a]\nversion: *a", "in.yaml:2: version: this should be a text, and is a list"),
    ],
)
def test_bad_input_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, printed: str
) -> None:
    """For input that cannot be parsed nothing is written."""
    assert 1 == convert("sloth", tmp_path, text)

    assert printed in capsys.readouterr().err
    assert not (tmp_path / "objectives").exists()


def test_anchors_and_several_documents_are_read(tmp_path: Path) -> None:
    """YAML's own abbreviations mean what they mean."""
    merged = SLOTH.replace("slos:\n  - name", "slos:\n  - &a\n    name") + "  - <<: *a\n    name: again\n"

    assert 0 == convert("sloth", tmp_path, merged + "---\n" + SLOTH.replace("checkout", "cart"))
    assert {"checkout-orders", "checkout-again", "cart-orders"} == set(converted(tmp_path))


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    """A file that is there stays as it is."""
    assert 0 == convert("sloth", tmp_path, SLOTH)
    assert 2 == convert("sloth", tmp_path, SLOTH + PAGED)
    assert ["checkout-orders"] == list(converted(tmp_path))
    assert 3 == convert("sloth", tmp_path, SLOTH + PAGED, "--force")
    assert ["checkout-orders", "checkout-speed"] == list(converted(tmp_path))
    assert ["converted.yaml"] == [path.name for path in (tmp_path / "objectives").iterdir()]


@pytest.mark.parametrize(
    ("query", "expected", "group_by"),
    [
        ('x{a="b\\"[5m]"}', 'x{a="b\\"[5m]"}', ()),
        ("sum by (a) (rate(x[{{.window}}]))", "x", ("a",)),
        ('(sum by (a, b) (increase(x{c=~"5.."}[{{ .window }}])))', 'x{c=~"5.."}', ("a", "b")),
        ("sum(rate(x[5m]) or rate(y[5m]))", "x or y", ()),
        ("sum(rate(x[{{.window}}])) or vector(0)", "x", ()),
        (
            'sum(rate(h_count[5m])) - sum(rate(h_bucket{le="1"}[5m]))',
            'h_count - ignoring (le) h_bucket{le="1"}',
            (),
        ),
        ('sum(rate(x[5m])) - sum(rate(x{code!~"5.."}[5m]))', 'x unless x{code!~"5.."}', ()),
    ],
)
def test_a_rate_of_a_counter_becomes_the_counter(
    query: str, expected: str, group_by: tuple[str, ...]
) -> None:
    """Rules add up its growth themselves."""
    assert queries.Counter(expected, group_by) == queries.counter(query)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("max(rate(x[{{.window}}]))", "max is not a sum of events"),
        ("sum without (a) (rate(x[5m]))", "write by which labels instead"),
        ("sum(rate(x[5m])) / sum(rate(y[5m]))", "`/` of two is none"),
        ("sum(rate(x[5m]) - rate(y[5m]))", "`-` of two is none"),
        ("sum(avg_over_time(x[5m]))", "avg_over_time() is not a counter"),
        ("sum(rate((x)[5m:1m]))", "a subquery is not a counter"),
        ("sum(x offset 5m)", "not a counter of now"),
    ],
)
def test_what_is_no_counter_is_refused_with_the_reason(query: str, reason: str) -> None:
    """Differences, averages and ratios cannot be counted once each."""
    with pytest.raises(queries.QueryError, match=re.escape(reason)):
        queries.counter(query)


def test_good_events_are_what_the_total_has_besides() -> None:
    """Of the same counter, or of a histogram; the difference of two others is no counter."""
    assert 'x_total unless x_total{code!~"5.."}' == queries.failures('x_total{code!~"5.."}', "x_total").text
    assert 'h_count - ignoring (le) h_bucket{le="1"}' == queries.failures('h_bucket{le="1"}', "h_count").text
    with pytest.raises(queries.QueryError, match="count the failed events instead"):
        queries.failures("good_total", "all_total")


KUBERNETES = """\
apiVersion: sloth.slok.dev/v1
kind: PrometheusServiceLevel
metadata: {name: slos, namespace: monitoring}
spec:
  service: checkout
  labels: {owner: payments, tier: "2"}
  slos:
    - name: orders
      objective: 99.9
      sli:
        events:
          errorQuery: sum(rate(orders_total{outcome="failed"}[{{.window}}]))
          totalQuery: sum(rate(orders_total[{{.window}}]))
      alerting:
        name: OrdersFail
        labels: {category: availability}
        pageAlert:
          labels: {severity: pageteam, routing_key: payments}
        ticketAlert:
          labels: {severity: slack, slack_channel: "#payments"}
          annotations: {note: not at night}
"""


def test_the_kubernetes_form_keeps_what_routes_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alert names and the labels of pages and of tickets stay; what the rules set themselves gets another name."""
    assert 0 == convert("sloth", tmp_path, KUBERNETES)

    notes = capsys.readouterr().err
    assert all(line.startswith("note: ") for line in notes.splitlines())
    assert (
        "pageAlert.labels.severity: the rules set the label severity themselves: kept as original_sev"
        in notes
    )
    (objective,) = converted(tmp_path).values()
    assert ("checkout-orders", "payments", "OrdersFail") == (
        objective.name,
        objective.owner,
        objective.burn_alert,
    )
    assert {"service": "checkout", "original_tier": "2", "category": "availability"} == objective.labels
    rules = {
        rule.labels["tier"]: rule
        for group in groups(Plan(objective, Options()))
        for rule in group.rules
        if "tier" in rule.labels
    }
    assert {"OrdersFail"} == {rule.alert for rule in rules.values()}
    page, ticket = rules["page_fast"], rules["ticket_slow"]
    assert ("critical", "pageteam", "payments") == tuple(
        page.labels[name] for name in ("severity", "original_severity", "routing_key")
    )
    assert ("#payments", "not at night") == (ticket.labels["slack_channel"], ticket.annotations["note"])
    assert {"routing_key", "slack_channel"} & (page.labels.keys() ^ ticket.labels.keys())
    assert "note" not in page.annotations
