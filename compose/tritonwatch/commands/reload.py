"""`tritonwatch reload`: load edited objectives into a running Prometheus, or keep the old rules."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from triton_alerts.alertmanager import FILE, FRAGMENT, contains
from triton_alerts.alertmanager_client import Alertmanager, ReloadableServer, ServerError
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.common.yaml_files import YAML_FAULTS, fault
from triton_slo.objective.reading import read
from tritonwatch import access, output
from tritonwatch.arguments import objective_texts
from tritonwatch.commands.check import unmeasured_objectives
from tritonwatch.commands.generate import by_path, generated

CHECKERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "promtool": (("check", "rules"), "rules/*.yml"),
    "amtool": (("check-config",), "alertmanager/alertmanager.yml"),
}
"""Program -> its arguments and the files it checks."""
_CHECK_SECONDS = 120
_DEFINING = ("name", "query", "duration", "keepFiringFor", "labels", "annotations")
_Groups = Mapping[str, dict[str, Any]]
"""Groups of rule files by name."""
_Rules = Mapping[str, list[dict[str, Any]]]
"""Rules by the name of their group, as Prometheus shows them."""


def run(args: argparse.Namespace) -> int:
    """Generate the files, check them, write them and reload."""
    reached = access.from_arguments(args, os.environ)
    prometheus = ReloadableServer("Prometheus", reached)
    alertmanager = None
    if args.alertmanager:
        alertmanager = Alertmanager(replace(reached, url=args.alertmanager))
    texts = objective_texts(args.objectives)
    files = by_path(generated(args, texts))
    accepting = check(files)
    for name in CHECKERS:
        print(f"{name}: {'the new files are valid' if name in accepting else 'not installed, check skipped'}")
    # Of two at once, each would take the other's files for its own, and restore them for those before.
    with output.locked(args.out):
        write_and_load(args.out, files, prometheus, alertmanager)
    servers = "Prometheus"
    if alertmanager:
        if contains(alertmanager.configuration(), files[f"alertmanager/{FILE}"]):
            servers = "Prometheus and Alertmanager"
        else:
            print(
                f"note: {alertmanager} has other routes, receivers or inhibit rules than the generated ones: copy the "
                f"lists of {args.out}/alertmanager/{FRAGMENT} into its configuration again, or let it load {FILE} there",
                file=sys.stderr,
            )
    print(f"wrote {len(files)} files to {args.out}; {servers} loaded them")
    try:
        with access.connect(args) as reader:
            # Such as a new threshold, for which the exporter has no bucket yet.
            for gap in unmeasured_objectives(reader, read(texts), args.scrape_interval):
                print(f"note: {gap}", file=sys.stderr)
    except ProblemsError as error:
        print(f"note: not checked whether every objective has data: {error}", file=sys.stderr)
    return 0


class ReloadError(ProblemsError):
    """The new files are not loaded; the message has the reason, what to do, and the state of the old files."""

    def __init__(
        self, reason: object, after: str = "nothing was written; the old rules are still loaded"
    ) -> None:
        super().__init__(Problem("", f"{reason}\n{after}"))


def check(files: Mapping[str, str]) -> list[str]:
    """Check the files with promtool and amtool, where installed, and return which of them ran.

    Raises ReloadError with their output.
    """
    with tempfile.TemporaryDirectory(prefix="tritonwatch-check-") as scratch:
        folder = Path(scratch)
        output.write(folder, files)
        return [name for name in CHECKERS if _run_checker(name, folder)]


def _run_checker(name: str, folder: Path) -> bool:
    """Return whether a checker ran, which accepted the files; False if it is not installed or has no files."""
    program = shutil.which(name)
    arguments, pattern = CHECKERS[name]
    paths = sorted(folder.glob(pattern))
    if program is None or not paths:
        return False
    try:
        done = subprocess.run(
            [program, *arguments, *map(str, paths)], capture_output=True, text=True, timeout=_CHECK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReloadError(f"{name} could not be run: {error}") from error
    if done.returncode != 0:
        printed = (done.stderr + done.stdout).replace(f"{folder}/", "").strip()
        raise ReloadError(f"{name} refuses the new files:\n{printed}")
    return True


def write_and_load(
    folder: Path, files: Mapping[str, str], prometheus: ReloadableServer, alertmanager: Alertmanager | None
) -> None:
    """Write the files and reload both servers; on an error restore the old files and raise ReloadError.

    Nothing is written while a server is unreachable, because the old files could not be loaded again either.
    """
    servers = [prometheus, *([alertmanager] if alertmanager else [])]
    try:
        for server in servers:
            server.check_ready()
        loaded, file_of = prometheus.ask("GET", "/api/v1/rules", _loaded)
        before = output.existing(folder, files)
        old, new = _written(folder, before), _written(folder, files)
        output.write(folder, files)
    except UnicodeDecodeError as error:
        raise ReloadError(
            f"{folder} contains a file that tritonwatch did not write (not UTF-8 text); move it away"
        ) from error
    except (ProblemsError, ServerError) as error:
        raise ReloadError(error) from error
    try:
        for server in servers:
            server.reload()
        _check_loaded(prometheus, folder, old, new, loaded)
    except ServerError as refusal:
        # Restored, the old files would unload these: they were deleted since Prometheus read them.
        ours = _rule_files(folder)
        lost = sorted(
            name
            for name in (loaded.keys() & new.keys()) - old.keys()
            if not Path(file_of[name]).exists() or Path(file_of[name]).resolve() in ours
        )
        if lost:
            after = (
                f"the new files stay in {folder}: the old ones lack groups that Prometheus evaluated until now "
                f"({', '.join(lost)}); mend the cause and reload again"
            )
            raise ReloadError(refusal, after) from refusal
        raise ReloadError(refusal, _restore_old_files(folder, before, servers)) from refusal


def _restore_old_files(folder: Path, before: Mapping[str, str], servers: list[ReloadableServer]) -> str:
    try:
        output.write(folder, before)
    except ProblemsError as error:
        return f"the old files could NOT be restored in {folder}: {error}"
    failures = []
    for server in servers:
        try:
            server.reload()
        except ServerError as error:
            failures.append(str(error))
    if failures:
        return "the old files are restored, but reloading them failed too: " + "; ".join(failures)
    return "the old files are restored and loaded"


def _check_loaded(
    prometheus: ReloadableServer, folder: Path, old: _Groups, wanted: _Groups, loaded_before: _Rules
) -> None:
    """Compare the loaded rules: a reload can succeed on other files than these.

    Prometheus shows expressions in a form of its own, so they are not compared with the files. It names the file of
    a group; where that is none of this machine, one of the groups that changed must have changed in Prometheus.
    """
    loaded, file_of = prometheus.ask("GET", "/api/v1/rules", _loaded)
    written = _rule_files(folder)
    wrong = [
        name
        for name, group in wanted.items()
        if sorted(rule["name"] for rule in loaded.get(name, ()))
        != sorted(rule.get("alert") or rule["record"] for rule in group["rules"])
    ]
    changed = [
        name
        for name, group in wanted.items()
        if group != old.get(name) and Path(file_of.get(name, "")).resolve() not in written
    ]
    if not wrong and changed and all(loaded[name] == loaded_before.get(name) for name in changed):
        wrong = changed
    if wrong:
        raise ServerError(
            f"{prometheus} reloaded other files: its group {wrong[0]!r} "
            "is not the new one; add the folder given as --out to its rule_files"
        )


def _rule_files(folder: Path) -> set[Path]:
    return {path.resolve() for path in (folder / "rules").glob("*.yml")}


def _written(folder: Path, files: Mapping[str, str]) -> _Groups:
    """Return the groups in the rule files among these. Raises ProblemsError for one that has been damaged."""
    groups: dict[str, dict[str, Any]] = {}
    for path, text in files.items():
        if path.startswith("rules/"):
            try:
                groups |= {group["name"]: group for group in (yaml.safe_load(text) or {}).get("groups") or ()}
            except YAML_FAULTS as error:
                reason = (
                    f"is damaged, and could not be restored if the new rules were refused: {fault(error)}"
                )
                raise ProblemsError(
                    Problem(str(folder / path), reason, "tritonwatch generate writes it anew")
                ) from error
    return groups


def _loaded(answer: Any) -> tuple[_Rules, Mapping[str, str]]:
    """Return what defines each rule, by group, without its state and the time of its evaluation; and each group's file."""
    rules_by_group: dict[str, list[dict[str, Any]]] = {}
    for group in answer["data"]["groups"]:
        rules = [{key: rule.get(key) for key in _DEFINING} for rule in group["rules"]]
        rules_by_group.setdefault(group["name"], []).extend(rules)
    return rules_by_group, {group["name"]: group["file"] for group in answer["data"]["groups"]}
