"""`tritonwatch dashboards`: list them, write them in other forms, push them to a Grafana."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from triton_dashboards import per_model
from triton_dashboards.delivery import FOLDER_TITLE, FOLDER_UID, changes, delivered
from triton_dashboards.values import Dashboard
from triton_exporter.catalogue import llm, models, state
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.artifact import Options
from triton_slo.server_access import read_secret
from tritonwatch import access, output
from tritonwatch.arguments import check_out, tuned
from tritonwatch.objective_files import load

TOKEN_VARIABLE = "TRITONWATCH_GRAFANA_TOKEN"  # noqa: S105 # the variable's name, not a token
Json = dict[str, Any]
_MAX_DASHBOARDS = 5000
"""Results of a search; Grafana gives no more."""


def run(args: argparse.Namespace) -> int:
    made = _chosen_dashboards(args)
    if args.action == "push":
        return _push(args, made)
    if args.action == "write":
        return _write_dashboards(args, made)
    for board in made:
        print(f"{board.uid:26} {board.title:32} {board.description.split('?')[0]}?")
    return 0


def _chosen_dashboards(args: argparse.Namespace) -> list[Dashboard]:
    """Return every dashboard asked for."""
    from triton_dashboards.generate import dashboards  # grafanalib, which --help does without

    options = Options(selector=args.selector, links=tuple(args.link), tuning=tuned(args.alerts))
    made = [*dashboards(options)]
    if args.per_model:
        objectives = load(args.objectives)
        made += [per_model.dashboard(facts, objectives, options) for facts in _model_facts(args)]
    return made


def _model_facts(args: argparse.Namespace) -> Iterable[per_model.ModelFacts]:
    """Return what Prometheus knows of each model now."""
    if not args.prometheus:
        raise ProblemsError(Problem("--per-model", "needs --prometheus URL, to list the models"))
    with access.connect(args) as prometheus:
        samples = prometheus.instant(f"group by (model, version, backend, platform) ({models.INFO})")
        # A model that never loaded has no configuration, and is the most interesting one.
        samples += prometheus.instant(f"group by (model, version) ({state.MODEL_READY})")
        caching = prometheus.instant(f"group by (model) ({models.RESPONSE_CACHE} == 1)")
        cached = {sample.labels["model"] for sample in caching}
        speaking = prometheus.instant(f"group by (model) ({llm.GENERATION_TOKENS} or {llm.REQUESTS})")
        language = {sample.labels["model"] for sample in speaking}
    versions: dict[str, set[str]] = {}
    backends: dict[str, str] = {}
    for sample in samples:
        name = sample.labels["model"]
        versions.setdefault(name, set()).add(sample.labels.get("version", ""))
        platform = sample.labels.get("platform", "")
        backend = "ensemble" if platform == "ensemble" else sample.labels.get("backend", "")
        backends[name] = backends.get(name) or backend
    if not versions:
        reason = f"has no model: {models.INFO} and {state.MODEL_READY} have no series"
        raise ProblemsError(Problem(args.prometheus, reason, "let it scrape the exporter"))
    return [
        per_model.ModelFacts(
            name, tuple(sorted(versions[name])), backends[name], name in cached, name in language
        )
        for name in sorted(versions)
    ]


def _write_dashboards(args: argparse.Namespace, made: Sequence[Dashboard]) -> int:
    if args.out is None:
        raise ProblemsError(Problem("--out", "is missing", "give --out DIR"))
    if args.objectives:
        check_out(args.out, (), args.objectives)
    from triton_dashboards.grafana import dashboard_text

    folder = args.folder or FOLDER_TITLE
    files = dict(delivered(dashboard_text(board), args.format, folder, args.namespace) for board in made)
    output.write(args.out, files)
    print(f"wrote {len(files)} files to {args.out}")
    return 0


def _push(args: argparse.Namespace, made: Sequence[Dashboard]) -> int:
    if not args.grafana:
        raise ProblemsError(Problem("--grafana", "is missing", "give --grafana URL"))
    if args.prune and not args.per_model:
        raise ProblemsError(Problem("--prune", "needs --per-model"))
    from triton_dashboards.grafana import dashboard_text

    texts = {board.uid: dashboard_text(board) for board in made}
    with Grafana(args.grafana, _token(args.grafana_token_file)) as grafana:
        # Compare all dashboards before writing any: one provisioned dashboard stops the whole push.
        plan = {uid: _planned(grafana, uid, json.loads(text)) for uid, text in texts.items()}
        pending = {uid: lines for uid, lines in plan.items() if lines}
        title = grafana.folder_title(FOLDER_UID)
        renamed = title is not None and args.folder not in (None, title)
        # Those that a push made for models that are not among those of this push.
        retired = grafana.per_model() - texts.keys() if args.prune else set()
        if not args.dry_run:
            if pending and title is None:
                grafana.create_folder(FOLDER_UID, args.folder or FOLDER_TITLE)
            elif renamed:
                grafana.rename_folder(FOLDER_UID, args.folder)
            for uid in pending:
                grafana.save(json.loads(texts[uid]), FOLDER_UID)
            for uid in retired:
                grafana.delete(uid)
    if renamed:
        print(f"folder: title {title!r} -> {args.folder!r}")
    _print_changes(plan, args.dry_run)
    for uid in sorted(retired):
        print(f"{uid}: {'would be deleted' if args.dry_run else 'deleted'}")
    return int(args.dry_run and bool(pending or renamed or retired))


def _planned(grafana: Grafana, uid: str, model: dict[str, object]) -> list[str]:
    stored = grafana.dashboard(uid)
    if stored is None:
        return ["new"]
    meta = stored.get("meta", {})
    if meta.get("provisioned"):
        fix = "change that file, or remove the file and push again"
        raise ProblemsError(Problem(f"dashboard {uid}", "is provisioned from a file in this Grafana", fix))
    folder = meta.get("folderUid", "")
    moved = [f"folder: {folder} -> {FOLDER_UID}"] if folder != FOLDER_UID else []
    return moved + changes(model, stored.get("dashboard", {}))


def _print_changes(plan: Mapping[str, list[str]], dry_run: bool) -> None:
    for uid, lines in plan.items():
        if not lines:
            print(f"{uid}: unchanged")
        elif lines == ["new"]:
            print(f"{uid}: {'would be created' if dry_run else 'created'}")
        else:
            print(f"{uid}: {'would be updated' if dry_run else 'updated'} ({len(lines)} changes)")
            for line in lines[:10] if dry_run else ():
                print(f"  {line}")


def _token(path: Path | None) -> str:
    token = read_secret(path, "--grafana-token-file") if path else os.environ.get(TOKEN_VARIABLE, "")
    if not token or any(ord(character) < 33 or ord(character) > 126 for character in token):
        place = f"--grafana-token-file {path}" if path else "--grafana-token-file"
        fix = f"give a file with the token of a service account, or set the variable {TOKEN_VARIABLE}"
        raise ProblemsError(Problem(place, "has no usable token" if path else "is missing", fix))
    return token


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
        self._request("POST", "/api/folders", {"uid": uid, "title": title})

    def rename_folder(self, uid: str, title: str) -> None:
        self._request("PUT", f"/api/folders/{uid}", {"title": title, "overwrite": True})

    def per_model(self) -> set[str]:
        """Return the uids of the dashboards that a push made for models."""
        query = f"type=dash-db&limit={_MAX_DASHBOARDS}&tag={per_model.TAG}"
        return {
            str(board["uid"])
            for board in self._request("GET", f"/api/search?{query}")
            if board.get("folderUid") == FOLDER_UID and str(board["uid"]).startswith(per_model.UID_PREFIX)
        }

    def delete(self, uid: str) -> None:
        self._request("DELETE", f"/api/dashboards/uid/{uid}")

    def dashboard(self, uid: str) -> Json | None:
        """Return the dashboard with this uid and what is told of it (`meta`), or None."""
        found: Json | None = self._request("GET", f"/api/dashboards/uid/{uid}", missing=True)
        return found

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
            raise ProblemsError(Problem(self._url, f"did not answer within {self._timeout:g} s")) from None
        except requests.RequestException as error:
            reason = f"cannot be reached: {type(error).__name__}"
            raise ProblemsError(Problem(self._url, reason, "check the address")) from None
        if answer.status_code == 404 and missing:
            return None
        if not answer.ok or answer.is_redirect:
            raise ProblemsError(Problem("", self._explain(method, path, answer)))
        try:
            content = answer.json()
        except ValueError:
            content = None
        if not isinstance(content, dict | list):
            raise ProblemsError(
                Problem(f"{self._url}{path}", "answered something that is not Grafana's JSON")
            )
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
