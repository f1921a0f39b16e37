"""Which unit tests a change calls for, the nearest first.

    0   tests that were changed themselves, and those of the same name as a changed module: `a/b.py` has
        `tests/unit/a/test_b*.py`
    1   the rest of the folder that mirrors it, and all unit tests that import what was changed
    2   the unit tests in folders that mirror packages in which something imports what was changed

A test is listed once, in the first tier that has it.  Imports are read from the source, not followed further:
whoever imports an importer is left to `make test`.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

PACKAGE: Final = PurePosixPath("src/distributedlog")
UNIT: Final = PurePosixPath("tests/unit")
ROOTS: Final = (
    "src",
    "tests/unit",
    "tests/simulation",
    "tests/reliability",
    "tests/chaos",
    "tests/bench",
    "tests/quick",
)
"""Where imports are read: sources, unit tests, and what unit tests are made of."""


@dataclass(frozen=True, slots=True)
class Selection:
    tiers: tuple[tuple[str, ...], ...]
    """Test files, by their paths from the root of the repository."""
    untested: tuple[str, ...]
    """Changed Python files that no unit test stands for: system tests, the demo."""

    @property
    def files(self) -> list[str]:
        return [path for tier in self.tiers for path in tier]


def select(root: Path, changed: Iterable[str]) -> Selection:
    """`changed` are paths from the root; those that are gone are of interest too: who imported them?"""
    python = sorted(path for path in changed if path.endswith(".py"))
    imports = read_imports(root)
    tests = sorted(path for path in imports if is_unit_test(path))
    tiers: list[list[str]] = [[], [], []]
    untested = []
    for path in python:
        found = _tests_for(path, tests, imports)
        for tier, paths in zip(tiers, found, strict=True):
            tier += paths
        if not any(found):
            untested.append(path)
    seen: set[str] = set()
    unique = []
    for tier in tiers:
        fresh = [path for path in dict.fromkeys(tier) if path not in seen]
        seen.update(fresh)
        unique.append(tuple(fresh))
    return Selection(tuple(unique), tuple(untested))


def _tests_for(path: str, tests: list[str], imports: dict[str, frozenset[str]]) -> tuple[list[str], ...]:
    if is_unit_test(path):
        return [test for test in tests if test == path], [], []
    module = module_of(path)
    importers = [each for each, names in imports.items() if module in names]
    direct = [each for each in importers if is_unit_test(each)]
    folder = mirror_of(path)
    if folder is None:
        return [], direct, []
    mirrored = [test for test in tests if str(PurePosixPath(test).parent) == folder]
    stem = PurePosixPath(path).stem.lstrip("_")
    same_name = [test for test in mirrored if PurePosixPath(test).stem.startswith(f"test_{stem}")]
    folders = {mirror_of(each) for each in importers if each.startswith(str(PACKAGE))}
    near = [test for test in tests if str(PurePosixPath(test).parent) in folders]
    return same_name, mirrored + direct, near


def is_unit_test(path: str) -> bool:
    return path.startswith(f"{UNIT}/") and PurePosixPath(path).name.startswith("test_")


def mirror_of(path: str) -> str | None:
    """The folder of tests/unit that mirrors a module's; None for what is not in src."""
    pure = PurePosixPath(path)
    if not pure.is_relative_to(PACKAGE):
        return None
    return str(UNIT / pure.parent.relative_to(PACKAGE))


def module_of(path: str) -> str:
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if parts[0] == "src":
        del parts[0]
    if parts[-1] == "__init__":
        del parts[-1]
    return ".".join(parts)


def read_imports(root: Path) -> dict[str, frozenset[str]]:
    """The modules that each file names in its imports; of `from a import b` both `a` and `a.b`."""
    found = {}
    for folder in ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            found[name] = _imports_in(path.read_text(), module_of(name))
    return found


def _imports_in(text: str, module: str) -> frozenset[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the checks will say so
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *([base] if base else [])])
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return frozenset(names)
