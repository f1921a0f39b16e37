"""The bounds within which groups live.

Everything that comes from outside has its bound here.  Texts that end up in a record are bounded well below
the 32,767 bytes that the record formats can hold, so that an entry that was made can always be written.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from distributedlog.model.config import DAY_MS, MIB, MINUTE_MS, SECOND_MS

GROUP_ID_BYTES_MAX: Final = 10_000
NAME_BYTES_MAX: Final = 1_000
"""The bytes of an instance id, of a protocol's name, of its type."""
PROTOCOLS_MAX: Final = 100
"""Assignors that one member may offer."""
SUBSCRIBED_TOPICS_MAX: Final = 10_000
"""The topics that one member may name."""


class MigrationPolicy(StrEnum):
    """Which way a group with members may move between the protocols, as Kafka names it."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    session_timeout_ms_min: int = 6 * SECOND_MS
    session_timeout_ms_max: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3 * SECOND_MS
    """How long the first generation of an empty group waits for more members."""
    members_max: int = 10_000
    """The members of one group, those that were given an id and have not joined yet included."""
    group_bytes_max: int = 16 * MIB
    """What the members of one group may hold: see `member_bytes`, also for the next two."""
    client_bytes_max: int = 32 * MIB
    coordinator_bytes_max: int = 128 * MIB
    groups_max: int = 100_000
    """The groups of one partition of the offsets topic."""
    offsets_retention_ms: int = 7 * DAY_MS
    offsets_retention_check_ms: int = 10 * MINUTE_MS
    offset_metadata_bytes_max: int = 4096
    new_member_timeout_ms: int = 5 * MINUTE_MS
    """A member that joins for the first time and waits for its generation may be gone: it is dropped then."""
    consumer_session_timeout_ms: int = 45 * SECOND_MS
    """The session timeout of members of consumer groups, which do not choose it themselves."""
    consumer_heartbeat_interval_ms: int = 5 * SECOND_MS
    consumer_session_timeout_ms_min: int = 45 * SECOND_MS
    """What a group may set for itself; so are the next three."""
    consumer_session_timeout_ms_max: int = 60 * SECOND_MS
    consumer_heartbeat_interval_ms_min: int = 5 * SECOND_MS
    consumer_heartbeat_interval_ms_max: int = 15 * SECOND_MS
    consumer_members_max: int = 10_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is for groups whose members do not say which they like."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    entry_bytes_max: int = 1_000_000
    """What the records of one result may take: the topic's `max.message.bytes`, less a little."""

    def with_entry_bytes_max(self, entry_bytes_max: int) -> "GroupConfig":
        return replace(self, entry_bytes_max=entry_bytes_max)
