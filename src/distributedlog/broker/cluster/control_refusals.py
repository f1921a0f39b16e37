"""What the control port refused: counted by reason for the metrics, and told in the log now and then.

The log is bounded as for clients (`limited_log`): a line a minute for each peer and reason.  Lives on the
control loop; `counts` are copied into the status that the metrics show.
"""

import logging
from collections.abc import Mapping

from distributedlog.broker.observability.rate_limited_log import RateLimitedLog
from distributedlog.ports.clock import Clock

logger = logging.getLogger(__name__)


class ControlRefusals:
    def __init__(self, clock: Clock) -> None:
        self._limited_log = RateLimitedLog(logger, clock)
        self._counts: dict[str, int] = {}
        self.unproven = 0

    def refuse(self, peer: str, reason: str, detail: str) -> None:
        """Counts and logs a refusal: `peer` is an address or a node, `reason` is one of a few fixed words."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        self._limited_log.warn(peer, reason, detail)

    def refuse_message(self, sender: int, reason: str) -> None:
        """A message of consensus that was not taken."""
        self.refuse(f"node {sender}", reason, "a message of consensus was not taken")

    def accept_unproven(self, node_id: int) -> None:
        """Counts and logs that a node was spoken with although it proved nothing."""
        self.unproven += 1
        self._limited_log.warn(
            f"node {node_id}",
            "no proof",
            "it is believed to be a member of this cluster without a proof, since control.authentication is "
            "optional: set it to required once all nodes are upgraded",
        )

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts by reason, as of now."""
        return dict(self._counts)
