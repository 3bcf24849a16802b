"""Test the layout of the packages: small folders, small modules, and each name once."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support.tools import ROOT

PACKAGES = [
    ROOT / "exporters" / "triton_exporter",
    ROOT / "slo" / "triton_slo",
    ROOT / "alerts" / "triton_alerts",
    ROOT / "dashboards" / "triton_dashboards",
    ROOT / "compose" / "tritonwatch",
]
Described = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
BOUNDS = {ast.Module: 300, ast.ClassDef: 12, ast.FunctionDef: 40, ast.AsyncFunctionDef: 40}
"""What needs a reason above it: lines of a module, methods of a class, lines of a function."""

ONE_FILE_A_VERB = ROOT / "compose" / "tritonwatch" / "commands"


def modules(folder: Path, pattern: str = "**/*.py") -> list[Path]:
    """Return the modules under a folder, without the files that only mark packages."""
    return [path for path in sorted(folder.glob(pattern)) if not path.name.startswith("__")]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_folder_has_at_most_a_dozen_modules(package: Path) -> None:
    """A newcomer can read the list of a folder."""
    folders = {path.parent for path in modules(package)} - {ONE_FILE_A_VERB}
    large = {str(folder.relative_to(ROOT)) for folder in folders if len(modules(folder, "*.py")) > 12}

    assert set() == large


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_module_name_occurs_once_in_a_package(package: Path) -> None:
    """Otherwise a reader opens the wrong file."""
    names = Counter(path.stem for path in modules(package))

    assert [] == [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_class_name_occurs_once_in_a_package(package: Path) -> None:
    """A name in a traceback or a search stands for one thing."""
    names = Counter(
        node.name
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )

    assert [] == [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_function_has_at_most_60_lines(package: Path) -> None:
    """A function fits on a screen, for any reason; its docstring is not counted."""
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": size(node)
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and size(node) > 60
    }

    assert {} == long


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_what_is_large_gives_its_reason(package: Path) -> None:
    """A docstring has "Long because ..." where a function, class or module is over its bound, and only there.

    A module of functions that are all lists has "Long functions because ..." once. ruff counts branches.
    """
    large: set[str] = set()
    explained: set[str] = set()
    for path in modules(package):
        module = ast.parse(path.read_text(encoding="utf-8"))
        of_functions = gives_reason(module, "Long functions because")
        for node in ast.walk(module):
            if isinstance(node, Described):
                name = f"{path.relative_to(ROOT)} {getattr(node, 'name', '')}".strip()
                is_large = size(node) > BOUNDS[type(node)]
                large |= {name} if is_large else set()
                by_module = of_functions and is_large and isinstance(node, ast.FunctionDef)
                explained |= {name} if by_module or gives_reason(node, "Long because") else set()

    assert [] == sorted(large - explained)
    assert [] == sorted(explained - large)


def size(node: Described) -> int:
    """Return the number of lines of a module or function, or of methods of a class.

    A function's docstring and special methods do not count.
    """
    if isinstance(node, ast.ClassDef):
        methods = [
            each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        return len([name for name in methods if not name.startswith("__")])
    if isinstance(node, ast.Module):
        return node.body[-1].end_lineno or 0
    lines = (node.end_lineno or 0) - node.lineno + 1
    first = node.body[0]
    return lines - ((first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) else 0)


def gives_reason(node: Described, words: str) -> bool:
    """Return whether a line of the docstring begins with these words."""
    return re.search(rf"^{words} \S", ast.get_docstring(node) or "", re.MULTILINE) is not None


def test_the_seconds_of_a_day_are_written_once() -> None:
    """Readers of `30 * DAY` need not count digits."""
    counted = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in PACKAGES
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == 86_400
    }

    assert ["exporters/triton_exporter/common/duration.py:8"] == sorted(counted)


def test_one_module_queries_prometheus() -> None:
    """Timeouts, credentials, TLS and error messages of queries are written once, over the library's public part."""
    query = re.compile(r"prometheus_api_client|api/v1/query|_connect\._")
    asking = {
        str(path.relative_to(ROOT)): query.findall(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in modules(package)
    }
    asking = {path: names for path, names in asking.items() if names}

    assert {"slo/triton_slo/prometheus/client.py": ["prometheus_api_client"]} == asking


def test_there_is_one_http_server() -> None:
    """Limits, TLS and deadlines of connections are written once."""
    servers = [
        path.name
        for package in PACKAGES
        for path in modules(package)
        if "BaseHTTPRequestHandler" in path.read_text(encoding="utf-8")
    ]

    assert ["server.py"] == servers


def test_the_drawings_of_the_design_name_modules_that_exist() -> None:
    """A reader who follows a flow on the page opens the right file."""
    drawings = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "design.md").read_text(), re.DOTALL)
    named = {path for drawing in drawings for path in re.findall(r"\b[a-z_/]+\.py\b", drawing)}
    files = [f"/{path.relative_to(package.parent)}" for package in PACKAGES for path in modules(package)]

    assert "burn/rule_groups.py" in named
    assert [] == sorted(path for path in named if not any(file.endswith(f"/{path}") for file in files))


def test_the_page_for_contributors_names_files_that_exist() -> None:
    """A contributor who follows "where to add what" finds each file; names in capitals stand for a new file."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z0-9_./-]+(?:\.py|\.md|\.toml|\.yml|/))`", page))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [f"/{path}" for path in listed.stdout.splitlines()]

    assert "triton_exporter/distribution/buckets.py" in named
    assert [] == sorted(
        path
        for path in named
        if not any(f"/{path}" in file if path.endswith("/") else file.endswith(f"/{path}") for file in files)
    )


def test_every_shared_module_of_the_tests_is_in_their_readme() -> None:
    """A newcomer finds each helper in one list."""
    support = ROOT / "tests" / "support"
    named = set(re.findall(r"`([\w/]+)`", (support / "README.md").read_text()))
    modules_here = {path.relative_to(support).with_suffix("").as_posix() for path in support.rglob("*.py")}

    assert set() == modules_here - named - {"__init__"}
