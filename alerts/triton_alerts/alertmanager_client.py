"""Requests to an Alertmanager or Prometheus, and Alertmanager's API v2: the alerts that fire, and silences.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import requests

from triton_exporter.common.moments import rfc3339
from triton_slo.names import SEVERITY
from triton_slo.server_access import Access, innermost_reason, session_for

T = TypeVar("T")


class ServerError(Exception):
    """The server did not answer, or refused the request; the message is one line without secrets."""


class ReloadableServer:
    """A server called `name`, such as Prometheus. Methods raise ServerError."""

    def __init__(self, name: str, access: Access) -> None:
        self.name = name
        self.access = access
        self.url = access.url.rstrip("/")

    def __str__(self) -> str:
        return f"{self.name} at {self.access.url}"

    def check_ready(self) -> None:
        """Check that the server is ready and accepts the credentials."""
        self.request("GET", "/-/ready")

    def reload(self) -> None:
        """Let the server read its configuration again; it continues with the old one if the new one is wrong."""
        self.request("POST", "/-/reload")

    def ask(self, method: str, path: str, read: Callable[[Any], T], body: Any = None) -> T:
        """Return what `read` makes of the JSON response."""
        response = self.request(method, path, body)
        try:
            return read(response.json())
        except (ValueError, KeyError, TypeError) as error:  # another service, or a proxy's page
            raise ServerError(f"{self} does not answer {path} as {self.name} does") from error

    def request(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Return the response to one request, which must have the status 200."""
        try:
            with session_for(self.access) as session:
                response = session.request(
                    method,
                    self.url + path,
                    json=body,
                    timeout=self.access.timeout_seconds,
                    allow_redirects=False,
                )
        except requests.exceptions.SSLError as error:
            raise ServerError(f"{self} fails TLS ({innermost_reason(error)}); see --ca-file") from error
        except requests.RequestException as error:
            raise ServerError(f"{self} is not reachable: {innermost_reason(error)}") from error
        if response.status_code == 200:
            return response
        reason = " ".join(response.text.split())[:500]
        if response.status_code == 401:
            raise ServerError(f"{self} refuses our credentials; see --user and --password-file")
        if response.status_code == 403 and "ifecycle" in reason:
            raise ServerError(f"{self} cannot be reloaded; start it with --web.enable-lifecycle")
        raise ServerError(
            f"{self} answers HTTP {response.status_code} to {path}" + (f": {reason}" if reason else "")
        )


@dataclass(frozen=True, slots=True)
class ListedAlert:
    """One alert that fires, silenced and inhibited ones included."""

    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def severity(self) -> str:
        return self.labels.get(SEVERITY, "")

    @property
    def model(self) -> str:
        return self.labels.get("model", "")


class Alertmanager(ReloadableServer):
    """One Alertmanager. Methods raise ServerError."""

    def __init__(self, access: Access) -> None:
        super().__init__("Alertmanager", access)

    def alerts(self) -> list[ListedAlert]:
        return self.ask("GET", "/api/v2/alerts", lambda listed: [_listed_alert(alert) for alert in listed])

    def configuration(self) -> str:
        """Return the loaded configuration, with all defaults and without secrets."""
        return self.ask("GET", "/api/v2/status", lambda status: str(status["config"]["original"]))

    def up_since(self) -> float:
        """Return its start time; for some minutes after a start, it does not list all firing alerts."""
        return self.ask("GET", "/api/v2/status", lambda status: _unix(status["uptime"]))

    def silence(
        self,
        matchers: Iterable[Mapping[str, Any]],
        start: float,
        until: float,
        by: str,
        comment: str,
        known: str = "",
    ) -> str:
        """Create a silence from matchers as the API has them, or change the end of a known one; return its id."""
        body = {
            "matchers": list(matchers),
            "startsAt": rfc3339(start, "auto"),
            "endsAt": rfc3339(until, "auto"),
            "createdBy": by,
            "comment": comment,
            **({"id": known} if known else {}),
        }
        return self.ask("POST", "/api/v2/silences", lambda answer: str(answer["silenceID"]), body)

    def silences(self, comment: str = "") -> dict[str, float]:
        """Return when each silence that has not ended will end, by its id; `comment` selects some of them."""
        return self.ask(
            "GET",
            "/api/v2/silences",
            lambda listed: {
                str(silence["id"]): _unix(silence["endsAt"])
                for silence in listed
                if silence["status"]["state"] != "expired" and (not comment or silence["comment"] == comment)
            },
        )

    def unsilence(self, silence_id: str) -> None:
        """End a silence, unless it has ended already or was lost."""
        # Deleting an unknown one is 500 in 0.25 and 404 in 0.33.
        if silence_id in self.silences():
            self.request("DELETE", f"/api/v2/silence/{silence_id}")


def _listed_alert(listed: Mapping[str, Any]) -> ListedAlert:
    return ListedAlert(
        fingerprint=str(listed["fingerprint"]),
        labels=dict(listed["labels"]),
        annotations=dict(listed["annotations"]),
        starts_at=_unix(listed["startsAt"]),
    )


def _unix(moment: object) -> float:
    return datetime.fromisoformat(str(moment)).timestamp()
