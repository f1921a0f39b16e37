"""Rules about the source that no linter knows."""

import ast
import importlib
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.test_mutants import MUTANTS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/distributedlog"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 600
FUNCTION_LINES_MAX = 70
SOURCE_FOLDER_FILES_MAX = 20
TEST_FOLDER_FILES_MAX = 40
"""Twice as many: a module may have two files of tests, its rules and its stories; and there are stages."""
ONE_FILE_EACH = {
    "src/distributedlog/broker/handlers",
    "src/distributedlog/protocol/messages",
    "tests/unit/broker/handlers",
}
"""One file for each API, named after it: nobody looks for one by reading the list."""
WITHOUT_MIRROR = {
    ".": "the version",
    "control/_generated": "made by protoc",
    "gateway/_generated": "made by protoc",
    "protocol/messages": "schemas; tests/unit/protocol holds them against Kafka's, all in the same way",
}
PURE = ("model", "records", "protocol", "raft", "statemachine", "controller", "groups", "transactions")
IN_MID_SENTENCE = re.compile(
    r"(After|Also|And|As|At|Because|Before|Behind|Between|Beyond|But|By|For|In|Into|Of|On|Or|Out|Since|Than|To|Up"
    r"|While|With)\b|\.\.\.|…"
)
IMPURE = {"asyncio", "os", "socket", "threading", "time", "datetime", "random", "secrets", "uuid"}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def _text(path: Path) -> str:
    return path.read_text()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path))


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


# --- files -------------------------------------------------------------------------------------


def test_a_module_opens_with_its_theory() -> None:
    assert not [_name(path) for path in SOURCES if not ast.get_docstring(_tree(path))], "no docstring"


def test_a_file_is_not_a_place_where_everything_goes() -> None:
    lines = {_name(path): _text(path).count("\n") for path in SOURCES + TESTS}
    assert not {name: count for name, count in lines.items() if count > LINES_MAX}, "split them"


def test_a_function_fits_a_screen() -> None:
    long = {
        f"{_name(path)}: {node.name}": lines
        for path in SOURCES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not long


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def test_a_pure_module_imports_no_effects() -> None:
    pure = [path for path in SOURCES if path.relative_to(ROOT).parts[2] in PURE]
    assert pure
    assert not {_name(path): found for path in pure if (found := _imported(path) & IMPURE)}


def test_only_files_py_opens_files() -> None:
    storage = ROOT / "src/distributedlog/storage"
    others = [path for path in SOURCES if path.is_relative_to(storage) and path != storage / "files.py"]
    assert others
    for path in others:
        calls = {
            node.func.id
            for node in ast.walk(_tree(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert "open" not in calls, _name(path)
        assert not re.search(r"^(import os\b|from os\b)", _text(path), re.MULTILINE), _name(path)


def test_nothing_is_left_to_do_in_a_comment() -> None:
    mark = re.compile(r"\b(TODO|FIXME|XXX)\b")
    paths = [path for path in SOURCES + TESTS if path != Path(__file__)]
    assert not [_name(path) for path in paths if mark.search(_text(path))]


# --- docstrings --------------------------------------------------------------------------------


def _docstrings(path: Path) -> list[tuple[int, str]]:
    """Returns every text that stands as a statement: of modules, classes, functions and attributes."""
    return [
        (node.lineno, node.value.value.strip())
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def test_a_docstring_does_not_begin_in_mid_sentence() -> None:
    found = [
        f"{_name(path)}:{line}: {text[:60]}"
        for path in SOURCES + TESTS
        for line, text in _docstrings(path)
        if IN_MID_SENTENCE.match(text)
    ]
    assert not found, "a docstring is a whole sentence, or a noun phrase that names the thing"


# --- folders -----------------------------------------------------------------------------------


def _modules(root: Path) -> Counter[Path]:
    """How many each folder has, at every depth."""
    return Counter(path.parent for path in root.rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize(
    ("root", "most"), [("src", SOURCE_FOLDER_FILES_MAX), ("tests", TEST_FOLDER_FILES_MAX)]
)
def test_a_folder_is_not_a_place_where_everything_goes(root: str, most: int) -> None:
    counts = {_name(folder): count for folder, count in _modules(ROOT / root).items()}
    too_full = {name: count for name, count in counts.items() if count > most and name not in ONE_FILE_EACH}
    assert not too_full, "divide them by what their modules are for"


def test_every_folder_under_src_has_tests_that_mirror_it() -> None:
    places = {str(folder.relative_to(PACKAGE)) for folder in _modules(PACKAGE)}
    assert places >= WITHOUT_MIRROR.keys()
    wanted = places - WITHOUT_MIRROR.keys()
    assert not [place for place in wanted if not list((ROOT / "tests/unit" / place).glob("test_*.py"))]


def test_every_folder_of_unit_tests_mirrors_something() -> None:
    """A package under src, or what the tests themselves are made of."""
    unit = ROOT / "tests/unit"
    places = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert not [
        each for each in places if not (PACKAGE / each).is_dir() and not (ROOT / "tests" / each).is_dir()
    ]


# --- seeded bugs -------------------------------------------------------------------------------


def test_every_seeded_bug_has_its_place_in_the_source_and_tests_that_are_there() -> None:
    """`make test` runs them; where code or tests moved, this says so at once."""
    lost = [
        mutant.name
        for mutant in MUTANTS
        if not (PACKAGE / mutant.file).is_file()
        or _text(PACKAGE / mutant.file).count(mutant.old) != 1
        or not all((ROOT / each).exists() for each in mutant.tests.split() if each.startswith("tests/"))
    ]
    assert MUTANTS
    assert not lost


def test_every_bug_seeded_into_simulations_has_its_place_in_the_source() -> None:
    modules = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts)
        for module in sorted((ROOT / "tests" / "simulation").rglob("*mutants.py"))
        if not module.name.startswith("test_")
    ]
    assert "tests.simulation.brokers.mutants" in modules
    seeded = [mutant for module in modules for mutant in importlib.import_module(module).MUTANTS]
    assert seeded
    assert not [mutant.name for mutant in seeded if _text(PACKAGE / mutant.file).count(mutant.old) != 1]


# --- the map -----------------------------------------------------------------------------------


def _is_there(reference: str) -> bool:
    """Returns whether a module, folder or file is there and, behind dots, defines these names."""
    path, *names = reference.split(".") if not (ROOT / reference).exists() else [reference]
    for root in (PACKAGE, PACKAGE / "broker", ROOT):
        if (root / path).is_dir() and not names:
            return True
        module = root / f"{path}.py"
        if module.is_file():
            return all(re.search(rf"\b(def|class) {name}\b", _text(module)) for name in names)
    return (ROOT / reference).exists()


def test_what_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+(?:\.[A-Za-z_.]+)?)`", text))
    assert len(named) > 50
    assert not sorted(each for each in named if not _is_there(each))


# --- what is published -------------------------------------------------------------------------


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
