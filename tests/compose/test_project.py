"""Test the project file: read by every verb, overridden by flags, and its mistakes named with their lines."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest
import yaml

from support.tools import ROOT
from triton_alerts.bridge.settings import BridgeSettings
from tritonwatch import project
from tritonwatch.cli import main
from tritonwatch.project import Generation, Pages, Reloading, Reported

PROJECT = """\
prometheus: {url: http://127.0.0.1:1, timeout: 1s}
alertmanager: [http://127.0.0.1:2, http://127.0.0.1:3]
grafana: {url: http://127.0.0.1:4, token_file: grafana.token}
bridge: {url: http://127.0.0.1:5, token_file: bridge.token, data: incidents, channel: C0PAGES}
receivers: {page_to: ["webhook:///run/secrets/pages"]}
tritons: ["exporter:9401=http://triton:8000"]
objectives: objectives
out: generated
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with a project file and objectives."""
    (tmp_path / "tritonwatch.yaml").write_text(PROJECT)
    (tmp_path / "bridge.token").write_text("s3cret")
    shutil.copytree(ROOT / "slo" / "objectives", tmp_path / "objectives")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_generate_and_reload_read_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said on the command line, so that two verbs cannot differ in it."""
    assert 0 == main(["generate"])
    assert 0 == main(["generate", "--check"])
    printed = capsys.readouterr()
    receivers = (folder / "generated" / "alertmanager" / "alertmanager.yml").read_text()
    targets = yaml.safe_load((folder / "generated" / "targets" / "triton.yml").read_text())

    assert "wrote " in printed.out
    assert "names of models are not checked: Prometheus at http://127.0.0.1:1 is not reachable" in printed.err
    assert "http://127.0.0.1:5/alertmanager" in receivers
    assert "/run/secrets/pages" in receivers
    assert [{"targets": ["exporter:9401"], "labels": {"instance": "triton:8000"}}] == targets
    assert 1 == main(["reload"])
    assert "Prometheus at http://127.0.0.1:1 is not reachable" in capsys.readouterr().err


def test_each_program_finds_the_others(folder: Path) -> None:
    """An address is written once; a path is relative to the file."""
    file = project.load(argparse.Namespace(project=folder / "tritonwatch.yaml"), {})
    pages, bridge = Pages.read({}, {}, file), BridgeSettings.read({"dry_run": "true"}, {}, file)
    reported = Reported.read({}, {}, file)

    assert ("http://127.0.0.1:1", 1.0) == (pages.prometheus, pages.timeout)
    assert ("http://127.0.0.1:2", "http://127.0.0.1:4") == (pages.alertmanager, pages.grafana)
    assert ("http://127.0.0.1:5", folder / "bridge.token") == (
        reported.bridge_url,
        reported.bridge_token_file,
    )
    assert ("http://127.0.0.1:2", "http://127.0.0.1:3") == bridge.alertmanager
    assert ("http://exporter:9401",) == bridge.exporter
    assert (folder / "incidents", "C0PAGES") == (bridge.data, bridge.channel)


def test_a_flag_wins_over_the_variable_and_this_over_the_file(folder: Path) -> None:
    """So that one command can differ from the project."""
    file = project.load(argparse.Namespace(), {})
    variable = {
        "TRITONWATCH_PROMETHEUS": "http://variable",
        "TRITONWATCH_RECEIVERS_PAGE_TO": "webhook:///a\nwebhook:///b",
    }

    assert "http://variable" == Reloading.read({}, variable, file).prometheus
    assert "http://flag" == Reloading.read({"prometheus": "http://flag"}, variable, file).prometheus
    assert ("webhook:///a", "webhook:///b") == Generation.read({}, variable, file).page_to


def test_every_mistake_in_the_file_has_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown keys with the nearest known one; wrong values as on the command line."""
    (folder / "tritonwatch.yaml").write_text(
        "prometheus: {url: http://127.0.0.1:1, timout: 5s}\nobjectives: objectives\nout: generated\n"
        "scrape_interval: soon\nreceivers:\n  page-to: [x]\ntritons: [nowhere]\n"
        "bridge: {exporter: http://localhost:9401}\ndata: x\n"
    )

    assert 1 == main(["generate"])
    lines = capsys.readouterr().err.replace("tritonwatch generate: tritonwatch.yaml:", "").splitlines()
    for line, expected in zip(
        lines,
        (
            "1: prometheus.timout: is not an option (fix: did you mean prometheus.timeout or prometheus.url?)",
            "6: receivers.page-to: is not an option (fix: did you mean receivers.page_to or receivers.ticket_to?)",
            "8: bridge.exporter: is not an option (fix: write it as tritons: EXPORTER=TRITON)",
            "9: data: is not an option (fix: write it as bridge.data: DIR)",
            "4: scrape_interval: 'soon' is not a duration such as 100ms",
            "7: tritons: 'nowhere' is not EXPORTER=TRITON",
        ),
        strict=True,
    ):
        assert line.startswith(expected)
    assert not (folder / "generated").exists()


@pytest.mark.parametrize(
    ("second", "same"), [("exporter:9401=http://b:8000", "exporter"), ("other:9401=triton:8000/", "Triton")]
)
@pytest.mark.parametrize("verb", ["generate", "check"])
def test_two_exporters_of_one_triton_are_refused(
    folder: Path, verb: str, second: str, same: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every request counted twice, and the Triton that was meant was watched by nobody."""
    first = "exporter:9401=http://triton:8000"
    (folder / "tritonwatch.yaml").write_text(PROJECT.replace(f'"{first}"', f'"{first}", "{second}"'))

    assert 1 <= main([verb, *(["--offline"] if verb == "check" else [])])
    refused = (
        f"tritonwatch.yaml:6: tritons: {first} and {second} are the same {same}: its requests would count"
    )
    assert refused in capsys.readouterr().err
    assert not (folder / "generated").exists()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1?x=1", "'http://h:1?x=1' has a ? or a #; give the URL without it"),
        (
            "http://h:1/alertmanager",
            "'http://h:1/alertmanager' ends with /alertmanager, which is added to it",
        ),
        ("ftp://h:1", "'ftp://h:1' is not a URL such as http://127.0.0.1:8000"),
        (
            "http://me:pw@h:1",
            "a URL takes no user and password (fix: name the file of the bridge's token as token_file)",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["generate", "check", "report"])
def test_a_wrong_address_of_the_bridge_is_named_as_written(
    folder: Path, verb: str, url: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the address of the webhook, which nobody wrote."""
    (folder / "tritonwatch.yaml").write_text(PROJECT.replace("http://127.0.0.1:5", f"'{url}'"))

    assert 1 <= main([verb])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tritonwatch {verb}: tritonwatch.yaml:4: bridge.url: {expected}")


def test_an_address_of_the_bridge_needs_no_scheme(folder: Path) -> None:
    """As every other address of the file; the bridge listens there, and Alertmanager sends there."""
    (folder / "tritonwatch.yaml").write_text(PROJECT.replace("http://127.0.0.1:5", "127.0.0.1:5"))
    file = project.load(argparse.Namespace(), {})

    assert "http://127.0.0.1:5/alertmanager" == Generation.read({}, {}, file).webhook_url
    assert ("127.0.0.1", 5) == BridgeSettings.read({"dry_run": "true"}, {}, file).listen


def test_a_named_file_must_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name would otherwise mean the defaults."""
    assert 1 == main(["status", "--project", str(tmp_path / "none.yaml")])
    assert f"{tmp_path / 'none.yaml'}: No such file or directory" in capsys.readouterr().err


def test_check_reads_the_files_of_the_project(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without names of files on the command line."""
    (folder / "objectives" / "wrong.yaml").write_text("name: a\ntarget: 0%\nindicator: errors\n")

    assert 1 == main(["check"])
    assert f"{folder / 'objectives' / 'wrong.yaml'}:2: ".removeprefix(f"{folder}/") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("channels", "refused"),
    [
        ('channel_for: {warning: "#tickets"}', ""),
        (
            'channel_for: {ticket: "#tickets"}',
            "channel_for: 'ticket=#tickets' is not understood (fix: SEVERITY=CHANNEL, severity one of critical",
        ),
        (
            "channel_for: {warning: #tickets\n  }",
            "channel_for: None is not text; a name such as null, true or #pages",
        ),
        ("channel: #pages\n ", "channel: has no value (fix: write one, in quotes if it begins with #, or"),
    ],
)
def test_check_reads_what_only_the_bridge_needs(
    folder: Path, channels: str, refused: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bridge would refuse to start with it, perhaps on another machine; the files it names are there."""
    text = PROJECT.replace("channel: C0PAGES", f"{channels}, slack_token_file: elsewhere")
    # Of the receivers, all keys are comments.
    (folder / "tritonwatch.yaml").write_text(text.replace(' {page_to: ["webhook:///run/secrets/pages"]}', ""))

    assert bool(refused) == bool(main(["check", "--offline"]))
    assert (f"tritonwatch.yaml:4: bridge.{refused}" if refused else "") in capsys.readouterr().err
