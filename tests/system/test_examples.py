"""The documentation's examples, as a reader would paste them: each page in an empty directory, in order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.dev_cluster import DevCluster

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_BROKER = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTEST_BLOCK = re.compile(r"^```pytest\n(.*?)^```", re.MULTILINE | re.DOTALL)
MYPY_OPTIONS = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
"""The cache is that of `make check`: only the examples are new."""
FIRST_STEPS = re.compile(r"    (echo .*)?dlog topic (create|produce|consume) ")
ADDRESS = "127.0.0.1:9092"


def _examples() -> list[tuple[Path, list[str]]]:
    return [(page, BLOCK.findall(page.read_text())) for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize(("page", "blocks"), _examples(), ids=lambda value: getattr(value, "name", ""))
def test_examples_run_as_pasted(page: Path, blocks: list[str], tmp_path: Path) -> None:
    for block in blocks:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 0, f"{page.name}:\n{block}\n{ran.stderr}"


def test_the_first_example_prints_what_it_appended(tmp_path: Path) -> None:
    first = BLOCK.findall((ROOT / "README.md").read_text())[0]
    for expected in ("0 b'greeting' b'hello'\n", "1 b'greeting' b'hello'\n"):
        ran = subprocess.run(
            [sys.executable, "-c", first], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert ran.stdout == expected


def test_what_the_readme_says_of_a_broker_works_as_pasted(tmp_path: Path) -> None:
    """Its Python, and its commands; only the address is another one."""
    readme = (ROOT / "README.md").read_text()
    blocks = WITH_BROKER.findall(readme)
    assert len(blocks) == 2
    commands = [line.strip() for line in readme.splitlines() if FIRST_STEPS.match(line)]
    assert len(commands) == 3
    with DevCluster(tmp_path / "ready.json", "--port", "0") as cluster:
        bootstrap = cluster.ready()["bootstrap"]
        environment = {**os.environ, "DLOG_BOOTSTRAP": bootstrap, "PATH": f"{BIN}:{os.environ['PATH']}"}
        for command in commands[:2]:
            subprocess.run(command, shell=True, env=environment, check=True, timeout=120)
        for block in blocks:
            program = [sys.executable, "-c", block.replace(ADDRESS, bootstrap)]
            subprocess.run(program, check=True, timeout=120, cwd=tmp_path)
        read = subprocess.run(
            commands[2], shell=True, env=environment, check=True, timeout=120, capture_output=True, text=True
        )
        assert read.stdout == "hello\nhello\n"
        assert cluster.stop() == 0


def test_what_the_pages_on_the_client_show_works_as_pasted(tmp_path: Path) -> None:
    """Their programs one after the other, and their tests in a pytest of their own; they are sound in their
    types."""
    pages = [(ROOT / "docs" / name).read_text() for name in ("client.md", "patterns.md")]
    programs = [block for page in pages for block in WITH_BROKER.findall(page)]
    tests = [block for page in pages for block in PYTEST_BLOCK.findall(page)]
    assert len(programs) >= 12
    assert len(tests) == 1
    names = []
    for number, block in enumerate(programs):
        names.append(f"example{number}.py")
        (tmp_path / names[-1]).write_text(block)
    (tmp_path / "test_example.py").write_text(tests[0])
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *MYPY_OPTIONS, *names, "test_example.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    with DevCluster(tmp_path / "ready.json", "--port", "0", "--no-gateway") as cluster:
        bootstrap = cluster.ready()["bootstrap"]
        for name in names:
            block = (tmp_path / name).read_text().replace(ADDRESS, bootstrap)
            ran = subprocess.run(
                [sys.executable, "-W", "error", "-c", block],
                cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            assert ran.returncode == 0, f"{block}\n{ran.stderr}"
        assert cluster.stop() == 0
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "distributedlog.testing.plugin", "test_example.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout


def test_what_the_page_on_administration_shows_works_as_pasted(tmp_path: Path) -> None:
    (block,) = WITH_BROKER.findall((ROOT / "docs" / "administration.md").read_text())
    with DevCluster(tmp_path / "ready.json", "--port", "0") as cluster:
        bootstrap = cluster.ready()["bootstrap"]
        make = [str(BIN / "dlog"), "topic", "create", "orders", "--bootstrap", bootstrap]
        subprocess.run(make, check=True, timeout=120)
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", block.replace(ADDRESS, bootstrap)],
            check=True, timeout=120, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert "leader_id=1" in ran.stdout
        assert cluster.stop() == 0
