"""Test `tritonwatch dashboards`: it lists, writes and pushes; a push changes only what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml

from dashboards.grafana_api import TOKEN, State, grafana
from support.loopback import answering
from triton_dashboards.grafana import dashboard_model
from triton_dashboards.per_model import ModelFacts, dashboard
from triton_slo.artifact import Options
from tritonwatch.cli import main

UIDS = ["triton-fleet", "triton-model", "triton-slo", "triton-gpu", "triton-server", "triton-on-call"]


@pytest.fixture
def api() -> Iterator[tuple[str, State]]:
    """Yield a stand-in of Grafana's API."""
    with grafana() as served:
        yield served


@pytest.fixture
def token(tmp_path: Path) -> str:
    """Write a file with the right token and, as editors leave it, a newline; return its path."""
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    return str(tmp_path / "token")


def _push(url: str, token: str, *more: str) -> int:
    return main(["dashboards", "push", "--grafana", url, "--grafana-token-file", token, *more])


def test_list_names_every_dashboard_with_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a dashboard: uid, title, and the question it answers."""
    assert 0 == main(["dashboards", "list"])

    lines = capsys.readouterr().out.splitlines()
    assert UIDS == [line.split()[0] for line in lines]
    assert all(line.endswith("?") for line in lines)


def test_a_dashboard_to_share_asks_for_the_data_source(tmp_path: Path) -> None:
    """As Grafana exports them for grafana.com: the import fills in what `__inputs` names."""
    assert 0 == main(["dashboards", "write", "--format", "share", "--out", str(tmp_path)])

    assert sorted(f"{uid}.json" for uid in UIDS) == sorted(path.name for path in tmp_path.glob("*.json"))
    board = json.loads((tmp_path / "triton-model.json").read_text())
    (asked,) = board["__inputs"]
    assert ("datasource", "prometheus") == (asked["type"], asked["pluginId"])
    (source,) = (each for each in board["templating"]["list"] if each["type"] == "datasource")
    assert f"${{{asked['name']}}}" == source["current"]["value"]
    required = {each["id"] for each in board["__requires"]}
    assert {"grafana", "prometheus", "timeseries", "stat"} <= required


def test_first_push_creates_all_in_a_folder(api: tuple[str, State], token: str) -> None:
    """Into an empty Grafana go the folder and every dashboard, each under its own uid; a dry run creates nothing."""
    url, state = api

    assert 1 == _push(url, token, "--dry-run")
    assert ({}, {}) == (state.folders, state.dashboards)
    assert 0 == _push(url, token)
    assert {"triton": "Triton"} == state.folders
    assert sorted(UIDS) == sorted(state.dashboards)
    assert {"triton"} == set(state.folder_of.values())


def test_second_push_changes_nothing(
    api: tuple[str, State], token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What Grafana added on its own is not a difference: the second push writes nothing at all."""
    url, state = api
    _push(url, token)
    state.requests.clear()
    capsys.readouterr()

    assert 0 == _push(url, token)
    assert [] == state.writes()
    assert [f"{uid}: unchanged" for uid in UIDS] == capsys.readouterr().out.splitlines()


def test_only_what_differs_is_shown_and_written(
    api: tuple[str, State], token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run names the changed value with both sides, and exits 1 because something would change."""
    url, state = api
    _push(url, token)
    state.dashboards["triton-gpu"]["refresh"] = "5s"  # edited by hand
    state.requests.clear()

    assert 1 == _push(url, token, "--dry-run")
    assert [] == state.writes()
    printed = capsys.readouterr().out
    assert "triton-gpu: would be updated (1 changes)" in printed
    assert '/refresh: "5s" -> "30s"' in printed
    assert 0 == _push(url, token)
    assert [("POST", "/api/dashboards/db")] == state.writes()
    assert "30s" == state.dashboards["triton-gpu"]["refresh"]


def test_provisioned_dashboard_stops_the_push_before_any_write(
    api: tuple[str, State], token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Grafana refuses to save over a provisioned file, so nothing is half pushed."""
    url, state = api
    state.dashboards["triton-server"] = {"version": 1}
    state.provisioned.add("triton-server")

    assert 1 == _push(url, token)
    assert [] == state.writes()
    assert "provisioned from a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("broken", "printed"), [("login", "redirects to /login"), ("html", "not Grafana's JSON")]
)
def test_an_address_without_grafana_is_reported_in_one_line(
    api: tuple[str, State], token: str, capsys: pytest.CaptureFixture[str], broken: str, printed: str
) -> None:
    """A login page or another server is an error that names the address, not a success."""
    url, state = api
    state.broken = broken

    assert 1 == _push(url, token)
    assert printed in capsys.readouterr().err


def test_a_wrong_token_or_a_missing_permission_is_reported_with_the_fix(
    api: tuple[str, State], token: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """401 and 403 are reported apart, and the token itself is never printed."""
    url, state = api
    (tmp_path / "wrong").write_text("glsa_wrong", encoding="utf-8")

    assert 1 == _push(url, str(tmp_path / "wrong"))
    assert "does not accept the token" in (first := capsys.readouterr().err)
    state.forbidden.add("POST /api/folders")
    assert 1 == _push(url, token)
    assert "role Editor" in (second := capsys.readouterr().err)
    assert "glsa_" not in first + second


def test_usage_errors_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No address, no token, no folder to write into: wrong usage."""
    (tmp_path / "empty").write_text("", encoding="utf-8")

    assert 2 == main(["dashboards", "push"])
    assert 2 == _push("http://127.0.0.1:9", str(tmp_path / "empty"))
    assert 2 == main(["dashboards", "write"])
    assert 2 == main(["dashboards", "write", "--per-model", "--out", str(tmp_path)])
    assert 4 == len(capsys.readouterr().err.splitlines())


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["push", "--grafana", "grafana:bad"], "--grafana: 'grafana:bad' is not a URL"),
        (["push", "--grafana", "ftp://grafana"], "--grafana: 'ftp://grafana' is not a URL"),
        (["push", "--grafana", "http://a:secret@grafana"], "a URL takes no user and password"),
        (["list", "--selector", 'cluster="eu1"}'], "is not a list of matchers"),
        (["list", "--selector", "cluster=eu1"], "is not a list of matchers"),
        (["write", "--out", "never", "--namespace", "Bad Name"], "is not a Kubernetes namespace"),
        (["push", "--folder", " "], "the title is empty"),
    ],
)
def test_bad_arguments_are_named_before_anything_happens(
    arguments: list[str], printed: str, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip in an argument is wrong usage, in words that repeat it, and nothing is read or written."""
    token_file = ["--grafana-token-file", token]

    assert 2 == main(["dashboards", *arguments, *token_file])
    assert printed in (err := capsys.readouterr().err)
    assert "secret" not in err
    assert not Path("never").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"two words", b"a\nb"])
def test_a_file_without_a_token_is_named(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A binary, empty or many-worded file is wrong usage in one line, which does not repeat it."""
    (tmp_path / "token").write_bytes(content)

    assert 2 == _push("http://127.0.0.1:9", str(tmp_path / "token"))
    assert 2 == _push("http://127.0.0.1:9", str(tmp_path / "none"))
    lines = capsys.readouterr().err.splitlines()
    assert 2 == len(lines)
    assert "token" in lines[0]
    assert f"--grafana-token-file {tmp_path / 'none'}: No such file" in lines[1]


def test_unreachable_grafana_is_one_line(token: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A refused connection is an error with the address in it."""
    assert 1 == _push("http://127.0.0.1:9", token)
    assert ["http://127.0.0.1:9" in line for line in capsys.readouterr().err.splitlines()] == [True]


def test_config_maps_carry_the_file_and_the_folder(tmp_path: Path) -> None:
    """The Grafana chart's sidecar finds the label, the folder, and the same dashboard, compact.

    kubectl apply without --server-side copies an object into an annotation of at most 262,144 bytes.
    """
    out = str(tmp_path)
    assert 0 == main(["dashboards", "write", "--out", out, "--format", "configmap", "--namespace", "watch"])
    assert 0 == main(["dashboards", "write", "--out", f"{out}/json"])

    document = yaml.safe_load((tmp_path / "triton-slo.configmap.yaml").read_text(encoding="utf-8"))
    assert ("watch", "1") == (
        document["metadata"]["namespace"],
        document["metadata"]["labels"]["grafana_dashboard"],
    )
    assert "Triton" == document["metadata"]["annotations"]["grafana_folder"]
    file = (tmp_path / "json" / "triton-slo.json").read_text("utf-8")
    assert json.loads(file) == json.loads(document["data"]["triton-slo.json"])
    assert all(len(path.read_bytes()) < 262_144 / 2 for path in tmp_path.glob("*.yaml"))


def test_the_folder_is_renamed_where_a_title_is_given(
    api: tuple[str, State], token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--folder renames the folder of an earlier push; without it a folder renamed in Grafana keeps its title."""
    url, state = api
    _push(url, token)

    assert 1 == _push(url, token, "--folder", "Inference", "--dry-run")
    assert "folder: title 'Triton' -> 'Inference'" in capsys.readouterr().out
    assert {"triton": "Triton"} == state.folders
    assert 0 == _push(url, token, "--folder", "Inference") == _push(url, token)
    assert {"triton": "Inference"} == state.folders


@pytest.mark.parametrize(
    ("more", "left"), [((), True), (("--prune", "--dry-run"), True), (("--prune",), False)]
)
def test_dashboards_of_models_that_are_gone_are_deleted_on_request(
    api: tuple[str, State], token: str, more: tuple[str, ...], left: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """--prune deletes our dashboards of models that Prometheus no longer knows, and nothing of anybody else."""
    url, state = api
    _push(url, token)
    gone = dashboard_model(dashboard(ModelFacts("retired"), (), Options()))
    state.dashboards |= {gone["uid"]: gone, "theirs": gone | {"uid": "theirs"}}
    state.folder_of |= {gone["uid"]: "triton", "theirs": "triton"}

    with known_models() as prometheus:
        code = _push(url, token, "--per-model", "--prometheus", prometheus, *more)

    assert int("--dry-run" in more) == code
    assert left == (gone["uid"] in state.dashboards)
    assert "theirs" in state.dashboards
    if "--prune" in more:
        assert f"{gone['uid']}: {'would be deleted' if left else 'deleted'}" in capsys.readouterr().out


def known_models() -> AbstractContextManager[str]:
    """Return a Prometheus that knows one model."""
    result = [{"metric": {"model": "serving", "version": "1"}, "value": [0, "1"]}]
    return answering({"status": "success", "data": {"resultType": "vector", "result": result}})
