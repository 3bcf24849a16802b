"""A Prometheus: queries, answers, and the remarks that the server adds to them."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import requests
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from triton_exporter.common.duration import duration_text
from triton_slo.server_access import Access, innermost_reason, session_for

WARNS = "Prometheus warns: "
"""Beginning of a line with a warning."""
_REMARKED = re.compile(rb'"(?:warnings|infos)"|"isPartial"\s*:\s*true')
"""Found in answers that may have remarks; parsing every answer a second time would take long."""
_PARTIAL = (
    "the answer is partial (isPartial): a part of the storage did not answer, and its series are missing"
)
"""Words of a warning that we add: a vmselect marks such an answer without one."""
_INFO = "PromQL info:"
"""Infos begin so; Thanos has them among its warnings."""
_NOT_A_COUNTER = "metric might not be a counter"
"""An info of newer versions on every rate of a counter of Triton, whose names do not end in _total."""


@dataclass(frozen=True, slots=True)
class Remarks:
    """Remarks that a server adds to its answers: warnings limit them, infos do not. Each is there once."""

    warnings: list[str] = field(default_factory=list)
    infos: list[str] = field(default_factory=list)

    def add(self, other: Remarks) -> None:
        """Add the remarks of another, each once."""
        for mine, theirs in ((self.warnings, other.warnings), (self.infos, other.infos)):
            mine[:] = dict.fromkeys([*mine, *theirs])

    @property
    def lines(self) -> tuple[str, ...]:
        infos = (f"Prometheus notes: {info}" for info in self.infos)
        return (*(f"{WARNS}{warning}" for warning in self.warnings), *infos)


def remarks_of(response: requests.Response) -> Remarks:
    """Return the remarks in an answer; none where there are none, or where it is not JSON."""
    if not _REMARKED.search(response.content):
        return Remarks()
    try:
        body = response.json()
    except requests.RequestException:
        return Remarks()
    warned, infos = _texts(body, "warnings"), _texts(body, "infos")
    warnings = [text for text in warned if not text.startswith(_INFO)]
    infos += [text for text in warned if text.startswith(_INFO)]
    if isinstance(body, dict) and body.get("isPartial") is True:
        warnings.insert(0, _PARTIAL)
    return Remarks(warnings, [info for info in infos if _NOT_A_COUNTER not in info])


def _texts(body: object, kind: str) -> list[str]:
    texts = body.get(kind) if isinstance(body, dict) else None
    return [" ".join(str(text).split())[:300] for text in texts] if isinstance(texts, list) else []


T = TypeVar("T")

MINIMUM_VERSION = (2, 42)
"""The oldest Prometheus that the rules and the queries are tested with."""

MAX_STEPS = 10_000
"""Largest number of steps of one range query: Prometheus refuses more than 11,000."""
_MAX_QUERY = 120
"""Characters of a query in a warning."""


class PrometheusError(Exception):
    """Prometheus gave no usable answer; the message is one line without a secret."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at one moment: labels (the name under `__name__`), value, Unix time in seconds."""

    labels: Mapping[str, str]
    value: float
    at: float


@dataclass(frozen=True, slots=True)
class Series:
    """One series over a range: Unix times in seconds and the values at them."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


def query_ranges(start: float, end: float, step_seconds: float) -> Iterator[tuple[float, float]]:
    """Yield consecutive ranges from `start` to `end` (Unix time), each short enough for one query."""
    reach = step_seconds * (MAX_STEPS - 1)
    while start <= end:
        yield start, min(end, start + reach)
        start += reach + step_seconds


class Prometheus:
    """One Prometheus; close it, or use it as a context manager. Methods raise PrometheusError."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._remarks = Remarks()
        self._collecting = threading.local()
        self._url = access.url.rstrip("/")
        self._session = session_for(access)
        # Refusing comes before following a redirect: custom headers may contain secrets, and requests would carry
        # them to wherever it points.
        self._session.hooks["response"] += [_refuse, self._listen]
        # A command fails at once with the reason; silent retries would hide it.
        self._connect = PrometheusConnect(
            url=self._url,
            session=self._session,
            retry=Retry(0, read=False),
            timeout=access.timeout_seconds,  # type: ignore[arg-type]  # requests takes fractions
        )

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._session.close()

    @property
    def warnings(self) -> list[str]:
        """Warnings beside the answers, such as parts of a Thanos that did not answer."""
        return self._remarks.warnings

    @contextmanager
    def collecting(self) -> Iterator[Remarks]:
        """Collect the remarks on this thread's queries apart: for threads that share this client.

        Collected within another collection, they belong to both.
        """
        outer: Remarks | None = getattr(self._collecting, "remarks", None)
        remarks = self._collecting.remarks = Remarks()
        try:
            yield remarks
        finally:
            self._collecting.remarks = outer
            if outer is not None:
                outer.add(remarks)

    def instant(self, query: str, at: float | None = None) -> tuple[Sample, ...]:
        """Return the value of an instant vector (or scalar) at Unix time `at`, else now.

        NaN and infinite values are left out, with a warning.
        """
        samples = self.instant_with_all(query, at)
        finite = tuple(sample for sample in samples if math.isfinite(sample.value))
        if len(finite) < len(samples):
            self._left_out(query)
        return finite

    def instant_with_all(self, query: str, at: float | None = None) -> tuple[Sample, ...]:
        """Return the same as `instant` with NaN and infinite values, for a reader that shows them as unknown."""
        params = {"timeout": duration_text(self._access.timeout_seconds)}
        if at is not None:
            params["time"] = f"{at:.3f}"
        return self._ask(lambda: _samples_of(self._connect.custom_query(query, params=params)))

    def range(self, query: str, start: float, end: float, step_seconds: float) -> tuple[Series, ...]:
        """Return the values of an expression from `start` to `end` (Unix time, whole seconds), every step.

        NaN and infinite values are left out, with a warning.
        """
        first, last = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC)
        step = f"{step_seconds:g}"
        series = self._ask(lambda: _series_of(self._connect.custom_query_range(query, first, last, step)))
        if all(all(map(math.isfinite, each.values)) for each in series):
            return series
        self._left_out(query)
        return tuple(filter(None, map(_finite, series)))

    def _listen(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._remark(remarks_of(response))

    def _remark(self, remarks: Remarks) -> None:
        collected: Remarks | None = getattr(self._collecting, "remarks", None)
        (self._remarks if collected is None else collected).add(remarks)

    def _left_out(self, query: str) -> None:
        self._remark(Remarks([f"values that are not finite numbers are left out: {_shortened(query)}"]))

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except requests.RequestException as error:
            raise PrometheusError(_transport_fault(self._access, error)) from error
        except _RefusedError as refusal:
            raise PrometheusError(self._explain(refusal)) from refusal
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PrometheusError(_not_prometheus(self._access)) from error

    def _explain(self, refusal: _RefusedError) -> str:
        where = f"Prometheus at {self._url}"
        if refusal.status in (401, 403):
            return f"{where} refuses our credentials (HTTP {refusal.status}); see --token-file and --header"
        if refusal.timed_out:
            return (
                f"{where} is too slow: {refusal.reason}; try a longer --timeout or load the recording rules"
            )
        if refusal.status in (400, 422) and refusal.reason:
            version = self._version()
            if version and version < MINIMUM_VERSION:
                running, needed = (".".join(map(str, pair)) for pair in (version, MINIMUM_VERSION))
                return (
                    f"{where} is too old: {running}, needed {needed} or newer (its answer: {refusal.reason})"
                )
            return f"{where} refuses the query: {refusal.reason}"
        if refusal.status == 404 and not refusal.reason:
            return f"{self._url} has no Prometheus API (HTTP 404); is a path missing, such as /prometheus?"
        if 300 <= refusal.status < 400:
            return f"{self._url} redirects elsewhere; give the final address (credentials are not sent along)"
        return f"{where} answers HTTP {refusal.status}" + (f": {refusal.reason}" if refusal.reason else "")

    def _version(self) -> tuple[int, int] | None:
        """Return major and minor version of a Prometheus; None of another server, which counts its own versions."""
        try:
            answer = self._session.get(
                f"{self._url}/api/v1/status/buildinfo", timeout=self._access.timeout_seconds
            )
            build = answer.json()["data"]
            match = re.match(r"v?([1-9]\d*)\.(\d+)", str(build["version"]))
        except (requests.RequestException, _RefusedError, KeyError, TypeError):
            return None
        # Thanos is at version 0, VictoriaMetrics reports a version alone, and Mimir names itself.
        other = "revision" not in build or "application" in build
        return None if match is None or other else (int(match[1]), int(match[2]))


class _RefusedError(Exception):
    """An answer that is not 200."""

    def __init__(self, status: int, reason: str, timed_out: bool) -> None:
        super().__init__(status, reason)
        self.status, self.reason, self.timed_out = status, reason, timed_out


def _refuse(response: requests.Response, *_: Any, **__: Any) -> None:
    """Turn an answer that is not 200 into a _RefusedError, with Prometheus' own words where it has some."""
    if response.status_code == 200:
        return
    try:
        body = response.json()
        reason, kind = str(body["error"]), str(body.get("errorType", ""))
    except (requests.RequestException, KeyError, TypeError, AttributeError):
        reason, kind = "", ""
    timed_out = response.status_code == 504 or kind == "timeout" or "timed out" in reason
    raise _RefusedError(response.status_code, " ".join(reason.split())[:300], timed_out)


def _samples_of(result: Sequence[Any]) -> tuple[Sample, ...]:
    if result and not isinstance(result[0], dict):  # a scalar is one pair
        return (Sample({}, float(result[1]), float(result[0])),)
    return tuple(Sample(row["metric"], float(row["value"][1]), float(row["value"][0])) for row in result)


def _series_of(result: Sequence[Any]) -> tuple[Series, ...]:
    return tuple(
        # Two lists: zip(*values) makes an iterator of each of thousands of pairs, and takes eight times as long.
        Series(
            row["metric"],
            tuple([float(at) for at, _ in row["values"]]),
            tuple([float(value) for _, value in row["values"]]),
        )
        for row in result
    )


def _finite(series: Series) -> Series | None:
    points = [
        (at, value) for at, value in zip(series.times, series.values, strict=True) if math.isfinite(value)
    ]
    return Series(series.labels, *map(tuple, zip(*points, strict=True))) if points else None


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MAX_QUERY else f"{words[:_MAX_QUERY]}..."


def _not_prometheus(access: Access) -> str:
    return f"{access.url} does not answer as Prometheus does; is it another server, or a login page?"


def _transport_fault(access: Access, error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.JSONDecodeError):
        return _not_prometheus(access)
    if isinstance(error, requests.Timeout):
        waited = f"{access.timeout_seconds:g} s"
        return f"Prometheus at {access.url} is too slow: no answer within {waited}; try --timeout"
    if isinstance(error, requests.exceptions.SSLError):
        return (
            f"Prometheus at {access.url} fails TLS: {innermost_reason(error)}; see --ca-file and --cert-file"
        )
    return f"Prometheus at {access.url} is not reachable: {innermost_reason(error)}"
