"""Stray logs: directories of partitions that the cluster's metadata does not know.

A log may be no one's because its topic was deleted while the broker was down; or because the metadata was
lost, or is of another time than the data.  The two look the same, so a stray is not deleted but renamed, to
Kafka's name for one, and kept for a while:

    orders-0  ->  orders-0.QHmYt2UiSL63d6f4MQwQ1g-stray
                      stray.properties    version=0, since.ms=1763330000000

Nothing reads it any more but people.  Every step can be interrupted: the file is written before the directory
gets its name, and a stray without one (Kafka's own) counts from when it was first seen.
"""

import re
from typing import Final

from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.storage.files import Files

STRAY_SUFFIX: Final = "-stray"
STRAY_DIRECTORY: Final = re.compile(r"[A-Za-z0-9._-]+-[0-9]{1,10}\.[A-Za-z0-9_-]+-stray")
"""The names of strays; no other directory is taken for one, whatever it is called."""
STRAY_FILE: Final = "stray.properties"
NAME_BYTES_MAX: Final = 255
_SINCE: Final = re.compile(rb"^since\.ms=([0-9]{1,18})$", re.MULTILINE)


def aside_name(partition: TopicPartition, identity: Uuid, suffix: str) -> str:
    """Makes a name with as much of the topic's as fits: that may be nearly as long as a name can be."""
    tail = f"-{partition.partition}.{identity}{suffix}"
    return partition.topic[: NAME_BYTES_MAX - len(tail)] + tail


class StrayLogs:
    """The strays of one data directory."""

    def __init__(self, files: Files, directory: str) -> None:
        self.since_ms: dict[str, int] = {}
        """When each was found to be one, by its directory's name."""
        self._files = files
        self._directory = directory

    def find(self, name: str, now_ms: int) -> bool:
        """Returns whether a directory is a stray; if so, it is among those that are kept."""
        if not STRAY_DIRECTORY.fullmatch(name):
            return False
        noted = self._files.read_small(f"{self._directory}/{name}/{STRAY_FILE}")
        found = _SINCE.search(noted or b"")
        self.since_ms[name] = min(int(found.group(1)), now_ms) if found else now_ms
        if not found:
            self._note(f"{self._directory}/{name}", now_ms)
        return True

    def set_aside(self, partition: TopicPartition, identity: Uuid, now_ms: int) -> str:
        """Renames the directory of a closed log; returns its new name, which is durable."""
        path = f"{self._directory}/{partition.directory_name}"
        self._note(path, now_ms)
        name = aside_name(partition, identity, STRAY_SUFFIX)
        self._files.rename(path, f"{self._directory}/{name}")
        self._files.sync_directory(self._directory)
        self.since_ms[name] = now_ms
        return name

    def _note(self, path: str, now_ms: int) -> None:
        self._files.write_atomically(f"{path}/{STRAY_FILE}", b"version=0\nsince.ms=%d\n" % now_ms)

    def remove_expired(self, now_ms: int, retention_ms: int) -> list[str]:
        """Deletes those that were kept for long enough; returns their names."""
        expired = [name for name, since_ms in self.since_ms.items() if now_ms - since_ms >= retention_ms]
        for name in expired:
            self._files.remove_tree(f"{self._directory}/{name}")
            del self.since_ms[name]
        if expired:
            self._files.sync_directory(self._directory)
        return expired
