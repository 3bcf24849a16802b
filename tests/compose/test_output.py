"""Test that generated files are written all or none, and that only generated files are deleted."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from support.conversion import SLOTH
from support.tools import ROOT
from triton_exporter.common.problem import ProblemsError
from tritonwatch.cli import main
from tritonwatch.output import MANIFEST, drift, write, write_file

OBJECTIVES = ROOT / "slo" / "objectives"
GENERATE = ["generate", "--objectives", str(OBJECTIVES)]


def _tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


def test_a_second_run_leaves_no_drift(tmp_path: Path) -> None:
    """Writing makes exactly what the check then accepts; afterwards it names each file that a run would touch."""
    wanted = {"rules/a.yml": "a\n", "b.json": "{}\n"}

    assert {f"{tmp_path}/b.json: missing", f"{tmp_path}/rules/a.yml: missing"} <= set(drift(tmp_path, wanted))
    write(tmp_path, wanted)

    assert [] == drift(tmp_path, wanted)
    assert wanted == _tree(tmp_path)
    (tmp_path / "b.json").write_text("edited")
    assert [f"{tmp_path}/b.json: differs"] == drift(tmp_path, wanted)


def test_a_file_no_longer_made_is_removed_and_a_users_file_stays(tmp_path: Path) -> None:
    """A removed objective's rules go away; a file that somebody put beside them does not."""
    write(tmp_path, {"rules/old.yml": "old", "rules/kept.yml": "kept"})
    (tmp_path / "rules" / "mine.yml").write_text("mine")

    assert [f"{tmp_path}/rules/old.yml: no longer generated"] == [
        line for line in drift(tmp_path, {"rules/kept.yml": "kept"}) if "old" in line
    ]
    write(tmp_path, {"rules/kept.yml": "kept"})

    assert {"rules/kept.yml": "kept", "rules/mine.yml": "mine"} == _tree(tmp_path)


def test_a_manifest_cannot_point_outside(tmp_path: Path) -> None:
    """An edited manifest cannot make the command delete another file."""
    (tmp_path / "precious").write_text("data")
    out = tmp_path / "out"
    out.mkdir()
    (out / MANIFEST).write_text(f"../precious\n{tmp_path}/precious\n.\n")

    write(out, {"a": "a"})

    assert "data" == (tmp_path / "precious").read_text()


@pytest.mark.parametrize("blocked", ["rules", "rules/b.yml/x"])
def test_what_cannot_be_written_changes_nothing(tmp_path: Path, blocked: str) -> None:
    """One file that cannot be written leaves all old files as they were, and no draft."""
    write(tmp_path, {"a.yml": "old"})
    obstacle = tmp_path / Path(blocked).parts[0]
    obstacle.write_text("a file where a folder must be")

    with pytest.raises(ProblemsError, match="is a file, not a folder"):
        write(tmp_path, {"a.yml": "new", f"{blocked}/b.yml": "new"})

    assert {"a.yml": "old", obstacle.name: "a file where a folder must be"} == _tree(tmp_path)


@pytest.mark.parametrize("planted", [".slo-errors.yml.new", "slo-errors.yml", ".tritonwatch-generated.new"])
def test_a_planted_link_is_never_followed(tmp_path: Path, planted: str) -> None:
    """Who may write into the folder cannot make `generate` overwrite a file elsewhere."""
    (tmp_path / "victim").write_text("data")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / planted).symlink_to(tmp_path / "victim")

    words = ["--objectives", str(OBJECTIVES), "--only", "rules", "--out", str(tmp_path / "rules")]
    assert 0 == main(["generate", *words])

    assert "data" == (tmp_path / "victim").read_text()
    written = tmp_path / "rules" / "slo-errors.yml"
    assert (False, 0o644) == (written.is_symlink(), written.stat().st_mode & 0o777)


@pytest.mark.parametrize(
    ("verb", "out", "message"),
    [
        (GENERATE, "FILE", "--out FILE: is a file, nothing was written (fix: name a folder)"),
        (GENERATE, "FILE/deep", "FILE is a file, not a folder"),
        (GENERATE, "/proc/x", "/proc/x: cannot be written: its folder cannot be created"),
        (GENERATE, "", "--out: the value is empty; is a variable unset?"),
        (["dashboards", "write"], "FILE", "FILE: cannot be written into: it is a file, not a folder"),
        (["convert", "--from", "sloth", "slos.yaml"], "FILE/x", "FILE is a file, not a folder"),
        (
            ["convert", "--from", "sloth", "--force", "slos.yaml"],
            ".",
            "--out .: is a folder (fix: name a file in this folder)",
        ),
    ],
)
def test_a_place_that_cannot_be_written_is_named_with_the_reason(
    verb: list[str],
    out: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message names what is in the way, without an error number of the system."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("mine")
    (tmp_path / "slos.yaml").write_text(SLOTH)
    place = str(tmp_path / out) if out.startswith("FILE") else out

    assert main([*verb, "--out", place]) in (1, 2)
    printed = capsys.readouterr().err.replace(f"{tmp_path}/", "")
    assert message in printed
    assert "Errno" not in printed
    assert "mine" == (tmp_path / "FILE").read_text()


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("verb", ["generate", "reload", "dashboards write"])
@pytest.mark.parametrize("out", ["objectives", "objectives/out", "link", "parts"])
def test_nothing_is_written_among_the_objectives(
    verb: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of objectives stays the user's own, also where --out reaches it by a link or by a part of it."""
    if (verb, out) == ("dashboards write", "parts"):
        pytest.skip("dashboards have no parts")
    monkeypatch.chdir(tmp_path)
    folder = Path("parts/rules" if out == "parts" else "objectives")
    shutil.copytree(OBJECTIVES, folder)
    Path("link").symlink_to(folder)
    before = _names(tmp_path)
    prometheus = ["--prometheus", "http://127.0.0.1:9"] if verb == "reload" else []

    assert 2 == main([*verb.split(), "--objectives", str(folder), "--out", out, *prometheus])

    assert f"--out {out}: would write into the folder of the objectives, {folder}" in capsys.readouterr().err
    assert before == _names(tmp_path)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--webhook-url", "nonsense"),
        ("--webhook-url", ""),
        ("--webhook-url", "http://"),
        ("--webhook-url", "http://bridge:port/alertmanager"),
        ("--webhook-url", "http://bridge/alert manager"),
        ("--watchdog-url", "hc-ping.com/1"),
        ("--runbook-url", "{alert}"),
        ("--runbook-url", "https://wiki/{name}"),
        ("--dashboard-url", "grafana.example.org"),
        ("--fallback", "https://"),
        ("--selector", 'a="b"}'),
    ],
)
@pytest.mark.parametrize("verb", ["generate", "reload"])
def test_a_bad_address_is_refused_before_anything_is_written(
    verb: str, option: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise it would be noticed only when a page does not arrive; a wrong selector would break every query."""
    out = tmp_path / "out"
    prometheus = ["--prometheus", "http://127.0.0.1:9"] if verb == "reload" else []

    assert 2 == main([verb, "--objectives", str(OBJECTIVES), "--out", str(out), *prometheus, option, text])

    assert f"{option}: " in (printed := capsys.readouterr().err)
    assert repr(text) in printed
    assert not out.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody with fewer rights")
def test_a_folder_without_permission_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """As in a container whose user may not write there."""
    with tempfile.TemporaryDirectory() as name:
        open_folder, closed = Path(name), Path(name) / "closed"
        open_folder.chmod(0o755)
        closed.mkdir(mode=0o700)
        os.seteuid(65534)
        try:
            codes = [
                main(["check", str(closed)]),
                main(["generate", "--objectives", str(OBJECTIVES), "--out", name]),
            ]
        finally:
            os.seteuid(0)
        printed = capsys.readouterr().err

        assert [2, 1] == codes
        assert f"tritonwatch check: {closed}: Permission denied" in printed
        assert f"tritonwatch generate: {name}/rules: cannot be written: Permission denied" in printed
        assert [closed] == list(open_folder.iterdir())


def test_one_file_replaces_none_unasked(tmp_path: Path) -> None:
    """A file created meanwhile is not changed; with `replace` it is replaced; no temporary file is left."""
    path = tmp_path / "new" / "o.yaml"
    write_file(path, "first")

    with pytest.raises(FileExistsError):
        write_file(path, "second")
    assert "first" == path.read_text()
    write_file(path, "third", replace=True)

    assert "third" == path.read_text()
    assert [path] == list(path.parent.iterdir())


RECEIVERS = (
    ("--webhook-url", "http://sre:9096/alertmanager"),
    ("--webhook-token-file", "/run/token"),
    ("--watchdog-url", "https://dead-man.example.com/ping"),
    ("--fallback", "pagerduty:///run/key"),
    ("--page-to", "pagerduty:///run/key"),
    ("--ticket-to", "jsm:///run/key"),
)


def test_an_option_of_receivers_that_is_left_out_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a silent change of where pages go, nor a difference that is none: each option is named."""
    command = ["generate", "--objectives", str(OBJECTIVES), "--only", "alertmanager", "--out", str(tmp_path)]
    assert 0 == main([*command, *(word for pair in RECEIVERS for word in pair)])
    before = _tree(tmp_path)
    capsys.readouterr()

    for left_out in RECEIVERS:
        for more in ([], ["--check"]):
            words = [word for pair in RECEIVERS if pair != left_out for word in pair]
            assert 1 == main([*command, *words, *more]), left_out
            printed = capsys.readouterr().err
            assert f"(fix: add {left_out[0]}" in printed
            assert "differs" not in printed
            assert before == _tree(tmp_path)
    assert 0 == main([*command, *(word for pair in RECEIVERS for word in pair), "--check"])


def test_a_configuration_of_somebody_else_is_not_asked_for_options(tmp_path: Path) -> None:
    """A file without our receivers says nothing about our options."""
    (tmp_path / "alertmanager.yml").write_text("receivers: [{name: theirs}]")

    command = ["generate", "--objectives", str(OBJECTIVES), "--only", "alertmanager", "--out", str(tmp_path)]
    assert 0 == main(command)
