"""Every transactional id commits something once everything has healed: none is refused for ever, whoever had
its transaction before.

Clients give up, abort and are paused by chance, and may so commit nothing in all the time that is left.  They
are spared that while they are waited for (`is_awaiting`).
"""

from typing import TYPE_CHECKING

from tests.simulation.brokers.checkers import BrokersChecker

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import BrokersCluster


class StuckProducers(BrokersChecker):
    name = "stuck producer"

    def __init__(self, cluster: "BrokersCluster") -> None:
        super().__init__(cluster)
        self._is_healed = False
        self._awaited: set[str] = set()
        """The transactional ids that are still to commit something."""

    @property
    def is_awaiting(self) -> bool:
        """Whether everything has healed, and not every transactional id has committed something since."""
        return self._is_healed and bool(self._awaited)

    def on_healed(self) -> None:
        self._is_healed = True

    def started(self, transactional_id: str) -> None:
        """A client has begun to work with this id."""
        if not self._is_healed:
            self._awaited.add(transactional_id)

    def committed(self, transactional_id: str) -> None:
        if self._is_healed:
            self._awaited.discard(transactional_id)

    def finish(self) -> None:
        if self._awaited and not self.cluster.observer.progress.waiting_for_operator:
            self.fail(f"{', '.join(sorted(self._awaited))} committed nothing since everything healed")
