"""Grafana's HTTP API: the requests that a push needs, with errors a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests

from tritonwatch.command_error import CommandError

Json = dict[str, Any]
_MAX_DASHBOARDS = 5000
"""Results of a search; Grafana gives no more."""


class GrafanaError(CommandError):
    """A push failed; the message is one line with the reason and what to do."""


@dataclass(frozen=True, slots=True)
class StoredDashboard:
    """A dashboard as stored in Grafana."""

    model: Mapping[str, Any]
    folder_uid: str
    provisioned: bool


class Grafana:
    """A client of one Grafana; the token is sent to it alone and never shown."""

    def __init__(self, url: str, token: str, timeout_seconds: float = 15.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Grafana:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def folder_title(self, uid: str) -> str | None:
        """Return the title of the folder with this uid, or None."""
        folder = self._request("GET", f"/api/folders/{uid}", missing=True)
        return None if folder is None else str(folder.get("title", ""))

    def create_folder(self, uid: str, title: str) -> None:
        """Create a folder."""
        self._request("POST", "/api/folders", {"uid": uid, "title": title})

    def rename_folder(self, uid: str, title: str) -> None:
        """Change the title of a folder."""
        self._request("PUT", f"/api/folders/{uid}", {"title": title, "overwrite": True})

    def tagged(self, tag: str, folder_uid: str) -> list[str]:
        """Return the uids of the dashboards in a folder that have a tag."""
        boards = self._request("GET", f"/api/search?type=dash-db&limit={_MAX_DASHBOARDS}&tag={tag}")
        return [str(board["uid"]) for board in boards or () if board.get("folderUid") == folder_uid]

    def delete(self, uid: str) -> None:
        """Delete a dashboard."""
        self._request("DELETE", f"/api/dashboards/uid/{uid}")

    def dashboard(self, uid: str) -> StoredDashboard | None:
        """Return the dashboard with this uid, or None."""
        answer = self._request("GET", f"/api/dashboards/uid/{uid}", missing=True)
        if answer is None:
            return None
        meta = answer.get("meta", {})
        return StoredDashboard(
            answer.get("dashboard", {}), str(meta.get("folderUid", "")), bool(meta.get("provisioned", False))
        )

    def save(self, model: Json, folder_uid: str) -> None:
        """Create or overwrite a dashboard, in a folder."""
        body = {"dashboard": {**model, "id": None}, "folderUid": folder_uid, "overwrite": True}
        self._request("POST", "/api/dashboards/db", {**body, "message": "tritonwatch dashboards push"})

    def _request(self, method: str, path: str, body: Json | None = None, *, missing: bool = False) -> Any:
        try:
            answer = self._session.request(
                method,
                self._url + path,
                json=body,
                timeout=self._timeout,
                # A redirect would be followed with the token; and a login page is not an answer.
                allow_redirects=False,
            )
        except requests.Timeout:
            raise GrafanaError(f"{self._url} did not answer within {self._timeout:g} s") from None
        except requests.RequestException as error:
            raise GrafanaError(
                f"cannot reach {self._url}: {type(error).__name__}; is it the right address?"
            ) from None
        if answer.status_code == 404 and missing:
            return None
        if not answer.ok or answer.is_redirect:
            raise GrafanaError(self._explain(method, path, answer))
        try:
            content = answer.json()
        except ValueError:
            content = None
        if not isinstance(content, dict | list):
            raise GrafanaError(f"{self._url}{path} answered something that is not Grafana's JSON")
        return content

    def _explain(self, method: str, path: str, answer: requests.Response) -> str:
        if answer.status_code == 401:
            return f"{self._url} does not accept the token (401): is it of this Grafana, and not expired?"
        if answer.status_code == 403:
            return (
                f"the token may not {method} {path} (403): give its service account the role Editor, or "
                "dashboards:write, dashboards:create and folders:create"
            )
        if answer.is_redirect:
            return f"{self._url}{path} redirects to {answer.headers.get('Location', '')}: give that address"
        try:
            message = str(answer.json().get("message", ""))
        except (ValueError, AttributeError):
            message = ""
        return f"{self._url}{path} answered {answer.status_code}: {message[:300] or 'no message'}"
