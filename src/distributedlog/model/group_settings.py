"""Settings that one group may have for itself, by Kafka's names, and their values: all eleven of Kafka 4.2.

    consumer.*      count for groups of the new consumer protocol: members of classic groups choose their own.
                    The bounds are the brokers' (see `groups.consumer.settings`); here is what can be said
                    without them
    share.*         are kept and described, and have no effect: there are no share groups, nor groups of Kafka
    streams.*       Streams' own protocol.  They are checked with the bounds that Kafka's brokers have by
                    default

With these bounds a session is always longer than an interval between heartbeats.
"""

from collections.abc import Mapping
from typing import Final

from distributedlog.model.config import INT32_MAX, SECOND_MS
from distributedlog.model.errors import ConfigError
from distributedlog.model.iso_durations import duration_nanoseconds
from distributedlog.model.kept_settings import KeptSetting
from distributedlog.model.setting_text import quote, read_whole_number

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
CONSUMER_SETTINGS: Final = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
_BY_DURATION: Final = "by_duration:"


# --- reading -----------------------------------------------------------------------------------


def _read_reset(name: str, text: str) -> str:
    """`earliest`, `latest`, or `by_duration:` and how far back."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return text
    is_duration = text.startswith(_BY_DURATION)
    if not is_duration or duration_nanoseconds(text.removeprefix(_BY_DURATION)) is None:
        raise ConfigError(
            f"{name} cannot be {quote(text)}: it is earliest, latest or by_duration:PnDTnHnMn.nS"
        )
    return text


def _read_isolation(name: str, text: str) -> str:
    text = text.strip()
    if text not in ("read_committed", "read_uncommitted"):
        raise ConfigError(f"{name} cannot be {quote(text)}: it is read_committed or read_uncommitted")
    return text


# --- which there are ---------------------------------------------------------------------------


def _make_kept() -> tuple[KeptSetting, ...]:
    share = "There are no share groups."
    streams = (
        "There are no groups of Kafka Streams' own protocol; its classic groups have settings of clients."
    )
    number = read_whole_number
    session, interval = (45 * SECOND_MS, 60 * SECOND_MS), (5 * SECOND_MS, 15 * SECOND_MS)
    return (
        KeptSetting("share.auto.offset.reset", _read_reset, "latest", share),
        KeptSetting("share.heartbeat.interval.ms", number, 5 * SECOND_MS, share, *interval),
        KeptSetting("share.isolation.level", _read_isolation, "read_uncommitted", share),
        KeptSetting("share.record.lock.duration.ms", number, 30 * SECOND_MS, share,
                    15 * SECOND_MS, 60 * SECOND_MS),
        KeptSetting("share.session.timeout.ms", number, 45 * SECOND_MS, share, *session),
        KeptSetting("streams.heartbeat.interval.ms", number, 5 * SECOND_MS, streams, *interval),
        KeptSetting("streams.initial.rebalance.delay.ms", number, 3 * SECOND_MS, streams, 0, INT32_MAX),
        KeptSetting("streams.num.standby.replicas", number, 0, streams, 0, 2),
        KeptSetting("streams.session.timeout.ms", number, 45 * SECOND_MS, streams, *session),
    )  # fmt: skip


KEPT_SETTINGS: Final[Mapping[str, KeptSetting]] = {setting.name: setting for setting in _make_kept()}
GROUP_SETTINGS: Final = tuple(sorted((*CONSUMER_SETTINGS, *KEPT_SETTINGS)))
"""All that a group may have, by name."""


def read_consumer_settings(settings: Mapping[str, str]) -> dict[str, int]:
    """Those that have an effect; the others are passed over."""
    return {name: _read_ms(name, settings[name]) for name in CONSUMER_SETTINGS if name in settings}


def _read_ms(name: str, text: str) -> int:
    value = read_whole_number(name, text)
    if not 1 <= value <= INT32_MAX:
        raise ConfigError(f"{name} is {value}; it must be at least 1")
    return value


def check_settings(settings: Mapping[str, str]) -> None:
    """All settings that a group would have."""
    unknown = [name for name in settings if name not in GROUP_SETTINGS]
    if unknown:
        raise ConfigError(
            f"unknown setting {unknown[0][:100]!r}; of a group known are {', '.join(GROUP_SETTINGS)}"
        )
    read_consumer_settings(settings)
    for name in KEPT_SETTINGS.keys() & settings.keys():
        KEPT_SETTINGS[name].parse(settings[name])
