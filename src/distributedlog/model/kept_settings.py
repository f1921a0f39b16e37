"""Topic settings of Kafka that only topics have.  Most are kept and described here, but have no effect; the
throttled replicas (KIP-73) have one.

Whoever creates topics with them, as many tools do with all of Kafka's defaults, is not refused.  Their values
are checked as Kafka checks them; one that promises what is not done is refused, as by a Kafka broker that has
the feature turned off: `remote.storage.enable=true` without tiered storage.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from distributedlog.model.config import INT64_MAX
from distributedlog.model.errors import ConfigError
from distributedlog.model.setting_text import quote, read_boolean, read_list, read_whole_number

_REPLICA: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}", re.ASCII)


class KeptSetting(NamedTuple):
    name: str
    read: Callable[[str, str], Any]
    """The function that reads the name and the text; ConfigError if the text cannot be."""
    default: Any
    documentation: str
    low: int | None = None
    high: int = INT64_MAX
    broker_name: str | None = None
    """What Kafka's brokers call the default; None if they have none."""
    has_effect: bool = False

    def parse(self, text: str) -> Any:
        value = self.read(self.name, text)
        if self.low is not None and not self.low <= value <= self.high:
            raise ConfigError(f"{self.name} is {value}; it must lie between {self.low} and {self.high}")
        return value


def _read_gzip_level(name: str, text: str) -> int:
    level = read_whole_number(name, text)
    if level == 0:
        raise ConfigError(f"{name} is 0; it must lie between 1 and 9, or be -1")
    return level


def _read_remote_storage(name: str, text: str) -> bool:
    if read_boolean(name, text):
        raise ConfigError(f"{name} cannot be true: there is no tiered storage")
    return False


def _read_throttled_replicas(name: str, text: str) -> tuple[str, ...]:
    replicas = read_list(name, text)
    if replicas != ("*",) and not all(_REPLICA.fullmatch(each) for each in replicas):
        raise ConfigError(f"{name} cannot be {quote(text)}: it is '*' or a list of partition:broker")
    return replicas


def throttled_partitions(replicas: tuple[str, ...], broker_id: int) -> frozenset[int] | None:
    """Returns the partitions whose replica on this broker is named; None: all."""
    if replicas == ("*",):
        return None
    named = (each.split(":") for each in replicas)
    return frozenset(int(partition) for partition, broker in named if int(broker) == broker_id)


_LEVEL: Final = "A batch is always compressed at the default level, so that none takes long."
_REMOTE: Final = "There is no tiered storage."
_THROTTLE: Final = "Replicas that are throttled while they are not in sync: partition:broker, or '*' for all."


def _make_settings() -> tuple[KeptSetting, ...]:
    gzip, lz4, zstd = (f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd"))
    leader, follower = (f"{role}.replication.throttled.replicas" for role in ("leader", "follower"))
    return (
        KeptSetting(gzip, _read_gzip_level, -1, _LEVEL, -1, 9, gzip),
        KeptSetting(lz4, read_whole_number, 9, _LEVEL, 1, 17, lz4),
        KeptSetting(zstd, read_whole_number, 3, _LEVEL, -131072, 22, zstd),
        KeptSetting(follower, _read_throttled_replicas, (), _THROTTLE, has_effect=True),
        KeptSetting(leader, _read_throttled_replicas, (), _THROTTLE, has_effect=True),
        KeptSetting("local.retention.bytes", read_whole_number, -2, _REMOTE, -2,
                    broker_name="log.local.retention.bytes"),
        KeptSetting("local.retention.ms", read_whole_number, -2, _REMOTE, -2,
                    broker_name="log.local.retention.ms"),
        KeptSetting("preallocate", read_boolean, False, "Files grow as they are written.",
                    broker_name="log.preallocate"),
        KeptSetting("remote.log.copy.disable", read_boolean, False, _REMOTE),
        KeptSetting("remote.log.delete.on.disable", read_boolean, False, _REMOTE),
        KeptSetting("remote.storage.enable", _read_remote_storage, False,
                    f"{_REMOTE} 'true' is refused."),
    )  # fmt: skip


KEPT_SETTINGS: Final[Mapping[str, KeptSetting]] = {setting.name: setting for setting in _make_settings()}
