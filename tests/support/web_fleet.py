"""Make the recorded series of a fleet, as Prometheus has them, and serve its web pages."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path

import requests

from support.history import Series
from support.recorded_group import group_labels, recorded_group
from triton_exporter.catalogue import state
from triton_exporter.catalogue.external import stack
from triton_exporter.common.duration import DAY, parse_seconds
from triton_exporter.http.web_config import WebConfig
from triton_slo import names
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.objective_files import ObjectiveFiles
from tritonwatch.web.app import create_app
from tritonwatch.web.server import http_server
from tritonwatch.web.sources import Addresses, PrometheusReader, Sources

LOOKBACK = ("--query.lookback-delta=1h",)
"""Flags of a Prometheus whose history ends with the start of the tests: they may take minutes."""
OWNERS = ("search", "speech", "vision")


def group(end: float, slo: str, model: str, *, spent: float = 0.25, now: float = 0.5) -> Iterator[Series]:
    """Return what the rules record of one group: 30 days of its budget, and the present."""
    labels = group_labels(slo, model)
    midnight = end // 86_400 * 86_400
    days = [(midnight - 86_400.0 * day, 1 - spent * (30 - day) / 30) for day in range(30, 0, -1)]
    yield names.PERIOD_BUDGET_REMAINING, labels, days
    yield from recorded_group(
        labels,
        (end - 60, end),
        target=0.99,
        burn=now,
        spent=spent,
        errors={"1h": now * 0.009, "6h": now * 0.005, "3d": now * 0.004},
        source="histogram" if slo != "queue" else "sampled_mean",
    )


def objective(end: float, slo: str, owner: str) -> Iterator[Series]:
    """Return what the rules record of an objective itself."""
    labels = group_labels(slo)
    about = {"owner": owner, "window": "30d", "description": f"99 % of requests meet the {slo} threshold."}
    yield names.PERIOD_DAYS, labels, [(end - 60, 30), (end, 30)]
    # A report counts records at whole five minutes: one of them is after the first of these.
    yield names.INFO, {**labels, **about}, [(end - back, 1) for back in (600, 300, 60, 0)]


def fleet(models: int, end: float) -> Iterator[Series]:
    """Two objectives of as many models: one in 50 is exhausted, one in 25 burns, one in 40 is unknown."""
    for slo, owner in zip(("latency", "queue"), OWNERS, strict=False):
        yield from objective(end, slo, owner)
        for number in range(models):
            model = f"model-{number:04}"
            if number % 40 == 3:
                times = (end - 1200, end - 60, end)
                # The alert is about the model, in all of its objectives.
                reason = "vanished" if slo == "latency" else ""
                yield from recorded_group(group_labels(slo, model), times, target=0.99, unknown=reason)
                continue
            spent, now = (1.2, 3.0) if number % 50 == 1 else (0.4, 2.5) if number % 25 == 2 else (0.1, 0.2)
            yield from group(end, slo, model, spent=spent + number / models / 20, now=now)


def broken(end: float) -> Iterator[Series]:
    """Two servers, one of which has died; a model that the other fails to load for days, and one that only the dead one had.

    The exporter of a third did not answer the last scrape.
    """
    alive, dead, silent = (
        {"job": "triton-exporter", "instance": f"triton-{number}:8000"} for number in (0, 1, 2)
    )

    def now(metric: object, value: float, labels: Mapping[str, str], **more: str) -> Series:
        return str(metric), {**labels, **more}, [(end - 60, value), (end, value)]

    for server in (alive, dead):
        yield now(state.SERVER_LIVE, int(server is alive), server)
        yield now(stack.UP, 1, server)
    yield str(stack.UP), silent, [(end - 75, 1), (end - 60, 1), (end - 45, 0)]
    for server, model, ready in (
        (alive, "ranker", 1),
        (dead, "ranker", 0),
        (dead, "embedder", 0),
        (alive, "broken", 0),
    ):
        yield now(state.MODEL_EXPECTED, 1, server, model=model)
        yield now(state.MODEL_READY, ready, server, model=model, version="1")
        if not ready:
            since = end - (3 * DAY if model == "broken" else 1200)
            yield now(state.MODEL_NOT_READY_SINCE, since, server, model=model, version="1")
    yield now(state.MODEL_READY, 0, alive, model="model-0005", version="1")  # unloaded on purpose
    yield now(state.MODEL_STATE, 1, alive, model="broken", version="1", state="unavailable")
    yield now(state.MODEL_STATE, 1, dead, model="embedder", version="1", state="unknown")
    for reason in state.LOAD_FAILURE_REASONS:
        yield now(
            state.MODEL_LOAD_FAILURES, int(reason == "missing_file"), alive, model="broken", reason=reason
        )
    yield now(f"{names.ALERTS}_FOR_STATE", end - 600, dead, alertname="TritonServerDown")


def missed(end: float) -> Iterator[Series]:
    """Two models whose page fires: one failed until three minutes ago, and spent its budget; the other fails."""
    times = [end - back for back in range(600, -1, -30)]
    alert = {"alertname": "TritonLatencyBudgetBurn", "component": "slo", "severity": "critical"}
    for model, until in (("over", end - 180), ("still", end)):
        labels = group_labels("latency", model)
        yield from recorded_group(
            labels,
            times,
            target=0.99,
            threshold=0.5,
            burn=20.0,
            spent=0.1,
            events=(partial(_until, until), 10.0),
            seen=True,
            source="histogram",
        )
        firing = {**alert, "alertstate": "firing", names.TIER: "page_fast", **labels}
        yield names.ALERTS, firing, [(at, 1.0) for at in times]
    spent = {**alert, "alertname": names.SPENT_ALERT, "severity": "warning", "alertstate": "firing"}
    yield names.ALERTS, {**spent, **group_labels("latency", "over")}, [(end - 60, 1), (end, 1)]


def _until(end: float, at: float) -> float:
    return 2.0 * (at <= end)


def without_times(line: str) -> str:
    """Return what is broken without since when; of a moment that is long ago, the day is told, too."""
    return re.sub(r"\d{4}-\d\d-\d\d", "DAY", re.sub(r"\d\d:\d\d UTC", "HH:MM UTC", line))


def repaired(end: float) -> Iterator[Series]:
    """A model that is ready again, though not for most of the last five minutes: its page still fires."""
    labels = group_labels("readiness", "repaired", "")
    yield from recorded_group(labels, (end - 60, end), target=0.999, burn=600.0, spent=0.1)
    alert = {"alertname": "TritonReadinessBudgetBurn", "component": "slo", "severity": "critical"}
    firing = {**labels, **alert, "tier": "page_fast", "alertstate": "firing"}
    yield names.ALERTS, firing, [(end - 60, 1), (end, 1)]
    server = {"job": "triton-exporter", "instance": "triton-0:8000", "model": "repaired"}
    yield str(state.MODEL_EXPECTED), server, [(end - 60, 1), (end, 1)]
    yield str(state.MODEL_READY), {**server, "version": "1"}, [(end - 60, 1), (end, 1)]


STEP = 300
"""Seconds between two points of the incident's history."""


def incident(end: float, slo: str = "latency", model: str = "ranker") -> Iterator[Series]:
    """Return a month of one group: it failed for an hour, was unknown later, and fails again for half an hour."""
    labels = group_labels(slo, model, "2")
    times = [end - STEP * i for i in range(30 * 86_400 // STEP, -1, -1)]
    failing = [end - 1800 < at or end - 20 * 3600 < at <= end - 19 * 3600 for at in times]
    gone = [end - 9 * 3600 < at <= end - 8 * 3600 for at in times]

    def every(name: str, values: Sequence[float | bool], **more: str) -> Series:
        """Return a series that is absent while the group is unknown."""
        here = [(at, float(value)) for at, value, away in zip(times, values, gone, strict=True) if not away]
        return name, {**labels, **more}, here

    def only(name: str, where: Sequence[bool], **more: str) -> Series:
        return name, {**labels, **more}, [(at, 1.0) for at, value in zip(times, where, strict=True) if value]

    def mean(steps: int) -> list[float]:
        sums = [0, *accumulate(failing)]
        return [(sums[i + 1] - sums[max(0, i + 1 - steps)]) / min(steps, i + 1) for i in range(len(times))]

    spent = [0.1 + 0.4 * i / len(times) + 0.022 * failed for i, failed in enumerate(accumulate(failing))]
    yield every(names.PERIOD_BUDGET_REMAINING, [1 - share for share in spent])
    yield every(names.OBJECTIVE_RATIO, [0.99] * len(times))
    yield every(names.THRESHOLD_SECONDS, [0.5] * len(times))
    yield every(names.ERROR_BUDGET_RATIO, [0.01] * len(times))
    yield every(names.COUNTER_SINCE, [times[0]] * len(times))
    for window in ("5m", "1h", "6h", "1d", "3d"):
        burned = mean(round(parse_seconds(window) / STEP))
        yield every(names.sli_error(window), [0.003 + 0.2 * share for share in burned])
    for event, rates in (
        (names.TOTAL, [20.0] * len(times)),
        (names.ERROR, [0.06 + 4 * share for share in mean(1)]),
    ):
        counter = [*accumulate(rate * STEP for rate in rates)]
        yield every(names.COUNTER, counter, event=event)
        yield every(names.COPY, counter, event=event)
    alert = {
        "alertname": "TritonLatencyBudgetBurn",
        "component": "slo",
        "severity": "critical",
        "alertstate": "firing",
    }
    yield only(names.ALERTS, failing, tier="page_fast", **alert)
    unknown = {"alertname": names.UNKNOWN_ALERT, "model": model, "severity": "critical"}
    yield (
        names.ALERTS,
        {**unknown, "alertstate": "firing"},
        [(at, 1.0) for at, away in zip(times, gone, strict=True) if away],
    )
    yield every(names.SLI_SOURCE, [1] * len(times), source="decomposed")
    yield every(names.ESTIMATE_ERROR, [0.004] * len(times))
    cause = {names.INDICATOR: slo, "model": model, "version": "2"}
    for name, share in (("queue", 0.7), ("compute_infer", 0.25), ("compute_input", 0.05)):
        yield names.CAUSE_SHARE, {**cause, names.CAUSE: name}, [(at, share) for at in times]
    ready = [(at, 1.0) for at in times if end - 21 * 3600 < at <= end - 21 * 3600 + STEP]
    yield (
        names.BECAME_READY,
        {"job": "triton-exporter", "instance": "a:9401", "model": model, "version": "2"},
        ready,
    )
    for edge, count in zip(("0.1", "0.25", "0.5", "1.0", "+Inf"), (30, 60, 85, 98, 100), strict=True):
        of = {"job": "triton-exporter", "instance": "a:9401", "model": model, "version": "2", "le": edge}
        yield state.REQUEST_DURATION.bucket, of, [(at, count * i) for i, at in enumerate(times)]


def queries(prometheus: str) -> int:
    """Return how many queries a Prometheus has answered, as it counts them itself."""
    text = requests.get(f"{prometheus}/metrics", timeout=5).text
    counted = re.findall(
        r'^prometheus_http_requests_total\{.*?handler="/api/v1/query(?:_range)?"\} (\S+)$', text, re.M
    )
    return sum(int(float(count)) for count in counted)


def text_of(page: str) -> str:
    """Return the text of a page, in a line."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))


def states(page: str) -> list[str]:
    """Return the states of the rows of a page, in its order."""
    return [html.unescape(state) for state in re.findall(r'<tr data-state="([^"]*)"', page)]


@contextmanager
def pages(
    prometheus: str, *, objectives: Path | None = None, every: float = 15.0, bridge: Path | None = None
) -> Iterator[tuple[str, PrometheusReader]]:
    """Serve the pages over a Prometheus; yield their address and their reader."""
    with Prometheus(Access(prometheus, timeout_seconds=60)) as client:
        reader = PrometheusReader(client, every)
        sources = Sources(
            reader, ObjectiveFiles(objectives), addresses=Addresses(prometheus), bridge_data=bridge
        )
        with served(sources) as url:
            yield url, reader


@contextmanager
def served(sources: Sources, web: WebConfig | None = None, *, keep_seconds: float = 0.0) -> Iterator[str]:
    """Serve the pages of these sources on a real server; yield the address without the last slash."""
    with http_server(create_app(sources), "127.0.0.1", 0, web, keep_seconds) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join(10)
