"""The documentation's examples, as a reader would paste them: each page in an empty directory, in order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _examples() -> list[tuple[Path, list[str]]]:
    return [(page, BLOCK.findall(page.read_text())) for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize(("page", "blocks"), _examples(), ids=lambda value: getattr(value, "name", ""))
def test_examples_run_as_pasted(page: Path, blocks: list[str], tmp_path: Path) -> None:
    for block in blocks:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{page.name}:\n{block}\n{ran.stderr}"


def test_the_first_example_prints_what_it_appended(tmp_path: Path) -> None:
    first = BLOCK.findall((ROOT / "README.md").read_text())[0]
    for expected in ("0 b'greeting' b'hello'\n", "1 b'greeting' b'hello'\n"):
        ran = subprocess.run(
            [sys.executable, "-c", first], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert ran.stdout == expected
