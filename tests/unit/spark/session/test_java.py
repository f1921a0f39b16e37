import os
import subprocess
from pathlib import Path

import pytest

from distributedlog.model.errors import SparkNotReadyError
from distributedlog.spark.session import java as module
from distributedlog.spark.session.java import cache_home, find_java, parse_version, version_of, wrap

SHOUT = '#!/bin/sh\nfor argument in "$@"; do echo "<$argument>"; done\n'
RELEASE = r'^JAVA_VERSION="([^"]+)"'


def make_home(home: Path, version: str | None, script: str = SHOUT) -> Path:
    """A Java that has a version and says what it was called with."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def _nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed on this machine must not be found; nor is a runtime from pip, if there is one."""
    monkeypatch.setattr(module, "USUAL_PLACES", ("~/.sdkman/candidates/java/*",))
    monkeypatch.setattr(module, "_carried", lambda _: None)


def test_whoever_sets_java_home_means_it(tmp_path: Path) -> None:
    told = make_home(tmp_path / "told", "17.0.1")
    on_path = make_home(tmp_path / "path", "21.0.2")
    found = find_java({"JAVA_HOME": str(told), "PATH": str(on_path / "bin"), "HOME": str(tmp_path)})
    assert (found.home, found.version, found.is_carried) == (str(told), 17, False)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = make_home(tmp_path / "old", "1.8.0_402")
    on_path = make_home(tmp_path / "path", "21.0.2")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(on_path / "bin"), "HOME": str(tmp_path)})
    assert (found.home, found.version) == (str(on_path), 21)


def test_the_path_leads_through_links_to_the_home(tmp_path: Path) -> None:
    home = make_home(tmp_path / "jdk", "25")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}).home == str(home)


def test_in_the_usual_places_the_newest_is_taken(tmp_path: Path) -> None:
    for version in ("17.0.9", "25.0.1", "21.0.2", "11.0.20"):
        make_home(tmp_path / ".sdkman" / "candidates" / "java" / version, version)
    assert find_java({"PATH": "", "HOME": str(tmp_path)}).version == 25


def test_where_there_is_none_it_is_said_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SparkNotReadyError, match="none was found") as raised:
        find_java({"PATH": "", "HOME": str(tmp_path)})
    assert "pip install 'distributedlog[jre]'" in str(raised.value)
    old = make_home(tmp_path / "old", "11.0.2")
    with pytest.raises(SparkNotReadyError, match="only Java 11 at"):
        find_java({"PATH": str(old / "bin"), "HOME": str(tmp_path)})
    with pytest.raises(SparkNotReadyError, match="JAVA_HOME=nowhere has no bin/java"):
        find_java({"JAVA_HOME": "nowhere", "PATH": "", "HOME": str(tmp_path)})


def test_a_home_without_a_release_file_is_asked(tmp_path: Path) -> None:
    script = "#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n"
    assert version_of(str(make_home(tmp_path / "jdk", None, script))) == 17
    assert version_of(str(make_home(tmp_path / "broken", None, "#!/bin/sh\nexit 1\n"))) is None
    assert version_of(str(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("25-ea", 25), ("", None), ("x", None)],
)
def test_versions_old_and_new_are_understood(text: str, version: int | None) -> None:
    assert parse_version(f'JAVA_VERSION="{text}"', RELEASE) == version


def said_by(home: str, *arguments: str) -> list[str]:
    told = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    return [line[1:-1] for line in told.stdout.splitlines()]


def test_the_wrapper_drops_the_one_flag_and_nothing_else(tmp_path: Path) -> None:
    home = make_home(tmp_path / "a carried one", "25")
    wrapped = wrap(str(home), str(tmp_path / "cache"))
    flag = "jdk.incubator.vector"
    assert said_by(wrapped, "-cp", "a b:*", f"--add-modules={flag}", "-Dx=$y", "Main", "") == [
        "-cp", "a b:*", "-Dx=$y", "Main", "",
    ]  # fmt: skip
    assert said_by(wrapped, "--add-modules", flag, "Main") == ["Main"]
    assert said_by(wrapped, "--add-modules", "java.sql", "Main") == ["--add-modules", "java.sql", "Main"]
    assert said_by(wrapped, "Main", flag) == ["Main", flag]
    assert said_by(wrapped) == []


def test_the_wrapper_is_written_once_and_mended(tmp_path: Path) -> None:
    home = make_home(tmp_path / "jre", "25")
    program = Path(wrap(str(home), str(tmp_path / "cache"))) / "bin" / "java"
    before = program.stat().st_mtime_ns
    wrap(str(home), str(tmp_path / "cache"))
    assert program.stat().st_mtime_ns == before
    program.write_text("broken")
    wrap(str(home), str(tmp_path / "cache"))
    assert "exec" in program.read_text()
    assert os.access(program, os.X_OK)


def test_the_cache_is_where_people_expect_it() -> None:
    assert cache_home({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == "/x/distributedlog"
    assert cache_home({"HOME": "/h"}) == "/h/.cache/distributedlog"


def test_it_says_which_one_spark_will_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert module.main() == 1
    assert "none was found" in capsys.readouterr().err
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "told", "21.0.2")))
    assert module.main() == 0
    assert capsys.readouterr().out == f"java: 21 at {tmp_path / 'told'}\n"
