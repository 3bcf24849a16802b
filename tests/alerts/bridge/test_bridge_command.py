"""Test the verb `bridge`: the behaviour that docs/on-call.md promises, and the errors for wrong options."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests

import support
from support.bridge import body_of
from support.loopback import free_ports
from support.slack.server import SlackServer
from support.slack.workspace import ALL_SCOPES, TOKEN, Workspace
from triton_alerts.bridge.assembly import AUDIT_FILE, claimed
from triton_alerts.bridge.incidents.audit import Audit, private
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.store import Store
from tritonwatch.cli import main


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], "no credentials for Slack"),
        (["test"], "no credentials for Slack"),
        (["--dry-run", "--listen", "nowhere"], "HOST:PORT"),
        (["--dry-run", "--token-file", "/nonexistent"], "cannot be read"),
        (["--dry-run", "--channel-for", "loud=C1"], "SEVERITY=CHANNEL"),
        (
            ["--dry-run", "--channel-for", "critical=C0A", "--channel-for", "critical=C0B"],
            "--channel-for: critical has a channel already",
        ),
        (["--dry-run", "--mention", "<!everyone>"], "not understood"),
        (["--dry-run", "--channel", ""], "--channel: '' is not a channel"),
        (["--dry-run", "--channel-for", "warning= "], "SEVERITY=CHANNEL"),
        (["--dry-run", "--escalate-to", "the boss"], "--escalate-to: 'the boss' is not a channel"),
        (["--dry-run", "--button-user", "@bob"], "--button-user: '@bob' is not a Slack user's id"),
        (["--dry-run", "--prometheus", "ftp://prometheus"], "--prometheus: 'ftp://prometheus' is not a URL"),
        (["--dry-run", "--alertmanager", "http://:9093"], "--alertmanager: 'http://:9093' is not a URL"),
        (
            ["--dry-run", "--exporter", "http://a:1", "--exporter", "http://a:b"],
            "--exporter: 'http://a:b' is not a URL",
        ),
        (["--dry-run", "--tls-client-ca", "ca.pem"], "would serve plain HTTP and check no client"),
        (["--dry-run", "--tls-key", "key.pem"], "would serve plain HTTP and check no client"),
        (["--dry-run", "--tls-cert", "/nonexistent"], "--tls-cert /nonexistent: No such file or directory"),
        (["--dry-run", "--tls-cert", __file__], "contains no private key"),
        (
            ["--dry-run", "--listen", "192.0.2.1:80", "--token-file", support.__file__],
            "--listen 192.0.2.1:80: Cannot assign requested address",
        ),
        (["--dry-run", "--listen", "0.0.0.0:9096"], "anyone who reaches 0.0.0.0 could send false"),
        (["--dry-run", "--listen", "[::]:9096"], "anyone who reaches :: could send false"),
        (["--dry-run", "--listen", "bridge:9096"], "anyone who reaches bridge could send false"),
        (["--dry-run", "--data", __file__], "a folder that can be written"),
    ],
)
def test_a_mistake_in_the_flags_of_the_bridge_is_named_with_its_fix(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a mistake, with what to do; exit 2 as in every verb, 1 for what a server or a file refuses."""
    code = main(["bridge", *arguments])
    line = capsys.readouterr().err

    refused = ("Cannot assign", "can be written", "a webhook body")
    assert (1 if any(words in line for words in refused) else 2) == code
    assert printed in line
    assert line.startswith("tritonwatch bridge: ")
    assert "(fix: " in line


def test_only_a_dry_run_has_a_default_for_the_data_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages that wait for Slack must survive a restart; help and message state that the folder is required."""
    token = tmp_path / "token"
    token.write_text("xoxb-1")
    code = main(["bridge", "--slack-token-file", str(token)])
    line = capsys.readouterr().err
    assert 0 == main(["bridge", "--help"])
    shown = " ".join(capsys.readouterr().out.split())

    assert 2 == code
    assert line.startswith("tritonwatch bridge: --data: required, except with --dry-run")
    assert "(required; with --dry-run, default: a temporary folder, deleted at exit)" in shown


@pytest.mark.parametrize(
    ("option", "content", "printed"),
    [
        ("--slack-token-file", b"", "is empty"),
        ("--slack-token-file", b"\xff\xfe", "not text"),
        ("--slack-token-file", b"xoxb-s3cret\nxoxb-s3cret", "more than one line"),
        ("--slack-token-file", b"xapp-s3cret", "contains an app token"),
        ("--slack-app-token-file", b"xoxb-s3cret", "does not contain an app token"),
        ("--slack-webhook-file", b"hooks.slack.com/services/s3cret", "does not contain an address"),
    ],
)
def test_a_secret_that_cannot_be_right_is_found_before_the_first_page(
    option: str, content: bytes, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which file, and why; never what is in it."""
    file = tmp_path / "secret"
    file.write_bytes(content)

    assert 2 == main(["bridge", option, str(file), "--data", str(tmp_path)])
    line = capsys.readouterr().err
    assert f"{option} {file}: " in line
    assert printed in line
    assert "s3cret" not in line


def test_buttons_without_a_bot_token_are_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A webhook cannot receive presses, which must be an error at the start, not at the first press."""
    (tmp_path / "hook").write_text("https://hooks.slack.com/services/T0/B0/x")
    (tmp_path / "app").write_text("xapp-1")
    files = [f"--slack-webhook-file={tmp_path / 'hook'}", f"--slack-app-token-file={tmp_path / 'app'}"]

    assert 2 == main(["bridge", *files, "--data", str(tmp_path)])
    assert "buttons need a bot token" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"no database" * 1000, None])
def test_a_database_that_cannot_be_used_is_reported(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Garbage, or a folder in its place: one line that names the folder and the way out, and no traceback."""
    database = tmp_path / "bridge.sqlite"
    database.mkdir() if content is None else database.write_bytes(content)

    assert 1 == main(["bridge", "--dry-run", "--data", str(tmp_path), "--listen", "127.0.0.1:0"])
    line = capsys.readouterr().err
    assert f"--data {tmp_path}: the database cannot be used" in line
    assert "move bridge.sqlite away" in line


def test_a_database_of_a_newer_bridge_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a downgrade the bridge prints an error and does not start, so it never appears ready."""
    with sqlite3.connect(tmp_path / "bridge.sqlite") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    order = ["bridge", "--dry-run", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]

    assert 1 == main(order)
    reported = capsys.readouterr().err
    assert "it was written by another version of tritonwatch (schema 99" in reported
    assert "start the tritonwatch that wrote it" in reported


def test_two_bridges_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two senders of one database would send every message twice; a killed bridge leaves no lock."""
    with claimed(tmp_path):
        code = main(["bridge", "--dry-run", "--data", str(tmp_path), "--listen", "127.0.0.1:0"])
    line = capsys.readouterr().err

    assert 1 == code
    assert "another bridge uses this folder" in line
    with claimed(tmp_path):
        pass


def test_a_wrong_length_of_time_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2, as for every wrong argument."""
    assert 2 == main(["bridge", "--escalate-after", "soon"])
    assert "use 90s, 15m or 2h" in capsys.readouterr().err


@pytest.mark.parametrize("order", [["test", "--dry-run"], ["--dry-run", "test"]])
def test_a_sample_can_be_sent_without_slack(order: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`bridge test --dry-run` shows an incident from its opening to its end, wherever the option stands."""
    assert 0 == main(["bridge", *order])
    shown = capsys.readouterr().out

    assert "🔴 This is a test" in shown
    assert "Recovered after 4m" in shown
    assert "sent to" not in shown
    assert "dry run, nothing was sent; the channel is #triton-alerts" in shown


@pytest.fixture
def slack_flags(tmp_path: Path) -> Iterator[tuple[Workspace, list[str]]]:
    """Run a Slack with two channels; yield the flags for it."""
    workspace = Workspace()
    (tmp_path / "token").write_text(TOKEN)
    with SlackServer(workspace) as server:
        flags = ["--slack-url", server.api_url, "--slack-token-file", str(tmp_path / "token")]
        yield workspace, [*flags, "--channel", "C0PAGES", "--channel-for", "warning=C0TICKETS"]


def test_every_channel_and_the_escalation_are_tried(
    slack_flags: tuple[Workspace, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The trial shows where each message goes before the first page; it mentions nobody."""
    workspace, flags = slack_flags
    workspace.channels["C0BOSSES"] = "#bosses"
    code = main(["bridge", *flags, "--escalate-to", "C0BOSSES", "test"])
    shown = capsys.readouterr().out

    assert 0 == code
    assert {"C0PAGES", "C0TICKETS", "C0BOSSES"} == {root.channel for root in workspace.roots()}
    assert ["Nobody has acknowledged" in root.shown for root in workspace.roots("C0BOSSES")] == [True]
    assert "<!" not in "".join(message.shown.replace("<!date", "") for message in workspace.messages)
    assert "Slack: tritonwatch in workspace Stand-in" in shown
    assert "Slack: scopes channels:history, chat:write, files:write" in shown


@pytest.mark.parametrize(
    ("scopes", "channel", "printed"),
    [
        (
            ALL_SCOPES - {"channels:history"},
            "C0PAGES",
            "scope channels:history is missing: a message whose resp",
        ),
        (ALL_SCOPES - {"files:write"}, "C0PAGES", "scope files:write is missing: charts"),
        (ALL_SCOPES, "C9999", "Slack channel C9999: channel_not_found (fix: check the id; invite"),
    ],
)
def test_what_is_missing_in_slack_is_named_one_line_each(
    slack_flags: tuple[Workspace, list[str]],
    scopes: frozenset[str],
    channel: str,
    printed: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Scopes and channels are compared with what the bridge is configured to do."""
    workspace, flags = slack_flags
    workspace.scopes = scopes
    more = ["--channel-for", f"info={channel}", "--prometheus", "http://127.0.0.1:9"]
    assert 1 == main(["bridge", *flags, *more, "test"])
    lines = capsys.readouterr().err.splitlines()

    assert any(printed in line for line in lines), lines


def test_a_bad_token_is_reported_when_the_bridge_starts(tmp_path: Path) -> None:
    """The log has it at the start, not at the first page; the bridge accepts notifications all the same."""
    (tmp_path / "token").write_text("xoxb-revoked")
    with SlackServer(Workspace()) as server:
        arguments = ["--slack-url", server.api_url, "--slack-token-file", str(tmp_path / "token")]
        (port,) = free_ports(1)
        order = [sys.executable, "-m", "tritonwatch", "bridge", *arguments, "--data", str(tmp_path / "data")]
        with subprocess.Popen(
            [*order, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True
        ) as bridge:
            try:
                assert bridge.stderr is not None
                line = next(printed for printed in bridge.stderr if "auth.test" in printed)
                ready = requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=10).status_code
            finally:
                bridge.terminate()

    assert "Slack: auth.test: invalid_auth (fix: check the file of --slack-token-file)" in line
    assert "xoxb-revoked" not in line
    assert 200 == ready


def test_nobody_else_reads_what_the_bridge_keeps(tmp_path: Path) -> None:
    """Names, reasons and who pressed are for the bridge's user, files that were copied too."""
    data = tmp_path / "data"
    with claimed(data), closing(Store(private(data / DATABASE_FILE), lambda _severity: "C0PAGES")) as store:
        store.values.set("any", "")
        Audit(data / AUDIT_FILE).write(1.0, "U0ANA", "acknowledge", "ab12cd34", "Acknowledged.")
        modes = {path.name: path.stat().st_mode & 0o777 for path in data.iterdir()}
    (data / DATABASE_FILE).chmod(0o644)
    with claimed(data):
        again = (data / DATABASE_FILE).stat().st_mode & 0o777

    assert 0o700 == data.stat().st_mode & 0o777
    assert {DATABASE_FILE, f"{DATABASE_FILE}-wal", AUDIT_FILE} <= modes.keys()
    assert {0o600} == {*modes.values(), again}


def test_the_bridge_starts_on_a_full_disk_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    """The bridge responds 503, so that Alertmanager retries, and logs one line, not one a second."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    (tmp_path / "token").write_text("xoxb-stand-in")
    command = [sys.executable, "-m", "tritonwatch", "bridge", f"--listen=127.0.0.1:{port}"]
    command += [f"--data={tmp_path / 'data'}", f"--slack-token-file={tmp_path / 'token'}"]
    command += ["--slack-url=http://127.0.0.1:9/api/", "--channel=C0PAGES"]
    # No file may grow: what a full disk does, without one.
    limit = ["prlimit", "--fsize=0:unlimited", "--"]
    with subprocess.Popen(
        [*limit, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as bridge:
        try:
            refused = _answers(url, bridge)
            time.sleep(3)
            scraped = requests.get(f"{url}/metrics", timeout=5).status_code
            resource.prlimit(bridge.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            taken = _answers(url, bridge)
        finally:
            bridge.terminate()
            log = bridge.communicate(timeout=20)[1]

    assert [503, 503] == refused
    assert 200 == scraped
    assert [200, 200] == taken
    assert 1 == log.count("while it does, notifications are answered 503")
    assert "Traceback" not in log


def _answers(url: str, bridge: subprocess.Popen[str]) -> list[int]:
    """Status of readiness and of a notification, once the bridge listens."""
    deadline = time.monotonic() + 120
    while True:
        try:
            ready = requests.get(f"{url}/-/ready", timeout=5).status_code
            break
        except requests.ConnectionError:
            assert bridge.poll() is None, "the bridge has ended"
            assert time.monotonic() < deadline
            time.sleep(0.1)
    body = body_of("g", {"a": 1_700_000_000.0}, {})
    return [ready, requests.post(f"{url}/alertmanager", data=body, timeout=5).status_code]


@pytest.mark.parametrize(
    "harm",
    ["deleted", *(pytest.param(harm, marks=pytest.mark.thorough) for harm in ("replaced", "overwritten"))],
)
def test_a_database_that_is_lost_while_the_bridge_runs_is_not_ready(tmp_path: Path, harm: str) -> None:
    """Nothing that is stored would survive a restart, so that Alertmanager must keep it and somebody must look."""
    port = free_ports(1)[0]
    url, file = f"http://127.0.0.1:{port}", tmp_path / "data" / DATABASE_FILE
    command = [sys.executable, "-m", "tritonwatch", "bridge", "--dry-run", f"--listen=127.0.0.1:{port}"]
    with subprocess.Popen(
        [*command, f"--data={tmp_path / 'data'}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as bridge:
        try:
            before = _answers(url, bridge)
            if harm == "overwritten":
                with closing(sqlite3.connect(file)) as other:  # as from time to time: the log is then empty
                    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                file.write_bytes(b"\xff" * file.stat().st_size)
            else:
                file.unlink()
            if harm == "replaced":
                file.write_bytes(b"")
            ready = requests.get(f"{url}/-/ready", timeout=5)
            after = _answers(url, bridge)
        finally:
            bridge.terminate()
            bridge.communicate(timeout=20)

    assert [200, 200] == before
    assert 503 == ready.status_code
    assert "the database cannot be used: " in ready.text
    assert (
        harm == "overwritten" or "deleted or replaced while the bridge ran; restart the bridge" in ready.text
    )
    assert harm == "overwritten" or [503, 503] == after
