"""Where controllers are reached: by the settings, by what they registered, by what was noted of that.

    a node that the settings name        as the settings say; as it registers, once that changes while we run
    any other                            as it registered

What is registered stands in the metadata, which a node that starts does not have yet: its log may be
committed or not, and a node that does not vote keeps none.  So what was last known is noted in a file,

    quorum-addresses      line 1: the version, 0
                          then:   ID@HOST:PORT, one controller a line

which is only a place to begin, as the settings are: who is there is proved by the cluster's secret, and who
votes stands in the log.  A file that is damaged, too long or of another version is as none.  What a crash
does: the file is old or new.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from distributedlog.controller.image import ControllerRegistration, MetadataImage
from distributedlog.controller.persistent_map import PersistentMap
from distributedlog.model.errors import ConfigError, DlogError, StorageError
from distributedlog.ports.executor import Executor, Outcome
from distributedlog.settings.addresses import ADDRESSES_MAX, Voter, parse_voters
from distributedlog.storage.files import Files

_log = logging.getLogger(__name__)

ADDRESSES_FILE: Final = "quorum-addresses"
_BYTES_MAX: Final = 64 * 1024
_VERSION: Final = "0"
Address = tuple[str, int]


def encode_addresses(addresses: Iterable[Voter]) -> bytes:
    return "\n".join([_VERSION, *map(str, addresses), ""]).encode("ascii", "replace")


def decode_addresses(data: bytes | None) -> tuple[Voter, ...]:
    """Returns what was noted; nothing of what cannot be read."""
    if data is None or len(data) > _BYTES_MAX:
        return ()
    try:
        version, *lines = data.decode("ascii").split("\n")
        noted = [line for line in lines if line]
        if version != _VERSION or not noted or len(noted) > ADDRESSES_MAX:
            return ()
        return parse_voters(ADDRESSES_FILE, ",".join(noted))
    except (ValueError, ConfigError):
        return ()


class QuorumAddresses:
    """Lives on the control loop."""

    def __init__(
        self,
        node_id: int,
        configured: Iterable[Voter],
        files: Files,
        directory: str,
        executor: Executor,
        changed: Callable[[Mapping[int, Address]], None],
    ) -> None:
        """`changed` is told where all others are, each time that it changes."""
        self._node_id = node_id
        self._files = files
        self._directory = directory
        self._executor = executor
        self._changed = changed
        self._configured = {voter.node_id: (voter.host, voter.port) for voter in configured}
        self._registered: PersistentMap[int, ControllerRegistration] | None = None
        """Those of the last image; None before the first."""
        noted = decode_addresses(self._read())
        self._noted = {voter.node_id: (voter.host, voter.port) for voter in noted}

    def _read(self) -> bytes | None:
        try:
            return self._files.read_small(f"{self._directory}/{ADDRESSES_FILE}")
        except StorageError as error:
            _log.warning("where controllers were is not read: %s", error)
            return None

    @property
    def others(self) -> dict[int, Address]:
        """Where every other controller is."""
        addresses = {**self._noted, **self._configured}
        addresses.pop(self._node_id, None)
        return addresses

    def take_image(self, image: MetadataImage) -> None:
        """Follows the registrations; an image of a cluster that keeps none changes nothing."""
        before, now = self._registered, image.controllers
        if now is before or not image.cluster_id:
            return
        self._registered = now
        if not now and not self._noted:
            return
        others = self.others
        for controller_id, _, _, host, port in now.values():
            known = None if before is None else before.get(controller_id)
            if known is not None and (known.host, known.port) != (host, port):
                self._configured.pop(controller_id, None)  # it moved: what the settings say is of before
        noted = {each.controller_id: (each.host, each.port) for each in now.values()}
        if noted != self._noted:
            self._noted = noted
            self._note(noted)
        if self.others != others:
            self._changed(self.others)

    def _note(self, noted: Mapping[int, Address]) -> None:
        data = encode_addresses(Voter(node_id, *noted[node_id]) for node_id in sorted(noted))

        def write() -> None:
            if not self._files.is_directory(self._directory):
                self._files.make_directory(self._directory)
            self._files.write_atomically(f"{self._directory}/{ADDRESSES_FILE}", data)

        def done(outcome: Outcome[None]) -> None:
            if isinstance(outcome.error, DlogError):
                _log.warning("where controllers are is not noted: %s", outcome.error)

        self._executor.run_blocking(write, done)
