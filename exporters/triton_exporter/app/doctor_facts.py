"""Gather the facts about one Triton that `triton_exporter.doctor.checks` examines."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from triton_exporter.app.features import gpu_parts, triton_client
from triton_exporter.app.settings import DoctorSettings
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.doctor.checks import requests_by_model
from triton_exporter.doctor.finding import Finding, TritonFacts
from triton_exporter.exposition.parse import Exposition, parse
from triton_exporter.exposition.scrape import fetch_metrics
from triton_exporter.http.client import (
    LOGGING_PATH,
    READY_PATH,
    SERVER_PATH,
    STATISTICS_PATH,
    TRACE_SETTING_PATH,
    Client,
    FetchError,
)
from triton_exporter.lifecycle.triton_log import LogTail, standing_failures, start_failure
from triton_exporter.snapshot import Snapshot
from triton_exporter.tracing.trace_setting import TraceSetting, fetch_setting
from triton_exporter.triton.poll import ApiPoller, NoApi

MAX_MODELS = 100
"""Models whose own trace setting is read: those with the most requests."""

_ENDPOINTS = {
    "ready": READY_PATH,
    "metadata": SERVER_PATH,
    "statistics": STATISTICS_PATH,
    "logging": LOGGING_PATH,
    "tracing": TRACE_SETTING_PATH,
}


class _Answers(NamedTuple):
    """Answers of Triton's endpoints, by their names."""

    statuses: dict[str, int]
    documents: dict[str, dict[str, Any]]
    """The JSON objects of the answers that have one."""


def gather(settings: DoctorSettings, watch_seconds: float) -> TritonFacts:
    """Observe one Triton for a while, with requests that only read."""
    api = triton_client(settings, settings.triton)
    metrics = triton_client(settings, settings.metrics_url)
    with closing(api), closing(metrics):
        poller = ApiPoller(api, time.time, lambda _endpoint, _reason: None)
        snapshot = (poller if settings.triton else NoApi(time.time)).poll()
        first, failure = _exposition(metrics)
        if snapshot.api_failure == NOT_TRITON and first is None:
            return TritonFacts(settings.address, settings.metrics_url, snapshot)
        started = time.monotonic()
        answers = _Answers({}, {}) if snapshot.api_failure else _ask(api)
        if first is not None:
            time.sleep(max(0.0, watch_seconds - (time.monotonic() - started)))
        second = _exposition(metrics)[0] if first is not None else None
        watched_seconds = time.monotonic() - started
        traces, model_traces = _trace_settings(api, None if snapshot.api_failure else second)
        return TritonFacts(
            url=settings.address,
            metrics_url=settings.metrics_url,
            snapshot=snapshot,
            statuses=answers.statuses,
            first=first,
            second=second,
            watched_seconds=watched_seconds,
            metrics_failure=failure,
            start_failure=_start_failure(settings.triton_log),
            logging=answers.documents.get("logging", {}),
            traces=traces,
            model_traces=model_traces,
            gpu=_gpu_findings(settings, snapshot, first),
        )


def _gpu_findings(
    settings: DoctorSettings, snapshot: Snapshot, page: Exposition | None
) -> tuple[Finding, ...]:
    now = time.time()
    findings: list[Finding] = []
    for part in gpu_parts(settings):
        # Triton's own series first, because they can be the source; models last, because they need the GPUs.
        if page is not None:
            part.observe(page, now)
        part.poll(now)
        part.observe_snapshot(snapshot)
        findings.extend(part.examine(now))
    return tuple(findings)


def _start_failure(log: Path | None) -> str:
    """Return the error that ended the last start, if the log has one."""
    if log is None:
        return ""
    with closing(LogTail(log)) as tail:
        return start_failure(standing_failures(tail.earlier))


def _ask(api: Client) -> _Answers:
    answers = _Answers({}, {})
    for name, path in _ENDPOINTS.items():
        try:
            answer = api.get(path)
            answers.statuses[name] = answer.status
            content = json.loads(answer.body) if answer.status == 200 and answer.body else None
        except (FetchError, ValueError):
            continue
        if isinstance(content, dict):
            answers.documents[name] = content
    with suppress(FetchError):  # the poll has reported it
        answers.statuses["index"] = api.index().status
    return answers


def _trace_settings(
    api: Client, page: Exposition | None
) -> tuple[TraceSetting | None, Mapping[str, TraceSetting]]:
    """Return the trace setting of all models, and those of models for which another one applies."""
    of_all: TraceSetting | None = None
    of_models: dict[str, TraceSetting] = {}
    if page is None:
        return None, {}
    requests = requests_by_model(page)
    with suppress(FetchError):
        of_all = fetch_setting(api)
        if of_all is None:
            return None, {}
        for model in sorted(requests, key=requests.__getitem__, reverse=True)[:MAX_MODELS]:
            setting = fetch_setting(api, model)
            if setting is not None and _differs(setting, of_all):
                of_models[model] = setting
    return of_all, of_models


def _differs(setting: TraceSetting, of_all: TraceSetting) -> bool:
    """Return whether other requests are traced; counts differ in any case while requests are traced."""
    if not setting.is_in_use or not of_all.is_in_use:
        return setting.is_in_use != of_all.is_in_use
    return setting.rate != of_all.rate


def _exposition(metrics: Client) -> tuple[Exposition | None, str]:
    reading = fetch_metrics(metrics, "", time.time)
    return (parse(reading.body), "") if reading.up else (None, reading.detail)
