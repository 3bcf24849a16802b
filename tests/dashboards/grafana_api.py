"""Serve Grafana's folder and dashboard API: status codes and refusals as in its source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests

from support.loopback import Handler, HttpServer, served
from support.panels import fill

TOKEN = "glsa_right"  # of the stand-in


@dataclass
class State:
    """The content of the stand-in, and every request it received."""

    folders: dict[str, str] = field(default_factory=dict)
    dashboards: dict[str, dict[str, Any]] = field(default_factory=dict)
    folder_of: dict[str, str] = field(default_factory=dict)
    provisioned: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    broken: str = ""
    anonymous: bool = False
    """Visitors need no token."""
    prometheus: str = ""
    """Where the data source asks; without it, the data source is not healthy."""
    angular: bool = False
    """Take the first panel of a dashboard for an Angular one, as 13 does with one that has unknown keys."""
    requests: list[tuple[str, str]] = field(default_factory=list)

    def writes(self) -> list[tuple[str, str]]:
        """Return requests that change something."""
        return [request for request in self.requests if request[0] != "GET"]


@contextmanager
def grafana() -> Iterator[tuple[str, State]]:
    """Serve on loopback; yields the address and the state."""
    state = State()

    class Grafana(Handler):
        def _refused(self) -> bool:
            state.requests.append((self.command, self.path))
            if state.broken == "login":
                self.reply("", 302, {"Location": "/login"})
            elif state.broken == "html":
                self.reply("<html>not Grafana</html>")
            elif not state.anonymous and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.reply({"message": "Invalid API key"}, 401)
            elif f"{self.command} {self.path}" in state.forbidden:
                self.reply({"message": "You'll need additional permissions"}, 403)
            else:
                return False
            return True

        def do_GET(self) -> None:
            if self._refused():
                return
            if self.path.startswith("/api/datasources/uid/prometheus/"):
                self._data_source(self.path.removeprefix("/api/datasources/uid/prometheus/"))
                return
            uid = self.path.rsplit("/", 1)[1]
            if self.path.startswith("/api/search?"):
                asked = dict(parse_qsl(urlsplit(self.path).query))
                tagged = [
                    {"uid": key, "folderUid": state.folder_of.get(key, "")}
                    for key, dashboard in state.dashboards.items()
                    if asked["tag"] in dashboard["tags"]
                ]
                self.reply(tagged[: int(asked["limit"])])
            elif self.path.startswith("/api/folders/") and uid in state.folders:
                self.reply({"uid": uid, "title": state.folders[uid]})
            elif self.path.startswith("/api/dashboards/uid/") and uid in state.dashboards:
                meta = {"folderUid": state.folder_of.get(uid, ""), "provisioned": uid in state.provisioned}
                stored = json.loads(json.dumps(state.dashboards[uid]))
                if state.angular:
                    stored["panels"][1]["options"]["__angularMigration"] = {"autoMigrateFrom": "graph"}
                self.reply({"dashboard": stored, "meta": meta})
            else:
                self.reply({"message": "not found"}, 404)

        def _data_source(self, path: str) -> None:
            if not state.prometheus:
                self.reply({"status": "ERROR", "message": "connection refused"}, 400)
            elif path == "health":
                self.reply({"status": "OK", "message": "Successfully queried the Prometheus API."})
            else:
                answer = requests.get(f"{state.prometheus}/{path.removeprefix('resources/')}", timeout=30)
                self.reply(answer.json(), answer.status_code)

        def _query(self, body: dict[str, Any]) -> None:
            """As Grafana answers: frames of columns, or an error for the query and 400 for the whole."""
            results: dict[str, Any] = {}
            for query in body["queries"]:
                expr = fill(query["expr"], {})
                answer = requests.get(f"{state.prometheus}/api/v1/query", {"query": expr}, timeout=30).json()
                if answer["status"] != "success":
                    results[query["refId"]] = {"error": answer["error"], "status": 400}
                    continue
                values = [[[0], [float(series["value"][1])]] for series in answer["data"]["result"]]
                frames = [{"schema": {"fields": []}, "data": {"values": value}} for value in values]
                results[query["refId"]] = {"frames": frames, "status": 200}
            failed = any("error" in result for result in results.values())
            self.reply({"results": results}, 400 if failed else 200)

        def do_POST(self) -> None:
            body = json.loads(self.body())
            if self._refused():
                return
            if self.path == "/api/ds/query":
                self._query(body)
                return
            if self.path == "/api/folders":
                state.folders[body["uid"]] = body["title"]
                self.reply(body)
                return
            model = body["dashboard"]
            if model["uid"] in state.provisioned:
                self.reply({"message": "Cannot save provisioned dashboard"}, 400)
            elif body["folderUid"] not in state.folders:
                self.reply({"message": "folder not found"}, 400)
            elif model["uid"] in state.dashboards and not body["overwrite"]:
                self.reply({"message": "version-mismatch"}, 412)
            else:
                # Grafana stores what it was sent and adds its own id and version.
                before = state.dashboards.get(model["uid"], {"version": 0})
                state.dashboards[model["uid"]] = {**model, "id": 7, "version": before["version"] + 1}
                state.folder_of[model["uid"]] = body["folderUid"]
                self.reply({"status": "success", "uid": model["uid"]})

        def do_PUT(self) -> None:
            body = json.loads(self.body())
            if not self._refused():
                state.folders[self.path.rsplit("/", 1)[1]] = body["title"]
                self.reply(body)

        def do_DELETE(self) -> None:
            if not self._refused():
                state.dashboards.pop(self.path.rsplit("/", 1)[1])
                self.reply({"message": "Dashboard deleted"})

    with served(HttpServer(Grafana)) as server:
        yield server.url, state
