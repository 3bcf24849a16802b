"""Alertmanager's API v2, as far as on-call needs it: silence, undo, and what still fires.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import requests

from triton_alerts.bridge.incidents.matchers import Matcher

TIMEOUT_SECONDS = 5.0
Read = TypeVar("Read")


class UnreachableError(Exception):
    """Alertmanager did not do it; the message is one line for the one who asked."""


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """One Alertmanager at `url`; `auth` is a user and a password, if it wants them."""

    url: str
    auth: tuple[str, str] | None = None

    def silence(
        self, matchers: Iterable[Matcher], start: float, until: float, by: str, comment: str, known: str = ""
    ) -> str:
        """Create a silence, or move the end of a known one; returns its id."""
        body = {
            "matchers": [
                {"name": one.name, "value": one.value, "isRegex": one.is_regex, "isEqual": True}
                for one in matchers
            ],
            "startsAt": _rfc3339(start),
            "endsAt": _rfc3339(until),
            "createdBy": by,
            "comment": comment,
            **({"id": known} if known else {}),
        }
        return self._asked("POST", "/api/v2/silences", body, lambda answer: str(answer["silenceID"]))

    def unsilence(self, number: str) -> None:
        """End a silence; one that has ended, or that Alertmanager lost, is fine."""
        # Deleting one that is not known is 500 in 0.25 and 404 in 0.33.
        if number in self.silences():
            self._request("DELETE", f"/api/v2/silence/{number}")

    def find_silence(self, comment: str) -> str:
        """Return the id of the silence in force with this comment, or nothing."""
        return self._asked(
            "GET",
            "/api/v2/silences",
            None,
            lambda listed: next(
                (
                    str(one["id"])
                    for one in listed
                    if one["comment"] == comment and one["status"]["state"] != "expired"
                ),
                "",
            ),
        )

    def silences(self) -> dict[str, float]:
        """Return when each silence ends that is in force or will be, by its id."""
        return self._asked(
            "GET",
            "/api/v2/silences",
            None,
            lambda listed: {
                str(one["id"]): _unix(one["endsAt"]) for one in listed if one["status"]["state"] != "expired"
            },
        )

    def firing(self) -> dict[str, float]:
        """Return when each alert that fires started, by fingerprint, silenced and inhibited ones included."""
        return self._asked(
            "GET",
            "/api/v2/alerts",
            None,
            lambda alerts: {str(alert["fingerprint"]): _unix(alert["startsAt"]) for alert in alerts},
        )

    def up_since(self) -> float:
        """When it was started: for a while after, it does not know yet what fires."""
        return self._asked("GET", "/api/v2/status", None, lambda status: _unix(status["uptime"]))

    def _asked(self, method: str, path: str, body: Any, read: Callable[[Any], Read]) -> Read:
        answer = self._request(method, path, body)
        try:
            return read(answer.json())
        except (ValueError, KeyError, TypeError) as error:  # another service, or a proxy's page
            raise UnreachableError(f"{path} did not answer as Alertmanager does") from error

    def _request(self, method: str, path: str, body: Any = None) -> requests.Response:
        try:
            answer = requests.request(
                method, f"{self.url.rstrip('/')}{path}", json=body, auth=self.auth, timeout=TIMEOUT_SECONDS
            )
        except requests.RequestException as error:
            raise UnreachableError(f"Alertmanager does not answer ({type(error).__name__})") from error
        if answer.status_code >= 400:
            raise UnreachableError(
                f"Alertmanager refused ({answer.status_code}): {answer.text.strip()[:200]}"
            )
        return answer


def _unix(moment: object) -> float:
    return datetime.fromisoformat(str(moment)).timestamp()


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
