"""Run the real programs on the files that docker-compose.yml mounts, with edited objectives among them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from support import loopback
from support.loopback import Handler, answering
from support.slack.server import SlackServer
from support.slack.workspace import Workspace
from support.stack.mounted_stack import MountedStack
from support.tools import alertmanagers, newest, prometheuses
from support.waiting import eventually
from tritonwatch.cli import main
from tritonwatch.commands.exporter import settings_of
from tritonwatch.local import alertmanager_command
from tritonwatch.parser import Parser
from tritonwatch.usage import VERBS

NOWHERE = "http://127.0.0.1:9/"
VERSIONS = list(zip(prometheuses(), alertmanagers(), strict=False))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MountedStack]:
    """Prometheus and Alertmanager, as mounted, with rules at work."""
    binaries = {"prometheus": prometheuses()[-1], "alertmanager": alertmanagers()[-1]}
    folder = tmp_path_factory.mktemp("mounted")
    with MountedStack(folder, binaries, slack_url=NOWHERE, faster=False) as running:
        for name in ("errors", "queue"):  # fewer rules are read and loaded sooner, each time
            (folder / "objectives" / f"{name}.yaml").unlink()
        assert 0 == running.generate()
        running.start("prometheus")
        running.start("alertmanager")
        yield running


@pytest.fixture
def stack(started: MountedStack, tmp_path: Path) -> Iterator[MountedStack]:
    """The same servers, which have the files and the rules of before again after the test."""
    before = _files(started)
    for name in ("objectives", "generated"):
        shutil.copytree(started.folder / name, tmp_path / name)
    yield started
    if not started.healthy("alertmanager"):
        started.start("alertmanager")
    changed = before != _files(started)
    for name in ("objectives", "generated"):
        shutil.rmtree(started.folder / name)
        shutil.copytree(tmp_path / name, started.folder / name)
    if changed:
        assert 0 == main(started.own_command("reload"))


def test_a_missing_secret_stops_the_start_and_is_named(tmp_path: Path) -> None:
    """No service runs without a password because a file is missing, even where Docker would let it start."""
    binaries = {"prometheus": prometheuses()[-1], "alertmanager": alertmanagers()[-1]}
    with MountedStack(tmp_path, binaries, slack_url=NOWHERE, faster=False) as stack:
        assert 0 == stack.generate()  # Alertmanager reads its configuration first
        for service, secret in (
            ("bridge", "bridge_token"),
            ("reload", "stack_password"),
            ("prometheus", "prometheus_web_config"),
            ("alertmanager", "alertmanager_web_config"),
        ):
            file = tmp_path / "secrets" / secret
            file.rename(tmp_path / "away")
            done = subprocess.run(stack.command(service), capture_output=True, text=True, timeout=120)
            (tmp_path / "away").rename(file)

            assert 0 < done.returncode, service
            assert str(file) in done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.real
@pytest.mark.parametrize(("prometheus", "alertmanager"), newest(VERSIONS))
def test_an_alert_reaches_slack_through_the_mounted_files(
    tmp_path: Path, prometheus: Path, alertmanager: Path
) -> None:
    """A missing Triton is reported in Slack; each part is healthy when it serves, and lets in who logs in."""
    binaries = {"prometheus": prometheus, "alertmanager": alertmanager}
    with (
        SlackServer(Workspace(channels={"C0ALERTS": "#triton-alerts"})) as slack,
        MountedStack(tmp_path, binaries, slack_url=slack.api_url, faster=True) as stack,
    ):
        assert 0 == stack.generate()
        for service in ("exporter", "bridge", "alertmanager", "prometheus", "web"):  # the order of depends_on
            assert not stack.healthy(service)
            stack.start(service)

        assert 401 == stack.get("prometheus", "/api/v1/alerts", login=False).status_code
        assert 401 == stack.get("alertmanager", "/api/v2/alerts", login=False).status_code
        assert 401 == stack.get("web", "/", login=False).status_code
        assert 401 == requests.post(stack.url("bridge") + "/alertmanager", data=b"{}", timeout=5).status_code
        eventually(lambda: _all_up(stack), lambda: stack.get("prometheus", "/api/v1/targets").text)
        # Messages, status and boards name the Triton, not the exporter beside it.
        up = stack.get("prometheus", '/api/v1/query?query=up{job="triton-exporter"}').json()["data"]["result"]
        assert [f"127.0.0.1:{stack.ports['triton']}"] == [series["metric"]["instance"] for series in up]
        eventually(
            lambda: "TritonAllServersDown" in _posted(slack),
            lambda: _posted(slack) + stack.get("prometheus", "/api/v1/alerts").text,
        )
        assert 'data-label="Models"' in stack.get("web", "/incidents").text, (
            "the bridge's incident is on the page"
        )


def _posted(slack: SlackServer) -> str:
    return " ".join(repr(message) for message in slack.workspace.messages)


def _all_up(stack: MountedStack) -> bool:
    targets = stack.get("prometheus", "/api/v1/targets").json()["data"]["activeTargets"]
    return len(targets) == 4 and all(target["health"] == "up" for target in targets)


def _groups(stack: MountedStack) -> str:
    return stack.get("prometheus", "/api/v1/rules").text


def _edit(stack: MountedStack, old: str, new: str) -> None:
    path = stack.folder / "objectives" / "latency.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _files(stack: MountedStack) -> dict[str, bytes]:
    folder = stack.folder / "generated"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.real
def test_an_edited_objective_is_in_force_after_one_command(
    stack: MountedStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reload service of docker compose, with its own arguments, puts a new objective to work."""
    assert "my-latency" not in _groups(stack)
    _edit(stack, "name: latency", "name: my-latency")

    code = main(stack.own_command("reload"))

    printed = capsys.readouterr()
    assert 0 == code, printed.err
    assert "Prometheus and Alertmanager loaded them" in printed.out
    assert "my-latency" in _groups(stack)

    config, (port,) = tmp_path / "theirs.yml", loopback.free_ports(1)
    config.write_text("{route: {receiver: theirs}, receivers: [{name: theirs}]}")
    url = f"http://127.0.0.1:{port}"
    command = alertmanager_command(config, tmp_path / "theirs", port)
    with loopback.started(command, url + "/-/ready", tmp_path / "theirs.log"):
        code = main([*stack.own_command("reload"), "--alertmanager", url])

    printed = capsys.readouterr()
    assert 0 == code, printed.err
    assert "; Prometheus loaded them" in printed.out
    assert f"note: Alertmanager at {url} has other routes, receivers or inhibit rules" in printed.err


def test_a_threshold_of_ones_own_gets_its_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter reads the objectives that are mounted into it; without a bucket an objective is unknown."""
    with MountedStack(tmp_path, {}, slack_url=NOWHERE, faster=False) as stack:
        _edit(stack, "threshold: 1s", "threshold: 333ms")
        parser = Parser()
        VERBS["exporter"].configure(parser)
        given = [word for word in stack.own_command("exporter")[1:] if not word.endswith("=")]
        for name, value in stack.variables("exporter").items():
            monkeypatch.setenv(name, value)
        buckets = settings_of(parser.parse_args(given)).bucket_bounds

    assert 0.333 in {bound for bounds in buckets.thresholds.values() for bound in bounds}


@pytest.mark.real
def test_a_wrong_objective_changes_nothing(stack: MountedStack, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is named with its place; no file and no rule is touched."""
    before = _files(stack)
    _edit(stack, "target: 99%", "target: 199%")

    assert 1 == main(stack.own_command("reload"))
    assert "latency.yaml" in capsys.readouterr().err
    assert before == _files(stack)


@pytest.mark.real
def test_what_prometheus_refuses_is_taken_back(
    stack: MountedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """When Prometheus cannot load, the old files are put back and loaded, and its own words are shown."""
    before = _files(stack)
    own = stack.folder / "generated" / "rules" / "own.yml"  # a user's file that fails only once it is loaded
    own.write_text("groups: [{name: own, rules: [{record: x, expr: 'sum('}]}]")
    _edit(stack, "name: latency", "name: my-latency")

    code = main(stack.own_command("reload"))

    printed = capsys.readouterr().err
    assert 1 == code
    assert "Prometheus at" in printed
    assert "failed to reload config" in printed
    own.unlink()
    assert before == _files(stack)
    assert "my-latency" not in _groups(stack)


def _refused(request: Handler) -> None:
    """Answer as an Alertmanager that is ready and refuses to reload: the real one accepts what amtool accepts."""
    if request.command == "POST":
        request.reply("failed to reload config: of no use to me", 500)
    else:
        request.reply("OK")


@pytest.mark.real
def test_what_alertmanager_refuses_is_taken_back_from_prometheus_too(
    stack: MountedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prometheus had loaded the new rules by then; it is given the old ones again, so that both fit together."""
    before = _files(stack)
    _edit(stack, "name: latency", "name: my-latency")
    stack.children["alertmanager"].stop(5)

    with answering(_refused, stack.ports["alertmanager"]):
        code = main(stack.own_command("reload"))

    printed = capsys.readouterr().err
    assert 1 == code
    assert "of no use to me" in printed
    assert before == _files(stack)
    assert "my-latency" not in _groups(stack)


@pytest.mark.real
def test_nothing_is_written_while_alertmanager_is_away(
    stack: MountedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old files could not be loaded again then either, so none is touched."""
    before = _files(stack)
    _edit(stack, "name: latency", "name: my-latency")
    stack.children["alertmanager"].stop(5)

    code = main(stack.own_command("reload"))

    printed = capsys.readouterr().err
    assert 1 == code
    assert "Alertmanager at" in printed
    assert "not reachable" in printed
    assert "nothing was written" in printed
    assert before == _files(stack)
    assert "my-latency" not in _groups(stack)


@pytest.mark.real
def test_reloads_at_the_same_time_wait_for_each_other(stack: MountedStack) -> None:
    """Each is loaded in its turn; the rules that stay are those of the files."""
    commands = []
    for number in range(2):
        folder = stack.folder / f"objectives-{number}"
        shutil.copytree(stack.folder / "objectives", folder)
        latency = folder / "latency.yaml"
        latency.write_text(latency.read_text().replace("name: latency", f"name: latency-{number}"))
        words = [word for word in stack.own_command("reload") if not word.startswith("--objectives=")]
        commands.append([sys.executable, "-m", "tritonwatch", *words, f"--objectives={folder}"])
    together = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    printed = [process.communicate(timeout=300)[0] for process in together]

    assert [0, 0] == [process.returncode for process in together], "\n".join(printed)
    [last] = (stack.folder / "generated" / "rules").glob("slo-latency-?.yml")
    assert [last.stem] == re.findall(r'"name":"(slo-latency-\d)"', _groups(stack))


@pytest.mark.real
def test_a_reload_never_changes_a_receiver_because_an_option_was_left_out(
    stack: MountedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages would go nowhere: the missing option is named with its value, and Alertmanager keeps its address."""
    reload = stack.own_command("reload")
    assert 0 == main(reload)
    before, loaded = _files(stack), _alertmanagers_hash(stack)
    (token,) = [word for word in reload if word.startswith("--webhook-token-file=")]

    assert 1 == main([word for word in reload if word != token])
    assert f"add {token};".replace("=", " ") in capsys.readouterr().err
    assert before == _files(stack)
    assert loaded == _alertmanagers_hash(stack)

    assert 0 == main([*reload, f"--webhook-url={stack.url('bridge')}/elsewhere"])
    assert loaded != _alertmanagers_hash(stack)


def _alertmanagers_hash(stack: MountedStack) -> str:
    """Return what Alertmanager says its loaded configuration's checksum is; it shows no address."""
    [line] = re.findall(
        r"^alertmanager_config_hash (.+)$", stack.get("alertmanager", "/metrics").text, re.MULTILINE
    )
    return str(line)


@pytest.mark.real
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"--user": "nobody"}, "refuses our credentials"),
        ({"--prometheus": "http://127.0.0.1:9"}, "not reachable"),
        ({"--out": "{folder}/elsewhere"}, "add the folder given as --out to its rule_files"),
    ],
)
def test_each_wrong_setting_is_named(
    stack: MountedStack, capsys: pytest.CaptureFixture[str], change: dict[str, str], expected: str
) -> None:
    """A wrong address, login or folder is reported, and the loaded rules stay.

    The new groups have the names of the loaded ones, so a successful reload alone proves nothing.
    """
    changed = {name: value.format(folder=stack.folder) for name, value in change.items()}
    words = [word for word in stack.own_command("reload") if word.partition("=")[0] not in changed]
    before = _files(stack)
    _edit(stack, "target: 99%", "target: 95%")

    assert 1 == main([*words, *(f"{name}={value}" for name, value in changed.items())])
    assert expected in capsys.readouterr().err
    assert before == _files(stack)
    assert not list((stack.folder / "elsewhere").rglob("*.yml"))


def test_a_part_that_promtool_refuses_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server in reach, promtool's judgement already stops wrong rules, in its own words."""
    from tritonwatch.commands.reload import ReloadError, check

    assert shutil.which("promtool"), "make tools installs it"
    with pytest.raises(ReloadError, match="promtool refuses the new files") as refusal:
        check({"rules/a.yml": "groups: [{name: a, rules: [{record: x, expr: 'sum('}]}]"})
    assert str(tmp_path) not in str(refusal.value)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [] == check({"rules/a.yml": "nonsense"})
