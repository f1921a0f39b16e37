"""No replica truncates below its own high watermark: nobody allows unclean elections here."""

from typing import TYPE_CHECKING

from distributedlog.replication.partition import Partition
from tests.simulation.brokers.checkers import BrokersChecker

if TYPE_CHECKING:
    from tests.simulation.brokers.host import BrokerHost


class NoCommittedTruncation(BrokersChecker):
    name = "no committed truncation"

    def on_look(self, host: "BrokerHost", partition: Partition) -> None:
        if partition.log_end_offset < partition.high_watermark:
            self.fail(
                f"{partition.key} on node {host.node_id} ends at {partition.log_end_offset}, below its high "
                f"watermark {partition.high_watermark}"
            )
        self._check_counts(host)

    def on_crash(self, host: "BrokerHost") -> None:
        self._check_counts(host)

    def _check_counts(self, host: "BrokerHost") -> None:
        fetchers = host.data.plane._fetchers if host.data is not None else None
        if fetchers is not None and fetchers.counts.truncations_below_hw:
            self.fail(f"node {host.node_id} has truncated below a high watermark of its own")
