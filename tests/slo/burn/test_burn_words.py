"""Test the exact texts of burn alerts, with templates expanded by the real promtool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.files import write
from support.promtool import promtool
from support.thorough import examples
from support.tools import ROOT, promtools, shared_out
from triton_exporter.catalogue import models, state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.burn.causes import causes_listed, list_of_causes
from triton_slo.generate import artifacts
from triton_slo.indicators import KINDS
from triton_slo.indicators.common.sources import CAVEATS
from triton_slo.objective.reading import read

pytestmark = pytest.mark.real
SHIPPED = ROOT / "slo" / "objectives"
TIERS = {
    "page_fast": ("critical", "1", "1h", "5m"),
    "page_slow": ("critical", "2", "6h", "30m"),
    "ticket_fast": ("warning", "3", "1d", "2h"),
    "ticket_slow": ("warning", "4", "3d", "6h"),
}
WHO = 'instance="triton-0:9095", model="ranker", version="2"'
SLOW = {
    f'{state.REQUEST_DURATION.bucket}{{{WHO}, le="1.0"}}': "0+50x40",
    f'{state.REQUEST_DURATION.bucket}{{{WHO}, le="+Inf"}}': "0+100x40",
    f"{state.REQUEST_DURATION.count}{{{WHO}}}": "0+100x40",
}
"""Half of the requests are too slow."""
BURNS = (
    "Objective: {target} % over 30d ({promise}). In the last {long} and in the last {short}, "
    "the burn rate is above the limit of this alert. The error budget is spent. "
    "The objective has been recorded only for 10m 0s."
)


HIDDEN = " Failures may be hidden (backend_counters): " + CAVEATS["backend_counters"].meaning + "."
ESTIMATED = " Estimated (sampled_mean): " + CAVEATS["sampled_mean"].meaning + "."

OFF_BY_POINTS = " Estimated, +-3.4 points (decomposed): " + CAVEATS["decomposed"].meaning + "."


def source(name: str) -> dict[str, str]:
    """Return what feeds the histograms of the model's requests."""
    return {f'{state.DISTRIBUTION_SOURCE}{{{WHO}, signal="request", source="{name}"}}': "1+0x40"}


def off_by(error: float) -> dict[str, str]:
    """Return what the exporter states about its estimate."""
    return {f'{state.DISTRIBUTION_ERROR}{{{WHO}, signal="request", le="1.0"}}': f"{error}+0x40"}


def backend(name: str) -> dict[str, str]:
    """Return what runs the model."""
    return {f'{models.INFO}{{{WHO}, backend="{name}", platform=""}}': "1+0x40"}


def spent(queue: int, compute: int) -> dict[str, str]:
    """Where the requests' time goes, in percent."""
    return {
        f"{triton.QUEUE_DURATION_US}{{{WHO}}}": f"0+{queue}x40",
        f"{triton.COMPUTE_INFER_DURATION_US}{{{WHO}}}": f"0+{compute}x40",
        f"{triton.REQUEST_DURATION_US}{{{WHO}}}": "0+100x40",
    }


def failing(reason: str) -> dict[str, str]:
    """Half of the requests fail for one reason."""
    return {
        f"{triton.REQUEST_SUCCESS}{{{WHO}}}": "0+50x40",
        f'{triton.REQUEST_FAILURE}{{{WHO}, reason="{reason}"}}': "0+50x40",
    }


@dataclass(frozen=True)
class Case:
    """A model that burns its budget, and the texts of its alerts."""

    model: str
    series: Mapping[str, str]
    causes: str
    caveat: str = ""

    def renamed(self) -> dict[str, str]:
        """Return the series as this model's: all cases of an objective are proven in one run."""
        return {name.replace("ranker", self.model): values for name, values in self.series.items()}


QUEUE = "queue 80%, compute_infer 20%"
BACKEND = "failure:BACKEND 100%"
REJECTED = "failure:REJECTED 100%"
COMPUTE = "compute_infer 80%, queue 20%"
CASES = {
    "latency": (
        Case("queueing", SLOW | spent(80, 20), QUEUE),
        Case("computing", SLOW | spent(20, 80), COMPUTE),
        Case("unexplained", SLOW, ""),
        Case("sampled", SLOW | spent(80, 20) | source("sampled_mean"), QUEUE, ESTIMATED),
        Case(
            "decomposed", SLOW | spent(80, 20) | source("decomposed") | off_by(0.0342), QUEUE, OFF_BY_POINTS
        ),
        Case("traced", SLOW | spent(80, 20) | source("trace"), QUEUE),
    ),
    "errors": (
        Case("broken", failing("BACKEND") | backend("onnxruntime"), BACKEND),
        Case("crowded", failing("REJECTED") | backend("onnxruntime"), REJECTED),
        Case("odd", failing("OTHER") | backend("onnxruntime"), "failure:OTHER 100%"),
        Case("python", failing("BACKEND") | backend("python"), BACKEND, HIDDEN),
    ),
}
PROMISES = {
    "latency": (99, "Requests are answered within one second", "50"),
    "errors": (99.9, "Requests do not fail", "500"),
}
"""The target, the description and how many times too fast the budget burns when half of the requests are bad."""


@pytest.mark.parametrize("name", CASES)
def test_a_burn_alert_names_the_problem_its_cause_and_the_first_step(name: str, tmp_path: Path) -> None:
    """Every label and every text of every tier, and what its source cannot see, on one Prometheus or the other."""
    alert = f"Triton{name.capitalize()}BudgetBurn"
    for tool, cases in shared_out(CASES[name]).items():
        series = {
            name_of_series: values for case in cases for name_of_series, values in case.renamed().items()
        }
        expected = [words(name, alert, case, tier) for case in cases for tier in TIERS]

        assert "" == contradictions(tool, tmp_path, name, alert, series, expected)


def words(name: str, alert: str, case: Case, tier: str) -> dict[str, dict[str, str]]:
    """Return what promtool must find of one tier."""
    target, promise, pace = PROMISES[name]
    severity, urgency, long, short = TIERS[tier]
    burns = BURNS.format(target=target, promise=promise, long=long, short=short)
    return {
        "exp_labels": {
            "slo": name,
            "indicator": name,
            "model": case.model,
            "version": "2",
            "tier": tier,
            "urgency": urgency,
            "severity": severity,
            "component": "slo",
            "stack": "tritonwatch",
            "owner": "ml-platform",
        },
        "exp_annotations": {
            "summary": (
                f"{case.model} version 2: error budget of objective {name} burns at {pace}x the allowed rate"
            ),
            "description": burns + case.caveat,
            "cause": case.causes,
            "action": KINDS[name].all_steps(),
            "runbook_url": Options().runbook_url.format(alert=alert),
            "dashboard_url": f"/d/triton-model?var-model={case.model}&var-version=2",
        },
    }


OVERRIDES = """
overrides:
  - models: [ranker]
    target: 99.95%
    threshold: 2500ms
"""


def test_a_page_quotes_the_target_and_threshold_of_the_model(tmp_path: Path) -> None:
    """An override applies: the model missed its own target, not the general one."""
    series = {name.replace('le="1.0"', 'le="2.5"'): values for name, values in SLOW.items()}
    others = {name.replace("ranker", "other"): values for name, values in SLOW.items()}

    general, own = described(tmp_path, "latency", series | others, OVERRIDES)

    assert "Objective of ranker version 2, by an override: 99.95 % over 30d, threshold 2.5s. " in own
    assert "one second" not in own
    assert "Objective: 99 % over 30d (Requests are answered within one second). " in general


def test_bursts_are_not_called_a_burn_that_still_goes_on(tmp_path: Path) -> None:
    """One bad minute in ten continues the alert between the bursts: then the last 5 minutes have no failure."""
    failed = [20 if scrape % 40 < 4 else 0 for scrape in range(280)]
    series = {
        f"{triton.REQUEST_SUCCESS}{{{WHO}}}": counted(100 - failures for failures in failed),
        f'{triton.REQUEST_FAILURE}{{{WHO}, reason="BACKEND"}}': counted(failed),
    }

    during, between = described(tmp_path, "errors", series, at=("62m", "68m"))

    bursts = "The burn rate over 5m is below the limit, but bursts of failures recur, the latest within 10m."
    assert (False, True) == (bursts in during, bursts in between)


def counted(steps: Iterable[int]) -> str:
    """Return a counter that grows by these steps, as promtool writes values."""
    return " ".join(map(str, accumulate(steps)))


def described(
    folder: Path, name: str, series: Mapping[str, str], more: str = "", at: Sequence[str] = ("10m",)
) -> list[str]:
    """Return the descriptions of the fastest page at these times, model by model, as a promtool fills them in."""
    text = (SHIPPED / f"{name}.yaml").read_text() + more
    reading = read([(f"{name}.yaml", text)])
    assert () == tuple(reading.problems)
    write(
        [artifact for artifact in artifacts(reading.objectives, Options()) if artifact.part == "rules"],
        folder,
    )
    never = [{"exp_labels": {"none": "expected"}}]
    proof = proven(folder, name, f"Triton{name.capitalize()}BudgetBurn", series, dict.fromkeys(at, never))
    printed = promtool(promtools()[-1], "test", "rules", proof)
    return re.findall(
        r'page_fast".*?description="(.*?)", runbook_url', printed.stdout + printed.stderr, re.DOTALL
    )


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.from_regex(r"(?:state:|failure:|)[A-Za-z0-9_.:-]{1,12}", fullmatch=True),
                st.integers(min_value=11, max_value=1000),
            ),
            max_size=5,
            unique_by=(itemgetter(0), itemgetter(1)),
        ),
        min_size=1,
        max_size=9,
    )
)
@examples(3, thorough=60)
def test_a_list_of_causes_is_read_back_as_it_was_recorded(
    tmp_path: Path, splits: Sequence[Sequence[tuple[str, int]]]
) -> None:
    """For any causes that Prometheus lists in an annotation, the bridge has them in their order."""
    asked = 'printf "sort_desc(share{model=%q} > 0.01)" $labels.model | query'
    rule = {"alert": "Burns", "expr": "burn == 1", "annotations": {"cause": list_of_causes(asked)}}
    series = {
        f'share{{model="m{model}", {names.CAUSE}="{cause}"}}': f"{permille / 1000}x2"
        for model, split in enumerate(splits)
        for cause, permille in split
    }
    series |= {f'burn{{model="m{model}"}}': "1x2" for model, _ in enumerate(splits)}
    (tmp_path / "rules").mkdir(exist_ok=True)
    for file in ("words", "causes"):
        groups = [{"name": "words", "rules": [rule]}] if file == "words" else []
        (tmp_path / "rules" / f"slo-{file}.yml").write_text(yaml.safe_dump({"groups": groups}))
    never = [{"exp_labels": {"none": "expected"}}]
    printed = promtool(
        promtools()[-1], "test", "rules", proven(tmp_path, "words", "Burns", series, {"0m": never})
    )
    written = dict(
        re.findall(r'model="m(\d+)"}\s+Annotations:{(?:cause="(.*?)")?}', printed.stdout + printed.stderr)
    )

    for model, split in enumerate(splits):
        largest_first = [cause for cause, _ in sorted(split, key=itemgetter(1), reverse=True)]
        assert largest_first == list(causes_listed(written[str(model)]))


def test_every_first_step_is_a_sentence_and_no_template() -> None:
    """First steps are inserted into templates, which a brace or quote would break."""
    texts = [
        *(kind.first_step for kind in KINDS.values()),
        *(step for kind in KINDS.values() for step in kind.steps_by_cause.values()),
    ]

    assert [] == [text for text in texts if "{{" in text or not text.endswith(".")]


def contradictions(
    tool: Path, folder: Path, name: str, alert: str, series: Mapping[str, str], expected: Sequence[object]
) -> str:
    """Return how promtool's result differs from the expected alerts."""
    reading = read((path.name, path.read_text()) for path in sorted(SHIPPED.glob("*.yaml")))
    write(
        [artifact for artifact in artifacts(reading.objectives, Options()) if artifact.part == "rules"],
        folder,
    )
    proof = proven(folder, name, alert, series, {"10m": expected})
    done = promtool(tool, "test", "rules", proof)
    return done.stdout + done.stderr if done.returncode else ""


def proven(
    folder: Path, name: str, alert: str, series: Mapping[str, str], expected: Mapping[str, Sequence[object]]
) -> Path:
    """Return a file for `promtool test rules`: when which alerts of a name are expected."""
    proof = {
        "rule_files": [str(folder / "rules" / f"slo-{file}.yml") for file in (name, "causes")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": series_name, "values": values} for series_name, values in series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": at, "alertname": alert, "exp_alerts": list(alerts)}
                    for at, alerts in expected.items()
                ],
            }
        ],
    }
    path = folder / "words.test.yml"
    path.write_text(yaml.safe_dump(proof))
    return path
