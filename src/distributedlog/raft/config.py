"""Every limit of one Raft node.  Checked when it is made, so that no other place has to doubt them."""

from dataclasses import dataclass, fields

from distributedlog.model.config import KIB, MIB
from distributedlog.model.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Times in milliseconds, sizes in bytes.

    A follower campaigns after a silence drawn between one and two election timeouts, and again a quarter of
    that after its first failure, a half after its second; a leader that has not heard a majority for one
    election timeout steps down.
    """

    election_timeout_ms: int = 1000
    heartbeat_ms: int = 200
    append_bytes_max: int = 512 * KIB
    append_entries_max: int = 1024
    inflight_appends_max: int = 16
    entry_bytes_max: int = 8 * MIB
    uncommitted_bytes_max: int = 32 * MIB
    uncommitted_entries_max: int = 8192
    reads_pending_max: int = 4096
    apply_entries_max: int = 1024
    snapshot_bytes_max: int = 32 * MIB
    snapshot_chunk_bytes: int = 256 * KIB
    entries_kept_behind_snapshot: int = 1024
    promote_lag_entries_max: int = 64

    def __post_init__(self) -> None:
        for setting in fields(self):
            low = 0 if setting.name in ("entries_kept_behind_snapshot", "promote_lag_entries_max") else 1
            if getattr(self, setting.name) < low:
                raise ConfigError(
                    f"{setting.name} is {getattr(self, setting.name)}; it must be at least {low}"
                )
        if self.heartbeat_ms * 2 > self.election_timeout_ms:
            raise ConfigError(
                f"heartbeat_ms is {self.heartbeat_ms}; at least two must fit into "
                f"election_timeout_ms, {self.election_timeout_ms}, or one lost message starts an election"
            )
        if self.entry_bytes_max > self.uncommitted_bytes_max:
            raise ConfigError(
                "entry_bytes_max is over uncommitted_bytes_max: the largest entry could never be proposed"
            )
