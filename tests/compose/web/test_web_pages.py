"""Test the pages Model, Incidents and What if of `tritonwatch web`, on a real Prometheus."""

from __future__ import annotations

import html
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests
import yaml

from support import history, web_fleet
from support.bridge import CHANNEL, body_of
from support.browser import page_on
from support.history import END, Series
from support.loopback import served
from support.thorough import THOROUGH
from support.tools import ROOT
from support.web_fleet import text_of
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.receiver import Instruments, Webhook, listen
from triton_exporter.catalogue import models, state, triton
from triton_exporter.catalogue.external import headroom
from triton_exporter.common.moments import utc_text
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo import names
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.bridge_incidents import BridgeAddress, recorded_incidents
from tritonwatch.cli import main
from tritonwatch.objective_files import ObjectiveFiles
from tritonwatch.web.pages.what_if_page import asked_objective, base_objectives, filled_form
from tritonwatch.web.sources import BridgeReader, PrometheusReader, Sources
from tritonwatch.web.urls import what_if_url

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOUR = 3600
START = END - 12 * HOUR
LOADING = (END - 3 * HOUR, END - 3 * HOUR + 600)
"""Ten minutes in which version 1 of the model loads again."""
FAILED = END - 2 * HOUR
HOSTILE = "<script>alert(1)</script>\"'../../{{7*7}}"
PICTURES = os.environ.get("TRITONWATCH_PICTURES")
"""A folder to which the picture of the documentation is written, if it is set."""


def _every(value: float, since: float = START, until: float = END) -> list[tuple[float, float]]:
    return [(float(at), value) for at in range(int(since), int(until) + 1, 60)]


def _counter(rate: float, slow: float | None = None) -> list[tuple[float, float]]:
    """Return a counter; in the last but one hour it grows by `slow` a second."""
    total, samples = 0.0, []
    for at in range(int(START), int(END) + 1, 60):
        during = END - 2 * HOUR < at <= END - HOUR
        total += 60 * (slow if slow is not None and during else rate)
        samples.append((float(at), total))
    return samples


def _model(name: str, slow: float) -> Iterator[Series]:
    labels = {"job": "tritonwatch", "instance": "triton-0:9400", "model": name, "version": "1"}
    for word in ("ready", "loading"):
        loading = [(at, float((LOADING[0] < at <= LOADING[1]) == (word == "loading"))) for at, _ in _every(0)]
        yield str(state.MODEL_STATE), {**labels, "state": word}, loading
    durations = [(at, 21.5 if at <= LOADING[1] else 34.5) for at, _ in _every(0)]
    yield str(triton.MODEL_LOAD_DURATION_SECS), labels, durations
    failed = {key: value for key, value in labels.items() if key != "version"}
    yield names.FAILED_LOADS, {**failed, "reason": "out_of_memory"}, _every(1, FAILED, FAILED + 120)
    yield str(triton.REQUEST_SUCCESS), labels, _counter(10)
    for metric, micros in (
        (triton.REQUEST_DURATION_US, 40_000),
        (triton.QUEUE_DURATION_US, 10_000),
        (triton.COMPUTE_INFER_DURATION_US, 25_000),
    ):
        yield str(metric), labels, _counter(10 * micros)
    bucket = state.REQUEST_DURATION.bucket
    for le, during in (("0.5", slow), ("1.0", 10.0), ("2.0", 10.0), ("+Inf", 10.0)):
        yield bucket, {**labels, "le": le}, _counter(10, during)
    yield state.REQUEST_DURATION.count, labels, _counter(10)
    yield str(state.DISTRIBUTION_SOURCE), {**labels, "signal": "request", "source": "histogram"}, _every(1)
    yield str(models.MAX_BATCH_SIZE), labels, _every(8)
    for bound, ratio in (("estimate", 2.14), ("least", 1.6)):
        advised = {"model": name, "version": "1", "slo": "latency", "bound": bound}
        yield str(headroom.RATIO), advised, _every(ratio)
    yield names.model_traffic("requests"), {"job": "tritonwatch", "model": name}, _every(12)
    yield names.model_traffic("failures"), {"job": "tritonwatch", "model": name}, _every(3)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Half a day of two models, one with a hostile name, and the objectives of both."""
    series = [*_model("ranker", 8.0), *_model(HOSTILE, 10.0), *web_fleet.objective(END, "latency", "search")]
    for name in ("ranker", HOSTILE):
        series += web_fleet.group(END, "latency", name)
    text = history.openmetrics(series)
    with history.serve(text, tmp_path_factory.mktemp("prometheus"), flags=web_fleet.LOOKBACK) as url:
        yield url


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bridge's folder with a firing page, an ended one of a hostile name, and an old ticket."""
    folder = tmp_path_factory.mktemp("bridge")
    store = Store(folder / DATABASE_FILE, lambda _severity: CHANNEL)
    for model, since, lasted, severity in (
        ("ranker", END - 1800, None, "critical"),
        (HOSTILE, END - 40 * HOUR, 600.0, "critical"),
        ("bert", END - 20 * 24 * HOUR, 7200.0, "warning"),
    ):
        fired = body_of(model, {f"{model}1": since}, {}, severity, group=model)
        store.receive(parse(fired), since + 30)
        if lasted is not None:
            ended = body_of(model, {}, {f"{model}1": (since, since + lasted)}, severity, group=model)
            store.receive(parse(ended), since + lasted + 10)
    store.close()
    return folder


@contextmanager
def _pages(prometheus: str, bridge: Path | BridgeAddress | None = None, every: float = 15.0) -> Iterator[str]:
    with Prometheus(Access(prometheus, timeout_seconds=60)) as client:
        files = ObjectiveFiles(ROOT / "slo" / "objectives")
        with web_fleet.served(Sources(PrometheusReader(client, every), files, bridge_data=bridge)) as url:
            yield url


@pytest.fixture(scope="module")
def site(prometheus: str, bridge: Path) -> Iterator[str]:
    with _pages(prometheus, bridge, every=120.0) as url:
        yield url


def _answered(site: str, path: str, **parameters: object) -> requests.Response:
    return requests.get(site + path, params={"at": END, **parameters}, timeout=60)


def _shown(site: str, path: str, **parameters: object) -> str:
    response = _answered(site, path, **parameters)
    assert 200 == response.status_code, response.text
    return response.text


@pytest.mark.real
def test_a_model_has_its_states_and_its_loads(site: str) -> None:
    """A load with its duration, a failed one with its reason, and the states as a picture with words."""
    page = _shown(site, "/model", model="ranker", last="6h")

    text = text_of(page)
    # The states are read every 90 seconds.
    loaded = re.search(r"2025-10-09 06:1(\d):\d\d UTC version 1 on triton-0:9400 loaded 34\.5s", text)
    assert loaded is not None
    assert int(loaded[1]) < 3
    assert re.search(r"2025-10-09 07:0[0-3]:\d\d UTC triton-0:9400 failed: out of memory", text)
    assert "loading from 2025-10-09 06:0" in html.unescape(page)
    assert "version 1 on triton-0:9400: ready" in text.replace(" : ", ": ")
    # A long view ends at the moment that it is of, too: its last step was 29 minutes before.
    page = _shown(site, "/model", model="ranker", last="7d", at=LOADING[0] + 300)
    assert "version 1 on triton-0:9400: loading" in text_of(page).replace(" : ", ": ")
    assert f"to {utc_text(LOADING[0] + 300)}" == max(re.findall(r"to \d{4}-[-0-9: ]+ UTC", page))


@pytest.mark.real
def test_a_model_has_the_state_that_status_has(
    site: str, prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The objectives of the model are rows of `status --json`; traffic and phases have their values."""
    words = ["status", "--prometheus", prometheus, "--at", str(END), "--model", "ranker", "--json"]
    assert 0 == main(words)
    rows = json.loads(capsys.readouterr().out)["group_statuses"]

    page = _shown(site, "/model", model="ranker")
    assert [row["state"] for row in rows] == re.findall(r'<tr data-state="([^"]*)"', page)
    text = text_of(page)
    assert "Requests per second 12 " in text
    assert "Failed 25.00 %" in text
    assert "compute infer 25ms 62.5 %" in text
    assert "largest batch version 1 8" in text
    assert "Breaks at" in text
    assert "2.1x, at least 1.6x" in text


@pytest.mark.real
def test_a_hostile_name_is_text_on_every_page(site: str) -> None:
    """Markup, quotes, a path and a template in a model's name do nothing."""
    overview = _shown(site, "/", q="script")
    [link] = re.findall(r'<th scope="row"[^>]*><a href="([^"]*)"', overview)
    pages = [
        overview,
        _shown(site, "/model", model=HOSTILE),
        _shown(site, html.unescape(link)),
        _shown(site, "/incidents", last="7d"),
        _shown(site, "/what-if", history="1d", models=f"~{re.escape('<script>')}.*"),
        _answered(site, "/what-if", history="1d", target=HOSTILE).text,
        _answered(site, "/what-if", base=HOSTILE, name=HOSTILE, history="1d").text,
        _answered(site, "/model", model=HOSTILE + "nobody").text,
        _answered(site, "/incidents", q=HOSTILE, kind="page").text,
        _answered(site, "/incidents", kind=HOSTILE).text,
        _answered(site, "/incident", id=HOSTILE).text,
    ]

    for page in pages:
        assert "<script>alert" not in page
        assert "49" not in re.findall(r"\{\{[^}]*\}\}|7\*7=(\d+)", page)
        assert "\"'../" not in page
    assert [True] * 3 == [HOSTILE in html.unescape(page) for page in pages[:3]]


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "parameters", "code"),
    [
        ("/model", {}, 400),
        ("/model", {"model": "nobody"}, 404),
        ("/model", {"model": "ranker", "at": "yesterday"}, 400),
        ("/incident", {"id": "none"}, 404),
    ],
)
def test_what_is_not_there_is_answered_with_its_code(
    site: str, path: str, parameters: dict[str, str], code: int
) -> None:
    """The response is a page with the reason and the way back."""
    response = _answered(site, path, **parameters)

    assert code == response.status_code
    assert 'href="/' in response.text


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "group", "choices"),
    [
        ("/objective", {"slo": "latency", "model": "ranker", "version": "1"}, "1h, 6h, 1d, 7d, 30d, period"),
        ("/model", {"model": "ranker"}, "1h, 6h, 1d, 7d"),
        ("/incidents", {}, "1d, 7d, 30d"),
    ],
)
def test_every_page_over_time_reads_the_same_parameter(
    site: str, path: str, group: dict[str, str], choices: str
) -> None:
    """`last` is the length of time, an empty one is the usual one, and any other is refused with the choices."""
    refused = _answered(site, path, last="3y", **group)

    assert f"last: '3y' is not one of {choices}" in text_of(refused.text)
    assert 400 == refused.status_code
    usual = _shown(site, path, last="", **group)
    assert usual != _shown(site, path, last="1d" if path != "/objective" else "1h", **group)


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "chosen"),
    [("/model", {"model": "ranker", "last": "1d"}), ("/incidents", {"kind": "page"}), ("/", {"q": "ranker"})],
)
def test_the_past_is_named_and_the_link_to_now_keeps_the_rest(
    site: str, path: str, chosen: dict[str, str]
) -> None:
    """The moment in words, for any form in the address; the link leads to the same page without it."""
    page = _shown(site, path, **chosen)
    [link] = re.findall(r'<a href="([^"]*)">Show now', page)

    assert "This is the state at 2025-10-09 09:00:00 UTC, not now." in text_of(page)
    assert f"{path}?{urlencode(chosen)}" == html.unescape(link)
    assert "This is the state" not in _answered(site, path, **chosen | {"at": "x"}).text


@pytest.mark.real
def test_incidents_are_those_of_the_bridge(
    site: str, bridge: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list, one incident and its JSON have what `tritonwatch incidents` has; the folder is only read."""
    before = (bridge / DATABASE_FILE).read_bytes()
    assert 0 == main(["incidents", "--data", str(bridge), "--last", "3650d", "--json"])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert printed == requests.get(f"{site}/api/incidents", timeout=60).json()
    page = _shown(site, "/incidents", last="30d")
    for shown in printed:
        assert f"/incident?id={shown['incident']}" in html.unescape(page)
    assert 3 == page.count("<tr>") - 1
    assert "firing for 30m" in text_of(page)
    assert "bert" not in text_of(_shown(site, "/incidents", last="7d"))
    assert 1 == _shown(site, "/incidents", last="30d", kind="ticket").count("<tr>") - 1
    assert 1 == _shown(site, "/incidents", last="30d", state="firing").count("<tr>") - 1
    for chosen, count in (
        ({"last": "7d"}, 2),
        ({"kind": "ticket"}, 1),
        ({"state": "firing"}, 1),
        ({"q": "bert"}, 1),
    ):
        assert count == len(_answered(site, "/api/incidents", **chosen).json())
    shown = text_of(_shown(site, "/incident", id=printed[1]["incident"]))
    assert "lasted 10m" in shown
    assert "acknowledged by nobody" in shown
    assert before == (bridge / DATABASE_FILE).read_bytes()


@pytest.mark.real
def test_a_bridge_that_cannot_be_read_is_a_banner(prometheus: str, tmp_path: Path) -> None:
    """No folder given, a wrong one, or a broken file: the page shows which."""
    (tmp_path / DATABASE_FILE).write_text("no database")

    for folder, words in (
        (None, "No bridge is known here."),
        (tmp_path / "nothing", "--bridge-data"),
        (tmp_path, "cannot be read"),
    ):
        with _pages(prometheus, folder) as url:
            assert words in text_of(_shown(url, "/incidents"))


@pytest.mark.real
def test_a_bridge_on_another_machine_is_read_at_its_address(
    prometheus: str, bridge: Path, tmp_path: Path
) -> None:
    """The same pages as from its folder; a wrong token, and a bridge that is gone, are a banner over the last."""
    token = tmp_path / "token"
    token.write_text("secret")
    store = Store(bridge / DATABASE_FILE, lambda _severity: CHANNEL)
    webhook = Webhook(store, Instruments(store, time.time), time.time, lambda: None, lambda: "secret")
    receiver = listen(("127.0.0.1", 0), webhook)
    address = BridgeAddress(f"http://127.0.0.1:{receiver.server_address[1]}/", token.read_text)
    with served(receiver):
        with _pages(prometheus, address) as remote, _pages(prometheus, bridge) as local:
            here, there = (_shown(address, "/incidents", last="30d") for address in (local, remote))
            assert here == there
            assert 3 == there.count("<tr>") - 1
        token.write_text("wrong")
        with _pages(prometheus, address) as remote:
            assert "refuses the token (HTTP 401)" in text_of(_shown(remote, "/incidents"))
    store.close()
    with _pages(prometheus, address) as remote:
        assert "is not reachable" in text_of(_shown(remote, "/incidents"))


def test_incidents_that_were_read_stay_under_a_banner() -> None:
    """Once an interval for all viewers; the reason and the age of what is shown come with them."""
    now, answers = [100.0], iter([["first"], ProblemsError(Problem("", "gone")), ["second"]])
    calls = []

    def read() -> Any:
        calls.append(now[0])
        answer = next(answers)
        if isinstance(answer, ProblemsError):
            raise answer
        return answer

    reader = BridgeReader(read, lambda: now[0])
    shown = []
    for now[0] in (100.0, 105.0, 111.0, 112.0, 122.0):
        incidents = reader.incidents()
        shown.append((incidents.value, incidents.problem, incidents.read_at))
    first, gone = (["first"], "", 100.0), (["first"], "gone", 100.0)
    assert [first, first, gone, gone, (["second"], "", 122.0)] == shown
    assert [100.0, 111.0, 122.0] == calls


@pytest.mark.real
def test_another_target_asks_prometheus_nothing(prometheus: str) -> None:
    """A slider that is moved costs no query; another threshold is read once."""
    with _pages(prometheus, every=120.0) as url:
        _shown(url, "/what-if", base="latency", history="1d")
        before = web_fleet.queries(prometheus)
        for changes in ({"target": "99.9"}, {"target": "95", "window": "7d"}, {"window": "month"}):
            _shown(url, "/what-if", base="latency", history="1d", **changes)
        assert before == web_fleet.queries(prometheus)
        for _ in range(2):
            _shown(url, "/what-if", base="latency", history="1d", threshold="500ms")
        assert before < web_fleet.queries(prometheus) <= before + 12


PARAMETERS = {
    "/": ("q", "owner", "slo", "state", "sort", "page", "at"),
    "/api/status": ("at",),
    "/objective?slo=latency&model=ranker&version=1": ("slo", "model", "version", "last", "at"),
    "/model?model=ranker": ("model", "last", "at"),
    "/incidents": ("last", "at"),
    "/incident": ("id",),
    "/report": ("period", "owner", "timezone", "at"),
    "/report.md": ("period",),
    "/what-if?base=latency&history=1d": (
        *("base", "of", "models", "target", "threshold", "window", "history", "at"),
    ),
}
HOSTILE_VALUES = (
    *("", " ", "9" * 400, f"{'9' * 400}x", f"{'9' * 400}s", f"0.{'9' * 400}", "a" * 501, "~" + "a" * 4001),
    *("\0", "\n", "²", "٣", "1e400", "-1e17", "nan", "~((", "~(a+)+b", "../..", "<script>", "2025-01-01"),
)


@pytest.mark.real
@pytest.mark.parametrize("page", PARAMETERS)
def test_no_address_makes_a_page_fail(site: str, page: str) -> None:
    """Whatever a parameter is, the answer is a page, or a 4xx that names the parameter.

    The values are dealt out to the parameters in turn; with `TRITONWATCH_THOROUGH=1` each gets all of them.
    """
    path, _, usual = page.partition("?")
    answers = {
        (name, value[:20]): _answered(site, path, **{**dict(parse_qsl(usual)), name: value}).status_code
        for number, name in enumerate(PARAMETERS[page])
        for value in (HOSTILE_VALUES if THOROUGH else HOSTILE_VALUES[number % 3 :: 3])
    }

    assert [] == [asked for asked, status in answers.items() if status == 500]


@pytest.mark.real
def test_what_if_shows_the_budget_the_alerts_and_the_doubts(site: str) -> None:
    """At half a second a fifth failed for an hour of twelve: 1.7 budgets of 1 %, and one page."""
    page = _shown(site, "/what-if", base="latency", history="1d", threshold="500ms", models="ranker")

    text = text_of(page)
    assert re.search("1 group from 2025-10-08 2[01]:", text)
    assert "1 would have spent its budget." in text
    assert re.search(r"ranker version 1 99\.00% 500ms 7,\d\d\d of 43\d,\d\d\d 1\.6\dx spent", text)
    assert re.search(r"1 page, \d tickets?", text)
    assert re.search("there is data of 12h( 1m)?, and the window has 30d", text)
    assert "100.0%" in text_of(_shown(site, "/what-if", base="latency", history="1d", models="ranker"))


@pytest.mark.real
def test_thresholds_to_choose_are_bounds_of_the_buckets(site: str) -> None:
    """A threshold between two buckets could not be measured; the one in force is marked if it is one."""
    page = _shown(site, "/what-if", base="latency", history="1d")
    thresholds = re.search(r'<select name="threshold".*?</select>', page, re.S)
    assert thresholds is not None
    assert ["500ms", "1s", "2s"] == re.findall(r'<option value="([^"]*)"', thresholds[0])

    between = _answered(site, "/what-if", base="latency", history="1d", threshold="700ms").text
    assert "Prometheus has no series" in text_of(between)


@pytest.mark.real
@pytest.mark.parametrize(
    "changes",
    [
        {"base": "latency", "target": "99.5", "threshold": "500ms", "models": "ranker, other"},
        {"base": "latency", "window": "month"},
        {"base": "latency", "models": "~ranker|n.*", "window": "7d"},
        {"base": "readiness", "target": "99.95"},
    ],
    ids=lambda changes: ",".join(changes),
)
def test_the_objective_is_one_that_check_accepts(
    site: str, changes: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text of the page is a file: `check` finds no mistake, and it is the objective that was asked for."""
    page = _shown(site, "/what-if", history="1d", **changes)
    text = re.search(r'<code id="yaml">(.*?)</code>', page, re.S)
    assert text is not None, text_of(page)
    file = tmp_path / "objective.yaml"
    file.write_text(html.unescape(text[1]))

    assert 0 == main(["check", str(file)]), capsys.readouterr().err
    (written,) = yaml.safe_load(file.read_text())["objectives"]
    assert changes["base"] == written["name"]
    if "target" in changes:
        assert f"{changes['target']}%" == written["target"]
    if "window" in changes:
        assert changes["window"] == written["window"]


@pytest.mark.real
def test_a_mistake_in_the_form_is_named_as_check_names_it(site: str) -> None:
    """The form has what was typed, and no result of another objective is below it."""
    page = _shown(site, "/what-if", base="latency", history="1d", target="101", window="8 days")

    text = text_of(page)
    assert "a target must be between 0% and 100%" in text
    assert "window" in text.split("a target must be")[1]
    assert 'value="101"' in page
    assert "yaml" not in page.split('id="result"')[1]


@pytest.mark.real
def test_an_objective_that_check_refuses_is_marked_beside_its_counts(site: str) -> None:
    """An alert that can never fire counts 0 pages; the reader sees why, and what to change."""
    page = _shown(site, "/what-if", base="latency", history="1d", threshold="500ms", target="90")
    accepted = _shown(site, "/what-if", base="latency", history="1d", threshold="500ms", target="95")

    text = text_of(page)
    above, counts = text.split("Pages and tickets", 1)
    assert "tier page_fast can never fire at a target of 90%: it needs 144% of events to fail" in above
    assert "(fix: raise the target above 93.06%, or give it a burn under 10)" in above
    assert "tritonwatch check rejects this objective (see above)" in counts
    assert "refuses" not in text_of(accepted)


@pytest.mark.real
@pytest.mark.parametrize("path", ["/model?model=ranker", "/incidents?last=30d", "/what-if?history=1d"])
def test_further_viewers_cost_prometheus_nothing(prometheus: str, bridge: Path, path: str) -> None:
    """The first costs 15 queries at most."""
    with _pages(prometheus, bridge, every=120.0) as url:
        counts = []
        for _ in range(3):
            before = web_fleet.queries(prometheus)
            assert 200 == requests.get(f"{url}{path}&at={END}", timeout=60).status_code
            counts.append(web_fleet.queries(prometheus) - before)

    assert counts[0] <= 15
    assert [0, 0] == counts[1:]


@pytest.mark.parametrize(
    "path",
    ["/?q=", "/objective?slo=x", "/model?model=ranker", "/what-if?history=1d", "/report?period=2025-09"],
)
def test_without_prometheus_nothing_is_claimed(path: str) -> None:
    """A banner, and no sentence that calls something missing that could not be read."""
    with _pages("http://127.0.0.1:9") as url:
        response = requests.get(f"{url}{path}", timeout=60)
        text = text_of(response.text)

    assert (503 if path.startswith("/objective") else 200) == response.status_code
    assert "is not reachable" in text
    assert "Nothing has been read yet" in text
    claims = (
        "No request succeeded|No GPU|No load|no series|[Nn]o objective|would have spent|Summary|no record"
    )
    assert not re.search(claims, text.partition("Nothing has been read yet")[2])


@pytest.mark.parametrize("model", ["a, b", "~x.*", "all", " blank", "plain", "a.b"])
def test_a_link_to_what_if_chooses_one_model(model: str) -> None:
    """For any name: a comma separates names, and a tilde begins a pattern, where people write them."""
    query = dict(parse_qsl(urlsplit(what_if_url(model, "latency")).query))
    every = base_objectives(
        [Objective(name="latency", target=0.99, indicator={"kind": "latency", "threshold": "1s"})]
    )
    form = filled_form(query, every)
    actual = asked_objective(form, every["latency"])

    assert isinstance(actual, Objective)
    assert [True, False] == [actual.models.includes(name) for name in (model, f"{model}b")]


@pytest.mark.real
def test_an_objective_that_is_not_known_is_named(site: str) -> None:
    """A link from an objective of other files does not show another objective in silence."""
    page = text_of(_shown(site, "/what-if", base="other", history="1d"))

    assert "There is no objective other here" in page


def _address(site: str, path: str, **parameters: object) -> str:
    return f"{site}{path}?{urlencode({'at': END} | parameters)}"


@pytest.mark.real
@pytest.mark.parametrize("path", ["/model", "/incidents", "/incident", "/what-if"])
def test_everybody_can_use_these_pages(browser: Browser, site: str, bridge: Path, path: str) -> None:
    """axe-core finds nothing serious, nothing is wider than the window, and the browser refuses nothing."""
    name = recorded_incidents(bridge)[0].incident.name
    chosen = {
        "/model": {"model": "ranker"},
        "/incidents": {"last": "30d"},
        "/incident": {"id": name},
        "/what-if": {"base": "latency", "history": "1d", "threshold": "500ms", "models": "~r.*"},
    }[path]
    with page_on(browser) as shown:
        page = shown.open(_address(site, path, **chosen | {"at": "2025-10-09T09:00Z"}))
        if path == "/what-if" and PICTURES:
            page.set_viewport_size({"width": 1280, "height": 1360})
            page.screenshot(path=Path(PICTURES) / "web-what-if.png")

        assert [] == shown.unusable()


@pytest.mark.real
def test_a_slider_shows_the_result_as_it_moves(browser: Browser, site: str) -> None:
    """The page stays, and with it the focus; the address is that of the result."""
    from playwright.sync_api import expect

    with page_on(browser) as shown:
        page = shown.open(_address(site, "/what-if", base="latency", history="1d", threshold="500ms"))
        page.get_by_label("Target in percent, slider").focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")

        expect(page.locator("#yaml")).to_contain_text("target: 99.9%")
        assert "99.9" == page.locator("input[name=target]").input_value()
        assert "target=99.9&" in page.url
        assert "range" == page.evaluate("document.activeElement.type")
        page.select_option("select[name=threshold]", "1s")
        expect(page.locator("#yaml")).to_contain_text("threshold: 1s")
        assert [] == shown.complaints


@pytest.mark.real
def test_without_javascript_the_form_works_by_its_button(browser: Browser, site: str) -> None:
    """Sliders, which need JavaScript, are absent."""
    with page_on(browser, java_script_enabled=False) as shown:
        page = shown.open(_address(site, "/what-if", base="latency", history="1d"))
        assert 0 == page.locator("input[type=range]").count()
        page.locator("input[name=target]").fill("95")
        page.get_by_role("button", name="Compute").click()

        assert "target: 95%" in page.locator("#yaml").inner_text()
        assert page.locator("#copy").is_hidden()


@pytest.mark.real
def test_another_objective_brings_its_own_form(browser: Browser, site: str) -> None:
    """Without a threshold there is no field for one, and the fields of the first do not stay."""
    with page_on(browser) as shown:
        page = shown.open(_address(site, "/what-if", base="latency", history="1d", target="95"))
        page.select_option("select[name=base]", "errors")
        page.wait_for_url("**base=errors**")

        assert 0 == page.locator("[name=threshold]").count()
        assert "99.9" == page.locator("input[name=target]").input_value()
