from pathlib import Path

from distributedlog.spark.session.archive import MADE_BY, archive_options, archive_path
from distributedlog.spark.session.java import Java


def java_at(home: Path, release: str = "one") -> Java:
    home.mkdir(parents=True, exist_ok=True)
    (home / "release").write_text(release)
    return Java(str(home), 17)


def test_without_an_archive_nothing_is_said_of_one(tmp_path: Path) -> None:
    assert archive_options(java_at(tmp_path / "jdk"), {"XDG_CACHE_HOME": str(tmp_path)}) == ""


def test_an_archive_that_is_there_is_used_unless_it_is_switched_off(tmp_path: Path) -> None:
    java = java_at(tmp_path / "jdk")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "a b")}
    path = Path(archive_path(java, environment))
    path.parent.mkdir(parents=True)
    path.touch()
    assert f'-XX:SharedArchiveFile="{path}"' in archive_options(java, environment)
    assert archive_options(java, {**environment, MADE_BY: "off"}) == ""


def test_whoever_makes_one_does_not_use_the_old_one(tmp_path: Path) -> None:
    options = archive_options(java_at(tmp_path / "jdk"), {MADE_BY: "/x/new.jsa"})
    assert "-XX:ArchiveClassesAtExit=/x/new.jsa" in options
    assert "SharedArchiveFile" not in options


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    first = archive_path(java_at(tmp_path / "jdk"), environment)
    assert first == archive_path(java_at(tmp_path / "jdk"), environment)
    assert first != archive_path(java_at(tmp_path / "other"), environment)
    assert first != archive_path(java_at(tmp_path / "jdk", release="updated"), environment)
