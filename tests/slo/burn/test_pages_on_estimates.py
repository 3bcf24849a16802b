"""Test pages on estimated shares: none while the budget may burn only within the error of the estimate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from support.promtool import alerting_rule_file, evaluated
from support.recorded_group import group_labels
from support.thorough import THOROUGH
from support.tools import promtools
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.burn.rule_groups import objective_rules
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from triton_slo.prometheus.client import Sample
from triton_slo.prometheus.remarks import Remarks
from triton_slo.rules.plan import Plan
from triton_slo.verdict.gate import judge
from triton_slo.verdict.group_status import GroupStatus
from triton_slo.verdict.judgement import Firing, GateLimits
from triton_slo.verdict.recorded_status import SELECTOR, group_statuses
from tritonwatch.tables.status_table import caveats, document

HOURS = 3
LE = 'le="0.5"'


def rules(**more: object) -> str:
    """Return the rules of one objective: 99 % within 500 ms."""
    objective = {"name": "o", "target": "99%", "indicator": {"kind": "latency", "threshold": "500ms"}, **more}
    made = artifacts(read([("o.yaml", yaml.safe_dump(objective))]).objectives, Options())
    [text] = [artifact.text for artifact in made if artifact.name == "slo-o.yml"]
    return alerting_rule_file(text, names.WITHIN_ERROR)


def series(
    model: str, slow: float, source: str, error: str = "", *, instance: str = "a", bounds: bool = False
) -> dict[str, str]:
    """Three hours with 1000 requests a minute, of which a share is slow; `error` is the stated error's values."""
    own = f'instance="{instance}", model="{model}", version="1"'
    signal = f'{own}, signal="request"'
    steps = f"x{HOURS * 60}"
    written = {
        f"{state.REQUEST_DURATION.count}{{{own}}}": f"0+1000{steps}",
        f"{state.REQUEST_DURATION.bucket}{{{own}, {LE}}}": f"0+{1000 * (1 - slow):g}{steps}",
        f'{state.DISTRIBUTION_SOURCE}{{{signal}, source="{source}"}}': f"1+0{steps}",
    }
    if error:
        written[f"{state.DISTRIBUTION_ERROR}{{{signal}, {LE}}}"] = error
    if bounds:
        for bound, share in (("least", 0.0), ("most", 0.99)):
            counted = f"0+{1000 * share:g}{steps}"
            written[f'{state.REQUESTS_WITHIN}{{{signal}, {LE}, bound="{bound}"}}'] = counted
    return written


def switched(model: str, slow: float, error: float, after: str) -> dict[str, str]:
    """Return an estimate whose source is another one in the last five minutes, in which no error is stated."""
    before, last = HOURS * 60 - 5, 5
    written = series(model, slow, "decomposed", f"{error}+0x{before} _x{last}")
    signal = f'instance="a", model="{model}", version="1", signal="request"'
    written[f'{state.DISTRIBUTION_SOURCE}{{{signal}, source="decomposed"}}'] = f"1+0x{before} 0+0x{last}"
    written[f'{state.DISTRIBUTION_SOURCE}{{{signal}, source="{after}"}}'] = f"0+0x{before} 1+0x{last}"
    return written


def stated(error: float) -> str:
    return f"{error}+0x{HOURS * 60}"


CASES: dict[str, tuple[dict[str, str], bool]] = {
    "beyond_its_error": (series("beyond_its_error", 0.09, "decomposed", stated(0.02)), True),
    "within_its_error": (series("within_its_error", 0.07, "decomposed", stated(0.02)), False),
    "error_above_share": (series("error_above_share", 0.07, "decomposed", stated(0.3)), False),
    "all_slow": (series("all_slow", 1.0, "decomposed", stated(0.3)), True),
    "exact": (series("exact", 0.07, "trace"), True),
    "no_error_stated": (series("no_error_stated", 0.07, "decomposed"), True),
    "wide_bounds_only": (series("wide_bounds_only", 1.0, "sampled_mean", bounds=True), True),
    "now_means": (switched("now_means", 0.07, 0.02, "sampled_mean"), False),
    "now_exact": (switched("now_exact", 0.07, 0.02, "trace"), False),
    "worst_of_two_servers": (
        series("worst_of_two_servers", 0.07, "decomposed", stated(0.0001))
        | series("worst_of_two_servers", 0.07, "decomposed", stated(0.02), instance="b"),
        False,
    ),
}
"""Series, and whether they justify a page: page_slow fires above 6 %."""


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools() if THOROUGH else promtools()[-1:], ids=str)
def test_an_estimate_pages_only_where_it_burns_beyond_its_error(tool: Path, tmp_path: Path) -> None:
    """Tickets need no more than the estimate; sources without a stated error page as ever."""
    sent = {name: value for made, _ in CASES.values() for name, value in made.items()}
    firing = 'group by (model) (ALERTS{{alertstate="firing", severity="{}"}})'.format
    asked = [(query, HOURS * 3600.0) for query in (firing("critical"), firing("warning"), names.WITHIN_ERROR)]

    pages, tickets, held = (
        {labels["model"] for labels, _ in answer}
        for answer in evaluated(tool, tmp_path, rules(), sent, asked, interval=60, evaluation=60)
    )

    assert {model for model, (_, paged) in CASES.items() if paged} == pages
    assert set(CASES) == tickets
    assert {model for model, (_, paged) in CASES.items() if not paged} <= held


@pytest.mark.parametrize(
    ("indicator", "tiers"),
    [
        ({"kind": "latency", "threshold": "500ms"}, ["page_fast", "page_slow"]),
        ({"kind": "queue", "threshold": "50ms"}, ["page_fast", "page_slow"]),
        ({"kind": "latency", "threshold": "500ms", "source": "slices"}, []),
        ({"kind": "first_response", "threshold": "500ms"}, []),
        ({"kind": "errors"}, []),
        ({"kind": "readiness"}, []),
    ],
    ids=str,
)
def test_only_pages_on_possible_estimates_ask_for_the_error(
    indicator: dict[str, str], tiers: list[str]
) -> None:
    """Tickets, and objectives that no estimate can feed, have no rule for it."""
    objective = Objective.model_validate({"name": "o", "target": 0.99, "indicator": indicator})
    rules = objective_rules(Plan(objective, Options()))

    assert tiers == sorted(rule.labels[names.TIER] for rule in rules if rule.record == names.WITHIN_ERROR)


def test_a_tier_that_only_opens_a_ticket_does_not_ask_for_the_error() -> None:
    """The severity decides, not the tier's name."""
    alerting = {"severities": {"page_fast": "warning", "ticket_slow": "critical"}}
    indicator = {"kind": "latency", "threshold": "500ms"}
    objective = Objective.model_validate(
        {"name": "o", "target": 0.99, "indicator": indicator, "alerting": alerting}
    )
    rules = objective_rules(Plan(objective, Options()))

    asking = {rule.labels[names.TIER] for rule in rules if rule.record == names.WITHIN_ERROR}
    assert {"page_slow", "ticket_slow"} == asking


def burning(tiers: tuple[str, ...], now: float = 15.0) -> GroupStatus:
    """Return a group at 15 times its pace, of which an error of two points makes nothing certain."""
    return GroupStatus(
        "latency",
        "latency",
        {"model": "m", "version": "1"},
        target=0.99,
        threshold_seconds=0.5,
        sli=0.98,
        burn_now=now,
        budget_left=0.6,
        sources=("decomposed",),
        estimate_error=0.02,
        within_error=tiers,
    )


WHY = (
    "but only within the error of the estimate (+-2 points): it raises a ticket if it lasts, and does not page "
    "(page_fast); to fix this, on Triton 26.01"
)


def test_status_reports_why_a_group_that_burns_does_not_page() -> None:
    """In a line below the table, and as tiers in JSON; not for a group that no longer burns."""
    row = burning(("page_fast",))
    lines = [line for line in caveats([row, burning(("page_fast",), now=0.5)]) if "burns" in line]

    assert 1 == len(lines)
    assert lines[0].startswith(f"latency m version 1 burns {WHY}")
    assert ["page_fast"] == json.loads(json.dumps(document([row], 0.0, Remarks())))["group_statuses"][0][
        "within_error"
    ]


@pytest.mark.parametrize(
    ("firing", "begin"),
    [((), "the error budget burns, "), (("ticket_fast",), "the error budget burns: ticket_fast, ")],
)
def test_gate_promotes_no_group_that_only_the_error_saves_from_a_page(
    firing: tuple[str, ...], begin: str
) -> None:
    """The gate promotes no version that may be worth a page, and names what would settle it."""
    alerts = [Firing("warning", tier, group_labels("latency", "m")) for tier in firing]
    [judgement] = judge([burning(("page_fast",))], lambda *_: 10.0, alerts, GateLimits())

    assert "hold" == judgement.verdict
    assert judgement.reason.startswith(f"{begin}current burn rate 15x, {WHY}")


def test_status_reads_which_pages_the_error_suppresses() -> None:
    """The tier is not a label of the group."""
    group = {names.SLO: "o", names.INDICATOR: "latency", "model": "m", "version": "1"}
    samples = [
        Sample({"__name__": names.LAST_SEEN, **group}, 100.0, 100.0),
        *(
            Sample({"__name__": names.WITHIN_ERROR, **group, names.TIER: tier}, 1.0, 100.0)
            for tier in ("b", "a")
        ),
    ]

    [row] = group_statuses(samples)
    assert ({"model": "m", "version": "1"}, ("a", "b")) == (row.group, row.within_error)
    assert names.WITHIN_ERROR in SELECTOR
