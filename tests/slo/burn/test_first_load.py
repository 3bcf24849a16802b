"""Test first loads: the first load of a version is a deployment, the next one an outage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest
import yaml

from support.promtool import evaluated, rule_file
from support.tools import promtools
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read

pytestmark = pytest.mark.real

SCRAPE, END = 15, 9 * 60
ALWAYS, NEVER = "1x40", "0x40"
LOADING = {"loading": ALWAYS, "ready": NEVER, "unavailable": NEVER, "unloaded": NEVER}
UNAVAILABLE = {**LOADING, "loading": NEVER, "unavailable": ALWAYS}
NOT_READY_ONCE = {"unavailable": "1 0x40", "ready": "0 1x40"}
LOADED_TWICE = {  # two minutes of first load, two of serving, one of loading again, four of serving
    "loading": "1x7 0x7 1x3 0x15",
    "ready": "0x7 1x7 0x3 1x15",
}
FAILED = {  # two minutes of first load, three of having failed, four of serving
    "loading": "1x7 0x27",
    "unavailable": "0x7 1x11 0x15",
    "ready": "0x19 1x15",
}
SERVING = {"ready": "1x35", "unavailable": "0x35"}
TWO_MINUTES = "1x7 _x27"


def fleet(model: str, *servers: Mapping[str, str], first_load: str = "", serves: str = "") -> dict[str, str]:
    """Return a model's servers, by what each reports of every state; a probe may know better when it `serves`."""
    written = {}
    for number, states in enumerate(servers):
        who = f'instance="{number}", model="{model}"'
        written[f"{state.MODEL_EXPECTED}{{{who}}}"] = ALWAYS
        who += ', version="1"'
        written[f"{state.MODEL_READY}{{{who}}}"] = serves or states["ready"]
        if first_load and "loading" in states:
            written[f"{state.MODEL_FIRST_LOAD}{{{who}}}"] = first_load
        for name, values in states.items():
            written[f'{state.MODEL_STATE}{{{who}, state="{name}"}}'] = values
    return written


SERIES = {
    **fleet("first load", LOADING, first_load=ALWAYS),
    **fleet("loads again after it served", LOADING),
    **fleet("failed its first load", UNAVAILABLE),
    **fleet("young", NOT_READY_ONCE),
    **fleet("first loads are none", LOADED_TWICE, FAILED, first_load=TWO_MINUTES),
    **fleet("Triton says ready, a probe fails", SERVING, serves="1x7 0x7 1x19"),
    **fleet("both", FAILED, first_load=TWO_MINUTES, serves="0x23 1x11"),
    **fleet("nothing is lost", SERVING),
}
TIERS = f'count by (model) (ALERTS{{alertstate="firing", {names.TIER}!=""}})'
ASKED = {
    "ratio": (f"sum by (model) ({names.sli_error('5m')})", END),
    "alerts": ('count by (model) (count by (model, alertname) (ALERTS{alertstate="firing"}))', END),
    "split": (
        f'sum by (model, {names.CAUSE}) ({names.CAUSE_SHARE}{{{names.INDICATOR}="readiness"}}) > 0',
        END,
    ),
    "tiers at once": (TIERS, SCRAPE),
    "tiers": (TIERS, END),
}
Recorded = Mapping[str, Mapping[str, Mapping[str, float]]]


@pytest.fixture(scope="module", params=promtools(), ids=str)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Question -> model -> cause (or nothing) -> answer: all models are played at once."""
    objectives = read([("o.yaml", "{name: readiness, target: 99.9%, indicator: readiness}")]).objectives
    groups = {
        group["name"]: group["rules"]
        for artifact in artifacts(objectives, Options())
        if artifact.part == "rules"
        for group in yaml.safe_load(artifact.text)["groups"]
    }
    answers = evaluated(
        request.param,
        tmp_path_factory.mktemp("rules"),
        rule_file(groups),
        SERIES,
        list(ASKED.values()),
        interval=SCRAPE,
        evaluation=SCRAPE,
    )
    by_model = {question: defaultdict[str, dict[str, float]](dict) for question in ASKED}
    for question, answer in zip(ASKED, answers, strict=True):
        for labels, value in answer:
            by_model[question][labels["model"]][labels.get(names.CAUSE, "")] = value
    return by_model


def test_a_first_load_burns_nothing(recorded: Recorded) -> None:
    """Nine minutes of a first load are neither an event nor a cause; other ways of not being ready are."""
    splits: dict[str, dict[str, float]] = {
        "first load": {},
        "loads again after it served": {"state:loading": 1.0},
        "failed its first load": {"state:unavailable": 1.0},
    }
    for model, split in splits.items():
        burns = {"": 1.0} if split else {}
        actual = [recorded[question][model] for question in ("ratio", "alerts", "split")]
        assert [burns, burns, split] == actual, model


def test_readiness_asks_a_young_group_for_no_evidence(recorded: Recorded) -> None:
    """One poll of a model that is down fires all tiers when the rules are new; none fires after it serves."""
    assert {"": 4} == recorded["tiers at once"]["young"]
    assert {} == recorded["tiers"]["young"]


def test_lost_time_is_split_by_what_took_it(recorded: Recorded) -> None:
    """Scrapes in each state that is not ready, first loads left out, and in ready where it does not serve."""
    splits: dict[str, dict[str, float]] = {
        "first loads are none": {"state:loading": 0.25, "state:unavailable": 0.75},
        "Triton says ready, a probe fails": {"state:not_answering": 1},
        "both": {"state:not_answering": 0.25, "state:unavailable": 0.75},
        "nothing is lost": {},
    }
    for model, split in splits.items():
        assert split == recorded["split"][model], model
