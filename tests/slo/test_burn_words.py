"""What burn alerts say, word for word, as the real promtool fills in their templates."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

import pytest
import yaml

from support.files import write
from support.tools import promtools
from triton_exporter.catalogue import model, state, triton
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.indicators import KINDS
from triton_slo.indicators.sources import CAVEATS
from triton_slo.objective.reading import read

pytestmark = pytest.mark.real
SHIPPED = Path(__file__).parents[2] / "slo" / "objectives"
TIERS = {
    "page_fast": ("critical", "1", "1h", "5m"),
    "page_slow": ("critical", "2", "6h", "30m"),
    "ticket_fast": ("warning", "3", "1d", "2h"),
    "ticket_slow": ("warning", "4", "3d", "6h"),
}
WHO = 'instance="triton-0:9095", model="ranker", version="2"'
SLOW = {
    f'{state.REQUEST_DURATION.bucket}{{{WHO}, le="1.0"}}': "0+50x120",
    f'{state.REQUEST_DURATION.bucket}{{{WHO}, le="+Inf"}}': "0+100x120",
    f"{state.REQUEST_DURATION.count}{{{WHO}}}": "0+100x120",
}
"""Half of the requests are too slow."""
BURNS = (
    "Promised for {target} %: {promise}. Over the last {long}, and still over the last {short}, the error budget "
    "of ranker version 2 burned {pace} times faster than it may to last 30d. Nothing of the budget is left."
)


HIDDEN = " Failures may be hidden (backend_counters): " + CAVEATS["backend_counters"].meaning + "."
ESTIMATED = " Estimated (sampled_mean): " + CAVEATS["sampled_mean"].meaning + "."


def source(name: str) -> dict[str, str]:
    """What feeds the histograms of the model's requests."""
    return {f'{state.DISTRIBUTION_SOURCE}{{{WHO}, signal="request", source="{name}"}}': "1+0x120"}


def backend(name: str) -> dict[str, str]:
    """What runs the model."""
    return {f'{model.INFO}{{{WHO}, backend="{name}", platform=""}}': "1+0x120"}


def spent(queue: int, compute: int) -> dict[str, str]:
    """Where the requests' time goes, in percent."""
    return {
        f"{triton.QUEUE_DURATION_US}{{{WHO}}}": f"0+{queue}x120",
        f"{triton.COMPUTE_INFER_DURATION_US}{{{WHO}}}": f"0+{compute}x120",
        f"{triton.REQUEST_DURATION_US}{{{WHO}}}": "0+100x120",
    }


def failing(reason: str) -> dict[str, str]:
    """Half of the requests fail for one reason."""
    return {
        f"{triton.REQUEST_SUCCESS}{{{WHO}}}": "0+50x120",
        f'{triton.REQUEST_FAILURE}{{{WHO}, reason="{reason}"}}': "0+50x120",
    }


@pytest.mark.parametrize(
    ("name", "series", "target", "promise", "pace", "cause", "action"),
    [
        (
            *("latency", SLOW | spent(80, 20), 99, "Requests are answered within one second", "50.0"),
            *("queue 80%, compute_infer 20%", KINDS["latency"].steps_by_cause["^queue$"]),
        ),
        (
            *("latency", SLOW | spent(20, 80), 99, "Requests are answered within one second", "50.0"),
            *("compute_infer 80%, queue 20%", KINDS["latency"].steps_by_cause["^compute"]),
        ),
        (
            *("latency", SLOW, 99, "Requests are answered within one second", "50.0"),
            *("not known", KINDS["latency"].first_step),
        ),
        (
            *("errors", failing("BACKEND") | backend("onnxruntime"), 99.9, "Requests do not fail", "500.0"),
            *("failure:BACKEND 100%", KINDS["errors"].steps_by_cause["^failure:BACKEND$"]),
        ),
        (
            *("errors", failing("REJECTED") | backend("onnxruntime"), 99.9, "Requests do not fail", "500.0"),
            *("failure:REJECTED 100%", KINDS["errors"].steps_by_cause["^failure:REJECTED$"]),
        ),
        (
            *("errors", failing("OTHER") | backend("onnxruntime"), 99.9, "Requests do not fail", "500.0"),
            *("failure:OTHER 100%", KINDS["errors"].first_step),
        ),
    ],
)
def test_a_burn_alert_says_what_why_and_what_to_do(
    name: str,
    series: Mapping[str, str],
    target: float,
    promise: str,
    pace: str,
    cause: str,
    action: str,
    tmp_path: Path,
) -> None:
    """Every label and every text of every tier, on every Prometheus that is here."""
    assert [] == _contradicted(tmp_path, name, series, target, promise, pace, cause, action)


@pytest.mark.parametrize(
    ("name", "series", "caveat"),
    [
        ("latency", SLOW | spent(80, 20) | source("sampled_mean"), ESTIMATED),
        ("latency", SLOW | spent(80, 20) | source("trace"), ""),
        ("errors", failing("BACKEND") | backend("python"), HIDDEN),
        ("errors", failing("BACKEND") | backend("onnxruntime"), ""),
    ],
)
def test_a_burn_alert_names_what_its_source_cannot_see(
    name: str, series: Mapping[str, str], caveat: str, tmp_path: Path
) -> None:
    """Whoever is paged knows that the truth may be worse than the numbers."""
    known = {
        "latency": (99, "Requests are answered within one second", "50.0", "queue 80%, compute_infer 20%"),
        "errors": (99.9, "Requests do not fail", "500.0", "failure:BACKEND 100%"),
    }
    steps = {"latency": "^queue$", "errors": "^failure:BACKEND$"}
    action = KINDS[name].steps_by_cause[steps[name]]

    assert [] == _contradicted(tmp_path, name, series, *known[name], action, caveat)


def _contradicted(
    tmp_path: Path,
    name: str,
    series: Mapping[str, str],
    target: float,
    promise: str,
    pace: str,
    cause: str,
    action: str,
    caveat: str = "",
) -> list[str]:
    """What promtools say against the alert of every tier with these texts."""
    alert = f"Triton{name.capitalize()}BudgetBurn"
    expected = [
        {
            "exp_labels": {
                "slo": name,
                "indicator": name,
                "model": "ranker",
                "version": "2",
                "tier": tier,
                "urgency": urgency,
                "severity": severity,
                "component": "slo",
                "owner": "ml-platform",
            },
            "exp_annotations": {
                "summary": f"ranker version 2: {name} budget burns {pace} times too fast",
                "description": BURNS.format(target=target, promise=promise, long=long, short=short, pace=pace)
                + caveat,
                "cause": cause,
                "action": action,
                "runbook_url": Options().runbook_url.format(alert=alert),
                "dashboard_url": "/d/triton-model?var-model=ranker&var-version=2",
            },
        }
        for tier, (severity, urgency, long, short) in TIERS.items()
    ]

    return contradictions(tmp_path, name, alert, series, expected)


OVERRIDES = """
overrides:
  - models: [ranker]
    target: 99.95%
    threshold: 2500ms
"""


def test_a_page_quotes_the_target_and_threshold_of_the_model(tmp_path: Path) -> None:
    """An override is in force: what the objective promises in general is not what this model broke."""
    series = {name.replace('le="1.0"', 'le="2.5"'): values for name, values in SLOW.items()}
    others = {name.replace("ranker", "other"): values for name, values in SLOW.items()}

    own = described(tmp_path / "own", "latency", series, OVERRIDES)
    general = described(tmp_path / "general", "latency", others, OVERRIDES)

    assert "Promised for ranker version 2 by an override: 99.95 %, threshold 2.5s. " in own
    assert "one second" not in own
    assert "Promised for 99 %: Requests are answered within one second. " in general


def test_bursts_are_not_called_a_burn_that_still_goes_on(tmp_path: Path) -> None:
    """One bad minute in ten holds the alert between the bursts: then the last 5 minutes show no failure."""
    failed = [20 if scrape % 40 < 4 else 0 for scrape in range(400)]
    series = {
        f"{triton.REQUEST_SUCCESS}{{{WHO}}}": counted(100 - one for one in failed),
        f'{triton.REQUEST_FAILURE}{{{WHO}, reason="BACKEND"}}': counted(failed),
    }

    between = described(tmp_path / "between", "errors", series, at="88m")
    during = described(tmp_path / "during", "errors", series, at="82m")

    assert (
        "Over the last 1h, in recurring bursts, the last of them within 10m, the error budget of " in between
    )
    assert "Over the last 1h, and still over the last 5m, the error budget of " in during


def counted(steps: Iterable[int]) -> str:
    """A counter that grows by these steps, as promtool writes values."""
    return " ".join(map(str, accumulate(steps)))


def described(folder: Path, name: str, series: Mapping[str, str], more: str = "", at: str = "30m") -> str:
    """The description of the fastest page on the objective, as the newest promtool fills it in."""
    text = (SHIPPED / f"{name}.yaml").read_text() + more
    reading = read([(f"{name}.yaml", text)])
    assert () == tuple(reading.problems)
    folder.mkdir()
    write([one for one in artifacts(reading.objectives, Options()) if one.part == "rules"], folder)
    never = {
        "eval_time": at,
        "alertname": f"Triton{name.capitalize()}BudgetBurn",
        "exp_alerts": [{"exp_labels": {"none": "expected"}}],
    }
    proof = {
        "rule_files": [str(folder / "rules" / f"slo-{one}.yml") for one in (name, "causes")],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": one, "values": values} for one, values in series.items()],
                "alert_rule_test": [never],
            }
        ],
    }
    (folder / "described.test.yml").write_text(yaml.safe_dump(proof))
    said = run(promtools()[-1], "test", "rules", folder / "described.test.yml")
    texts = re.findall(r'page_fast".*?description="(.*?)", runbook_url', said.stdout + said.stderr, re.DOTALL)
    assert len(texts) == 1, said
    return str(texts[0])


def test_every_first_step_is_a_sentence_and_no_template() -> None:
    """They stand inside templates."""
    texts = [
        *(one.first_step for one in KINDS.values()),
        *(step for one in KINDS.values() for step in one.steps_by_cause.values()),
    ]

    assert [] == [text for text in texts if "{{" in text or not text.endswith(".")]


def contradictions(
    folder: Path, name: str, alert: str, series: Mapping[str, str], expected: list[object]
) -> list[str]:
    """What promtools say against the expected alerts."""
    reading = read((path.name, path.read_text()) for path in sorted(SHIPPED.glob("*.yaml")))
    write([one for one in artifacts(reading.objectives, Options()) if one.part == "rules"], folder)
    proof = {
        "rule_files": [str(folder / "rules" / f"slo-{one}.yml") for one in (name, "causes")],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": one, "values": values} for one, values in series.items()],
                "alert_rule_test": [{"eval_time": "30m", "alertname": alert, "exp_alerts": expected}],
            }
        ],
    }
    (folder / "words.test.yml").write_text(yaml.safe_dump(proof))
    command = ["test", "rules", folder / "words.test.yml"]
    with ThreadPoolExecutor() as side_by_side:
        runs = list(side_by_side.map(lambda binary: run(binary, *command), promtools()))
    assert runs
    return [one.stdout + one.stderr for one in runs if one.returncode]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
