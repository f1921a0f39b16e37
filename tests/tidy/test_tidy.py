"""Rules about the source that no linter knows."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 600
FUNCTION_LINES_MAX = 70
PURE = ("model", "records", "protocol", "raft", "statemachine", "controller", "groups")
IMPURE = {"asyncio", "os", "socket", "threading", "time", "datetime", "random", "secrets", "uuid"}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_module_opens_with_its_theory(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{_name(path)} has no docstring"


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=_name)
def test_a_file_is_not_a_place_where_everything_goes(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= LINES_MAX, f"{_name(path)} has {lines} lines; split it"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_function_fits_a_screen(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{_name(path)}: {node.name} has {lines} lines"


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.relative_to(ROOT).parts[2] in PURE], ids=_name
)
def test_a_pure_module_imports_no_effects(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            imported.add(node.module.split(".")[0])
    assert not imported & IMPURE


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.parent.name == "storage" and path.name != "files.py"],
    ids=_name,
)
def test_only_files_py_opens_files(path: Path) -> None:
    tree = ast.parse(path.read_text())
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "open" not in calls
    assert not re.search(r"^(import os\b|from os\b)", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=_name)
def test_nothing_is_left_to_do_in_a_comment(path: Path) -> None:
    if path == Path(__file__):
        return
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())


def test_every_package_under_src_has_tests_that_mirror_it() -> None:
    packages = {
        path.name for path in (ROOT / "src/distributedlog").iterdir() if (path / "__init__.py").is_file()
    }
    mirrored = {path.name for path in (ROOT / "tests/unit").iterdir() if path.is_dir()}
    assert packages <= mirrored, f"no tests/unit/ for {sorted(packages - mirrored)}"


def test_locked_requirements_name_no_host_and_have_hashes() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text()
        assert "://" not in text
        assert "--index-url" not in text
        assert "--find-links" not in text
        pins = re.findall(r"^[a-z0-9.-]+==", text, re.MULTILINE)
        assert pins
        assert len(re.findall(r"--hash=sha256:", text)) >= len(pins)


def test_no_file_speaks_of_the_machine_it_was_written_on() -> None:
    foreign = re.compile(r"(?<![\w.])/(root|home/[a-z]+|Users/[a-z]+)/")
    for path in _tracked():
        if path == Path(__file__) or path.suffix in {
            ".bin",
            ".png",
            ".log",
            ".index",
            ".timeindex",
            ".snapshot",
        }:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        assert not foreign.findall(text), f"{_name(path)} mentions {foreign.findall(text)}"
