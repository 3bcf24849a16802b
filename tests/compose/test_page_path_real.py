"""Test the path of a page: a real Alertmanager and a bridge find each other by the project file, and `check` sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from support.loopback import answering, free_ports, started
from support.thorough import THOROUGH
from support.tools import alertmanagers
from support.waiting import eventually
from triton_alerts import alertmanager
from tritonwatch.cli import main

pytestmark = pytest.mark.real
OBJECTIVE = "name: errors\ntarget: 99%\nindicator: errors\n"


def _objectives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the folder the working one, with an objective and the token of a bridge."""
    monkeypatch.chdir(folder)
    Path("objectives").mkdir()
    Path("objectives/o.yaml").write_text(OBJECTIVE)
    Path("token").write_text("s3cret")


@contextmanager
def _alertmanager(program: Path, port: int, folder: Path, *options: str) -> Iterator[str]:
    """Run an Alertmanager as the project says, with the Watchdog alert of a Prometheus firing in it."""
    given = ["--out", str(folder), "--time-scale=1/360", *options]
    assert 0 == main(["generate", *given])
    command = [
        program,
        f"--config.file={folder / 'alertmanager' / alertmanager.FILE}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    url = f"http://127.0.0.1:{port}"
    with started(command, f"{url}/-/ready", folder.with_suffix(".log")):
        labels = {"alertname": "Watchdog", "severity": "none", "stack": "tritonwatch"}
        ends = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
        requests.post(f"{url}/api/v2/alerts", json=[{"labels": labels, "endsAt": ends}], timeout=5)
        yield url


@contextmanager
def _bridge(project: Path, url: str) -> Iterator[None]:
    """Run a bridge as a user would: told nothing but the project file."""
    command = [sys.executable, "-m", "tritonwatch", "bridge", "--dry-run", "--project", project]
    with started(command, f"{url}/-/ready", project.with_suffix(".log")):
        yield


@pytest.mark.parametrize("program", alertmanagers()[:1] if not THOROUGH else alertmanagers(), ids=str)
def test_the_port_of_the_bridge_is_said_once_and_check_follows_a_page(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed `bridge.url` moves the bridge; what Alertmanager still sends elsewhere fails `check`."""
    old, new, port = free_ports(3)
    _objectives(tmp_path, monkeypatch)
    project = tmp_path / "tritonwatch.yaml"

    def check() -> tuple[int, str]:
        code = main(["check"])
        return code, capsys.readouterr().err

    def wrote(bridge: int) -> str:
        url = f"http://127.0.0.1:{bridge}"
        project.write_text(
            f"bridge: {{url: {url}, data: data, token_file: token}}\nobjectives: objectives\nalertmanager: http://127.0.0.1:{port}\n"
        )
        return url

    code, printed = check() if wrote(old) else (0, "")
    assert 1 == code
    assert f"tritonwatch.yaml:3: alertmanager.url: Alertmanager at http://127.0.0.1:{port} is not" in printed
    assert f"tritonwatch.yaml:1: bridge.url: the bridge at http://127.0.0.1:{old} is not reachable" in printed
    assert 0 == main(["check", "--offline"])
    capsys.readouterr()

    wrote(old)
    with _alertmanager(program, port, tmp_path / "generated") as url:
        with _bridge(project, wrote(old)):
            eventually(lambda: check()[0] == 0, "no heartbeat arrives")
            main(["check"])
            assert "pages arrive: " in capsys.readouterr().out
        with _bridge(project, wrote(new)):
            code, printed = check()
        shown = requests.get(f"{url}/api/v2/status", timeout=5).json()["config"]["original"]
    # The new bridge has the data of the old one, and so its last heartbeat. Since 0.26 no URL is shown.
    if f":{old}/" in shown:
        assert 1 == code
        assert f"has no receiver {alertmanager.BRIDGE} with the URL http://127.0.0.1:{new}/" in printed


def test_check_names_a_bridge_that_alertmanager_does_not_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newer Alertmanagers show no URL, so what shows a wrong one is that no heartbeat arrives."""
    elsewhere, own, port = free_ports(3)
    _objectives(tmp_path, monkeypatch)
    project = tmp_path / "tritonwatch.yaml"
    project.write_text(
        f"bridge: {{url: http://127.0.0.1:{own}, data: d}}\nobjectives: objectives\nalertmanager: http://127.0.0.1:{port}\n"
    )

    with (
        _alertmanager(
            alertmanagers()[-1],
            port,
            tmp_path / "generated",
            f"--webhook-url=http://127.0.0.1:{elsewhere}/alertmanager",
        ),
        _bridge(project, f"http://127.0.0.1:{own}"),
    ):
        assert 1 == main(["check"])
    assert (
        f"the bridge at http://127.0.0.1:{own}: has received no Watchdog alert yet" in capsys.readouterr().err
    )


def test_check_names_what_is_no_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another service at this port answers 200 to all."""
    _objectives(tmp_path, monkeypatch)
    with answering("hello\n") as url:
        Path("tritonwatch.yaml").write_text(
            f"bridge: {{url: {url}}}\nobjectives: objectives\nalertmanager: {url}\n"
        )
        assert 1 == main(["check"])
        printed = capsys.readouterr().err
        assert 0 == main(["check", "objectives"])
    assert (
        "note: Alertmanager and the bridge are not checked where files are named" in capsys.readouterr().err
    )
    assert f"Alertmanager at {url} does not answer /api/v2/status as Alertmanager does" in printed
    assert f"bridge.url: {url} is not a bridge" in printed


def test_check_fails_where_prometheus_is_wrong_and_generate_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder below the project's, as with git: the project file of the nearest folder above is read."""
    (port,) = free_ports(1)
    (tmp_path / "objectives").mkdir()
    (tmp_path / "objectives" / "o.yaml").write_text(OBJECTIVE)
    (tmp_path / "tritonwatch.yaml").write_text(
        f"objectives: objectives\nout: generated\nprometheus: http://127.0.0.1:{port}\n"
    )
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")

    assert 1 == main(["check"])
    place = "../../tritonwatch.yaml:3: prometheus.url: "
    unreachable = f"Prometheus at http://127.0.0.1:{port} is not reachable"
    assert f"{place}{unreachable}" in capsys.readouterr().err
    given = [f"--{name}=http://127.0.0.1:{port}" for name in ("prometheus", "alertmanager", "webhook-url")]
    assert 1 == main(["check", *given])
    lines = capsys.readouterr().err
    assert f"--prometheus: {unreachable}" in lines
    assert f"--alertmanager: Alertmanager at http://127.0.0.1:{port} is not reachable" in lines
    assert f"--webhook-url: the bridge at http://127.0.0.1:{port} is not reachable" in lines
    assert "tritonwatch.yaml" not in lines
    monkeypatch.setenv("TRITONWATCH_PROMETHEUS", f"http://127.0.0.1:{port}")
    assert 1 == main(["check"])
    assert f"$TRITONWATCH_PROMETHEUS: {unreachable}" in capsys.readouterr().err
    monkeypatch.delenv("TRITONWATCH_PROMETHEUS")
    assert 0 == main(["check", "--offline"])
    assert 0 == main(["generate"])
    assert "warning: names of models are not checked: Prometheus at" in capsys.readouterr().err
    assert (tmp_path / "generated" / "rules" / "slo-errors.yml").is_file()
    ended = subprocess.run(
        [sys.executable, "-m", "tritonwatch", "status"], capture_output=True, text=True, timeout=60
    )
    assert f"Prometheus at http://127.0.0.1:{port} is not reachable" in ended.stderr
