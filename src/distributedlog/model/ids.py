"""Identifiers: topic names, partitions, topic ids."""

import base64
import binascii
import re
from typing import NamedTuple

from distributedlog.model.errors import InvalidNameError

TOPIC_NAME_LENGTH_MAX = 249
_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_PARTITION_DIRECTORY = re.compile(r"(.+)-([0-9]{1,10})")
PARTITION_MAX = 2**31 - 1


def check_topic_name(name: str) -> str:
    """Checks a name by Kafka's rule: 1 to 249 of `[A-Za-z0-9._-]`, and neither `.` nor `..`."""
    if not name:
        raise InvalidNameError("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidNameError(f"a topic cannot be named {name!r}")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidNameError(
            f"the topic name is {len(name)} characters long; at most {TOPIC_NAME_LENGTH_MAX} fit"
        )
    if not _LEGAL_TOPIC.fullmatch(name):
        raise InvalidNameError(
            f"the topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
        )
    return name


def check_partition(partition: int) -> int:
    """A directory named by anything else would not be found again under this name."""
    if type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
        raise InvalidNameError(f"a partition is a whole number from 0 to {PARTITION_MAX}, not {partition!r}")
    return partition


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    @property
    def directory_name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def from_directory_name(cls, name: str) -> "TopicPartition":
        match = _PARTITION_DIRECTORY.fullmatch(name)
        if match is None or int(match[2]) > PARTITION_MAX or match[2] != str(int(match[2])):
            raise InvalidNameError(f"{name!r} is not a partition directory (they are named TOPIC-NUMBER)")
        return cls(check_topic_name(match[1]), int(match[2]))


class Uuid(NamedTuple):
    """Sixteen bytes, written as Kafka writes them: URL-safe base64 without padding."""

    bytes16: bytes

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.bytes16).rstrip(b"=").decode("ascii")

    @classmethod
    def parse(cls, text: str) -> "Uuid":
        if "+" in text or "/" in text:
            raise InvalidNameError(f"{text!r} is not a base64 id of the URL-safe alphabet")
        try:
            raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidNameError(f"{text!r} is not a base64 id") from error
        if len(raw) != 16:
            raise InvalidNameError(f"{text!r} is not an id of sixteen bytes")
        return cls(raw)


ZERO_UUID = Uuid(bytes(16))
