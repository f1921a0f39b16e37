"""The tests that a change calls for, on a small tree."""

from pathlib import Path

import pytest

from tests.quick.selection import module_of, select

FILES = {
    "src/distributedlog/__init__.py": "",
    "src/distributedlog/storage/__init__.py": "",
    "src/distributedlog/storage/log.py": "import os\n",
    "src/distributedlog/storage/index.py": "from distributedlog.storage import log\n",
    "src/distributedlog/broker/net/server.py": "from distributedlog.storage.log import PartitionLog\n",
    "src/distributedlog/broker/node.py": "import distributedlog.broker.net.server\n",
    "src/distributedlog/cli/_hidden.py": "from .main import run\n",
    "src/distributedlog/cli/main.py": "",
    "tests/unit/storage/test_log.py": "",
    "tests/unit/storage/test_log_reading.py": "",
    "tests/unit/storage/test_index.py": "",
    "tests/unit/storage/support.py": "",
    "tests/unit/broker/net/test_server.py": "from tests.unit.storage.support import NOW\n",
    "tests/unit/broker/test_node.py": "",
    "tests/unit/cli/test_hidden.py": "",
    "tests/unit/records/test_record.py": "from distributedlog.storage.log import PartitionLog\n",
    "tests/simulation/disk.py": "",
    "tests/system/test_kill.py": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_module_calls_for_its_own_tests_first_then_its_folder_then_its_importers(root: Path) -> None:
    selection = select(root, ["src/distributedlog/storage/log.py"])
    assert selection.tiers == (
        ("tests/unit/storage/test_log.py", "tests/unit/storage/test_log_reading.py"),
        ("tests/unit/storage/test_index.py", "tests/unit/records/test_record.py"),
        ("tests/unit/broker/net/test_server.py",),
    )
    assert selection.untested == ()
    assert "tests/unit/broker/test_node.py" not in selection.files, "it imports an importer"


def test_a_test_calls_for_itself(root: Path) -> None:
    assert select(root, ["tests/unit/storage/test_index.py"]).tiers == (
        ("tests/unit/storage/test_index.py",), (), (),
    )  # fmt: skip


def test_what_tests_are_made_of_calls_for_those_that_import_it(root: Path) -> None:
    assert select(root, ["tests/unit/storage/support.py"]).files == ["tests/unit/broker/net/test_server.py"]


def test_a_private_module_has_tests_of_its_name_and_relative_imports_count(root: Path) -> None:
    assert select(root, ["src/distributedlog/cli/_hidden.py"]).tiers[0] == ("tests/unit/cli/test_hidden.py",)
    assert select(root, ["src/distributedlog/cli/main.py"]).tiers[1] == ("tests/unit/cli/test_hidden.py",)


def test_a_module_that_is_gone_calls_for_those_who_still_import_it(root: Path) -> None:
    (root / "src/distributedlog/storage/log.py").unlink()
    assert "tests/unit/records/test_record.py" in select(root, ["src/distributedlog/storage/log.py"]).files


def test_what_no_unit_test_stands_for_is_told(root: Path) -> None:
    selection = select(root, ["tests/system/test_kill.py", "README.md", "tests/unit/gone/test_gone.py"])
    assert selection.files == []
    assert selection.untested == ("tests/system/test_kill.py", "tests/unit/gone/test_gone.py")


def test_a_file_that_is_no_python_yet_is_left_to_the_checks(root: Path) -> None:
    (root / "src/distributedlog/storage/index.py").write_text("def broken(:\n")
    assert "tests/unit/storage/test_index.py" in select(root, ["src/distributedlog/storage/index.py"]).files


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/distributedlog/storage/log.py", "distributedlog.storage.log"),
        ("src/distributedlog/storage/__init__.py", "distributedlog.storage"),
        ("tests/simulation/disk.py", "tests.simulation.disk"),
    ],
)
def test_a_module_has_the_name_by_which_it_is_imported(path: str, module: str) -> None:
    assert module_of(path) == module
