"""A pipeline's project on disk: found, read, made, reset.

    PROJECT/
      spark-pipeline.yml      Spark's specification: name, storage, libraries, configuration
      transformations/        the definitions
      .dlog/                  what runs leave behind
        warehouse/ metastore/ the tables and their catalog                    spark/session/session
        storage/              how far each flow has come: Spark's checkpoints
        tables.json           which tables there are, for readers             tables
        compaction/           what compactions have replaced, and not removed  compaction/
        history.jsonl         what happened in runs                           history
        spark.log  lock       what Spark's JVM said; which process runs       spark/session/session

**Reset** removes what tables and checkpoints say together, in one rename: a crash in the middle leaves
either all of it or nothing, and a left-over is removed by the next reset.  Were only the checkpoints gone,
the next run would write every row a second time.  Where tables lie elsewhere (`spark.sql.warehouse.dir`, as
on a cluster) there may be other projects' too: those are for their owner to remove.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from distributedlog.model.errors import ConfigError, DirectoryLockedError, PipelineError
from distributedlog.pipelines.template import files_of

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
STATE_DIRECTORY: Final = ".dlog"
HISTORY_FILE: Final = "history.jsonl"
LOCK_FILE: Final = "lock"
NAME_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
BOOTSTRAP_KEY: Final = "dlog.bootstrap"
TOPICS_KEY: Final = "dlog.topics"
TOPICS_READ_KEY: Final = "dlog.topics.read"
ALWAYS_KEY: Final = "dlog.run.always"
COMPACT_FILES_KEY: Final = "dlog.compact.files"
PARTITIONS_MAX: Final = 10_000
COMPACT_FILES_MIN: Final = 2
COMPACT_FILES_MAX: Final = 1_000_000
WAREHOUSE_KEY: Final = "spark.sql.warehouse.dir"
TRASH: Final = "trash"


@dataclass(frozen=True, slots=True)
class Project:
    directory: str
    spec_path: str
    name: str
    storage: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    """The patterns of the definitions' files; empty if they are not as Spark wants, which it says itself."""

    @property
    def state_directory(self) -> str:
        return os.path.join(self.directory, STATE_DIRECTORY)

    @property
    def history_path(self) -> str:
        return os.path.join(self.state_directory, HISTORY_FILE)

    @property
    def bootstrap(self) -> str | None:
        return self.configuration.get(BOOTSTRAP_KEY)

    def topics(self) -> dict[str, int]:
        """Those that a run makes if they are missing: name → partitions."""
        return parse_topics(self.configuration.get(TOPICS_KEY, ""))

    def topics_read(self) -> list[str]:
        """Those whose lag is shown before the first run has said where it reads."""
        return self.configuration.get(TOPICS_READ_KEY, "").split()

    def compact_files(self) -> int | None:
        """Tables are compacted between runs once so many files can be merged; None: they are not."""
        text = self.configuration.get(COMPACT_FILES_KEY)
        if text is None:
            return None
        if not text.isdecimal() or not COMPACT_FILES_MIN <= int(text) <= COMPACT_FILES_MAX:
            raise ConfigError(
                f"{COMPACT_FILES_KEY}: {text!r} is no number of files from {COMPACT_FILES_MIN} to"
                f" {COMPACT_FILES_MAX:,}"
            )
        return int(text)

    def runs_always(self) -> bool:
        """Whether, again and again, it is run also if nothing is new."""
        text = self.configuration.get(ALWAYS_KEY, "false")
        if text not in ("true", "false"):
            raise ConfigError(f"{ALWAYS_KEY}: {text!r} is neither true nor false")
        return text == "true"


def parse_topics(text: str) -> dict[str, int]:
    found = {}
    for word in text.split():
        name, _, count = word.partition(":")
        if not name or not (count or "1").isdecimal() or not 1 <= int(count or "1") <= PARTITIONS_MAX:
            raise ConfigError(f"{TOPICS_KEY}: {word!r} is no NAME:PARTITIONS, such as orders:2")
        found[name] = int(count or "1")
    return found


def find_project(where: str) -> Project:
    """The project in this directory, or in one above it."""
    start = Path(where).absolute()
    if ".." in start.parts:  # "shop/.." is not below shop, although its text begins so
        start = start.resolve()
    if start.is_file():
        return read_project(start)
    for directory in (start, *start.parents):
        for name in SPEC_NAMES:
            if (directory / name).is_file():
                return read_project(directory / name)
    raise PipelineError(
        f"there is no pipeline in {where} or above it ({SPEC_NAMES[0]}); make one: dlog pipeline init NAME"
    )


def read_project(spec_path: Path) -> Project:
    import yaml

    try:
        spec = yaml.safe_load(spec_path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{spec_path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(spec, dict):
        raise ConfigError(f"{spec_path} holds no settings; it needs name, storage and libraries")
    for key in ("name", "storage"):
        if not isinstance(spec.get(key), str) or not spec[key]:
            raise ConfigError(f"{spec_path} names no {key}")
    configuration = spec.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise ConfigError(f"{spec_path}: configuration is no list of KEY: VALUE")
    for key, value in configuration.items():
        if not isinstance(value, str):
            raise ConfigError(f'{spec_path}: the value of {key} is no text; write it in quotes: "{value}"')
    project = Project(
        str(spec_path.parent),
        str(spec_path),
        spec["name"],
        spec["storage"],
        configuration,
        _patterns(spec.get("libraries")),
    )
    project.topics()
    project.compact_files()
    project.runs_always()
    return project


def _patterns(libraries: object) -> tuple[str, ...]:
    """Parses `- glob: {include: transformations/**}`."""
    try:
        found = tuple(each["glob"]["include"] for each in libraries)  # type: ignore[attr-defined]
    except (TypeError, KeyError):
        return ()
    return found if all(isinstance(each, str) for each in found) else ()


def make_project(parent: str, name: str, *, topic: str, bootstrap: str) -> Project:
    """Writes a new one; nothing there is overwritten."""
    if NAME_PATTERN.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} is no name for a pipeline: letters, digits, - and _, and a letter at the start"
        )
    directory = Path(parent).absolute() / name
    if directory.exists():
        raise PipelineError(f"{directory} is there already; choose another name or remove it")
    storage = f"file://{directory / STATE_DIRECTORY / 'storage'}"
    files = files_of(name, topic, bootstrap, storage)
    fresh = directory.with_name(f".{name}.{os.getpid()}")
    try:
        for path, text in files.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_text(text, encoding="utf-8")
        (fresh / STATE_DIRECTORY / "storage").mkdir(parents=True)
        fresh.rename(directory)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return read_project(directory / SPEC_NAMES[0])


def has_tables(project: Project) -> bool:
    """Has a run begun to make a catalog?"""
    return os.path.isdir(os.path.join(project.state_directory, "metastore"))


def is_running(project: Project) -> bool:
    """Does a process hold the project's lock?"""
    try:
        descriptor = os.open(os.path.join(project.state_directory, LOCK_FILE), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def reset_project(project: Project) -> list[str]:
    """Forgets tables, checkpoints and history; what was removed."""
    if is_running(project):
        raise DirectoryLockedError(f"the pipeline {project.name} is running; stop it first")
    _check_tables_elsewhere(project)
    state = project.state_directory
    trash = os.path.join(project.directory, f"{STATE_DIRECTORY}.{TRASH}")
    shutil.rmtree(trash, ignore_errors=True)
    removed = []
    if os.path.isdir(state):
        removed = sorted(name for name in os.listdir(state) if name != LOCK_FILE)
        os.rename(state, trash)
        shutil.rmtree(trash)
    removed += _reset_storage(project)
    os.makedirs(os.path.join(state, "storage"), exist_ok=True)
    if _local_path(project.configuration.get(WAREHOUSE_KEY, "")) is None:
        raise PipelineError(
            f"checkpoints and catalog are gone, but the tables at {project.configuration[WAREHOUSE_KEY]} are"
            " not on this machine: remove their files yourself before the next run"
        )
    return removed


def _check_tables_elsewhere(project: Project) -> None:
    """The next run would find their files, and Spark makes no table where there is something."""
    path = _local_path(project.configuration.get(WAREHOUSE_KEY, ""))
    if path and os.path.isdir(path) and os.listdir(path):
        raise PipelineError(
            f"nothing was removed: the tables are at {path} ({WAREHOUSE_KEY}), where there may be others too;"
            " empty it yourself first, or make them anew with dlog pipeline run --full-refresh TABLE"
        )


def _local_path(place: str) -> str | None:
    """Returns the path; None if it is not on this machine."""
    scheme, colon, path = place.partition(":")
    if not colon:
        return place
    return re.sub("^//", "", path) if scheme == "file" else None


def local_directory(project: Project, place: str) -> str | None:
    """A place of the project's settings or tables as a path; None if it is not on this machine."""
    path = _local_path(place)
    return None if path is None else os.path.join(project.directory, path)


def _reset_storage(project: Project) -> list[str]:
    """Checkpoints that lie elsewhere; only Spark's own directory in it is removed."""
    place = local_directory(project, project.storage)
    if place is None:
        raise PipelineError(
            f"tables are gone, but the checkpoints at {project.storage} are not on this machine: "
            "remove _checkpoints there yourself before the next run"
        )
    path = os.path.join(place, "_checkpoints")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
        return [path]
    return []
