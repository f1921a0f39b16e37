"""What a path on the command line means: a data directory, a partition's directory, or one file of a log.

A partition's directory is known by its segment files, or by its name and where it stands; so a copy of one
under any name will do.  If the directory above it is a data directory, what its checkpoints say of the
partition is used, and its lock is the one that counts.

Whether a directory is in use is found out without touching it: the lock file is opened for reading and the
system asked who holds a lock on it (a JVM's counts as well).
"""

import fcntl
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.model.errors import InvalidNameError
from distributedlog.model.ids import TopicPartition
from distributedlog.storage.checkpoints import LOCK_FILE, META_PROPERTIES_FILE, PARTITION_METADATA_FILE
from distributedlog.storage.verification.directory import OFFSET_CHECKPOINTS, segment_bases

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    path: str
    partition: TopicPartition | None
    """None for a copy whose name says nothing."""

    @property
    def label(self) -> str:
        return str(self.partition) if self.partition is not None else os.path.basename(self.path)


@dataclass(frozen=True, slots=True)
class Location:
    path: str
    data_directory: str | None
    """The data directory that it is, or is in; None if it stands alone."""
    partitions: tuple[PartitionDirectory, ...]
    is_data_directory: bool

    @property
    def is_in_use(self) -> bool:
        return self.data_directory is not None and is_locked(self.data_directory)


def selection_options(command: Command) -> Command:
    """Adds --topic and --partition, for a data directory."""
    command = click.option(
        "--partition", type=click.IntRange(min=0), metavar="N", help="Only partitions of this number."
    )(command)
    return click.option("--topic", metavar="NAME", help="Only this topic of a data directory.")(command)


def locate(path: str, topic: str | None = None, partition: int | None = None) -> Location:
    """Finds out what `path` is and which of its partitions are meant."""
    clean = os.path.normpath(path)
    if not os.path.exists(clean):
        raise NotFoundError(f"there is nothing at {path}; name a data directory or a partition's in it")
    if not os.path.isdir(clean):
        raise click.UsageError(f"{path} is a file; name the directory that it is in")
    alone = _as_partition(clean)
    if alone is not None:
        if topic is not None or partition is not None:
            raise click.UsageError(
                f"{path} is one partition; --topic and --partition select in a data directory"
            )
        parent = os.path.dirname(os.path.abspath(clean))
        is_in_store = alone.partition is not None and _is_data_directory(parent)
        return Location(clean, parent if is_in_store else None, (alone,), False)
    found = tuple(_partitions_in(clean))
    if not found and not _is_data_directory(clean):
        raise NotFoundError(
            f"{path} holds no log: neither segment files (…{'0' * 4}.log) nor TOPIC-NUMBER directories"
        )
    wanted = tuple(each for each in found if _is_wanted(each.partition, topic, partition))
    if found and not wanted:
        known = ", ".join(sorted({each.partition.topic for each in found if each.partition})[:20])
        raise NotFoundError(f"{path} holds no such partition; its topics are {known}")
    return Location(clean, clean, wanted, True)


def _as_partition(path: str) -> PartitionDirectory | None:
    names = os.listdir(path)
    if not segment_bases(names) and PARTITION_METADATA_FILE not in names:
        return None
    try:
        name = TopicPartition.from_directory_name(os.path.basename(os.path.abspath(path)))
    except InvalidNameError:
        name = None
    return PartitionDirectory(path, name)


def _partitions_in(path: str) -> list[PartitionDirectory]:
    found = []
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        try:
            partition = TopicPartition.from_directory_name(name)
        except InvalidNameError:
            continue
        if os.path.isdir(inner):
            found.append(PartitionDirectory(inner, partition))
    return sorted(found, key=lambda each: each.partition or TopicPartition("", 0))


def _is_wanted(candidate: TopicPartition | None, topic: str | None, partition: int | None) -> bool:
    return (
        candidate is not None
        and topic in (None, candidate.topic)
        and partition in (None, candidate.partition)
    )


def _is_data_directory(path: str) -> bool:
    return any(
        os.path.exists(os.path.join(path, name)) for name in (META_PROPERTIES_FILE, *OFFSET_CHECKPOINTS)
    )


def is_locked(data_directory: str) -> bool:
    """Returns whether a process has the data directory open.  Touches nothing."""
    try:
        descriptor = os.open(os.path.join(data_directory, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if hasattr(fcntl, "F_OFD_GETLK"):
            question = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question)
            return bool(struct.unpack("hhqqi", answer)[0] != fcntl.F_UNLCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
    finally:
        os.close(descriptor)
