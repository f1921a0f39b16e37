"""Changes of the ISR that this broker, as a leader, asks the controller for.

    a follower that is not in the ISR fetches   ─┐
    every half of replica.lag.time.max.ms       ─┴─► another ISR is proposed (`replication/isr`)
                                                         └─► AlterPartition, all of them in one request
    the reply, or the image that has it         ────► the proposal is settled

One request is under way at a time; what is proposed meanwhile goes with the next one.

A proposal counts as long as nobody knows what became of it (`replication/isr`), so it is withdrawn only
when the controller has refused it for good: INELIGIBLE_REPLICA, of a follower that is fenced, shutting
down, or has registered anew.  That is asked again after a while.  Where the reply says that the partition
is another one by now (its epochs), the image that is on its way settles it.  Where no reply came, it is
asked again, and is not withdrawn before the lost request can no longer be applied: when its time is over,
or as soon as the image shows that a member has registered anew since.  Nobody joins with an earlier broker
epoch after that, and had the request been applied before, that image would show it.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.controller.image import MetadataImage
from distributedlog.controller.requests import (
    AlterPartitionsReply,
    AlterPartitionsRequest,
    IsrChange,
    IsrMember,
    IsrOutcome,
    Request,
    Response,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.scheduler import Scheduler
from distributedlog.replication.contract import PartitionSignals
from distributedlog.replication.isr import UNKNOWN_EPOCH, IsrProposal
from distributedlog.replication.partition import Partition

logger = logging.getLogger(__name__)

CHANGES_MAX: Final = 1_000
"""How many partitions one request may name."""
RETRY_MS: Final = 500


class _Sent(NamedTuple):
    """A proposal that is under way."""

    partition: Partition
    proposal: IsrProposal
    growth: int
    """How many members the ISR has more than before."""

    @property
    def is_open(self) -> bool:
        """The partition is still led here, and no image has settled the proposal."""
        view = self.partition.view
        return view is not None and view.proposal is self.proposal


Ask = Callable[[Request, int, Done[Response]], None]


class IsrChanges:
    """Lives on the data loop."""

    def __init__(
        self,
        node_id: int,
        signals: PartitionSignals,
        *,
        ask: Ask,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        clock: Clock,
        scheduler: Scheduler,
        lag_ms_max: int,
        timeout_ms: int,
    ) -> None:
        self._node_id = node_id
        self._ask = ask
        self._image = image
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._scheduler = scheduler
        self._lag_ms_max = lag_ms_max
        self._timeout_ms = timeout_ms
        self._leading: dict[Partition, None] = {}
        self._waiting: dict[Partition, None] = {}
        self._not_before_ms: dict[Partition, int] = {}
        self._unknown_until_ms: dict[Partition, int] = {}
        self._is_in_flight = False
        self._is_posted = False
        self._is_closed = False
        self.shrinks = 0
        self.expands = 0
        signals.out_of_sync_follower_fetched.append(self._follower_fetched)
        signals.state_changed.append(self._state_changed)
        self._tick()

    def close(self) -> None:
        self._is_closed = True

    # --- what is proposed ----------------------------------------------------------------------

    def _state_changed(self, partition: Partition) -> None:
        if partition.is_leader:
            self._leading[partition] = None
        else:
            self._leading.pop(partition, None)
            self._waiting.pop(partition, None)
        view = partition.view
        if view is None or view.proposal is None:
            self._unknown_until_ms.pop(partition, None)
            self._not_before_ms.pop(partition, None)

    def _follower_fetched(self, partition: Partition) -> None:
        if partition not in self._waiting:
            self._waiting[partition] = None
            self._send_soon()

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._waiting.update(self._leading)
        if self._waiting:
            self._send_soon()
        self._scheduler.call_at(self._clock.monotonic_ms() + max(1, self._lag_ms_max // 2), self._tick)

    def _send_soon(self) -> None:
        if not self._is_posted and not self._is_in_flight and not self._is_closed:
            self._is_posted = True
            self._scheduler.post(self._send)

    # --- requests ------------------------------------------------------------------------------

    def _send(self) -> None:
        self._is_posted = False
        if self._is_in_flight or self._is_closed:
            return
        changes: list[_Sent] = []
        now_ms = self._clock.monotonic_ms()
        while self._waiting and len(changes) < CHANGES_MAX:
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            proposal = self._propose(partition, now_ms)
            if proposal is not None:
                changes.append(_Sent(partition, proposal, len(proposal.isr) - len(partition.isr)))
        if not changes:
            return
        self._is_in_flight = True
        request = AlterPartitionsRequest(
            self._node_id,
            self._broker_epoch(),
            tuple(_make_change(each.partition, each.proposal) for each in changes),
        )
        self._ask(request, self._timeout_ms, lambda outcome: self._on_reply(changes, outcome))

    def _propose(self, partition: Partition, now_ms: int) -> IsrProposal | None:
        view = partition.view
        if view is None or self._not_before_ms.get(partition, 0) > now_ms:
            return None
        if view.proposal is not None:
            return view.proposal  # what became of it is not known
        proposal = view.propose(
            partition.log_end_offset,
            now_ms,
            self._lag_ms_max,
            self._is_eligible,
            leader_start_offset=partition.log_start_offset,
        )
        if proposal is not None:
            logger.info("the ISR of %s is to be %s instead of %s", partition.key, proposal.isr, partition.isr)
        return proposal

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._image().brokers.get(broker_id)
        return broker is not None and broker.is_active and broker.epoch == broker_epoch

    # --- replies -------------------------------------------------------------------------------

    def _on_reply(self, changes: list["_Sent"], outcome: Outcome[Response]) -> None:
        self._is_in_flight = False
        if self._is_closed:
            return
        if outcome.error is not None:
            logger.warning("the ISR of %d partitions cannot be changed yet: %s", len(changes), outcome.error)
            now_ms = self._clock.monotonic_ms()
            open_ones = [each.partition for each in changes if each.is_open]
            for partition in open_ones:
                self._unknown_until_ms[partition] = now_ms + 2 * self._timeout_ms
            self._again_later(open_ones)
        else:
            reply = outcome.value()
            assert isinstance(reply, AlterPartitionsReply)
            for each, result in zip(changes, reply.changes, strict=True):
                self._settle(each, result)
        if self._waiting:
            self._send_soon()

    def _settle(self, sent: "_Sent", outcome: IsrOutcome) -> None:
        partition = sent.partition
        if outcome.error is ErrorCode.NONE:
            self.shrinks += sent.growth < 0
            self.expands += sent.growth > 0
            return
        if not sent.is_open:
            return  # the image has settled it
        logger.info("the ISR of %s stays as it is: %s", partition.key, outcome.error.name)
        if outcome.error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST):
            is_known = self._clock.monotonic_ms() >= self._unknown_until_ms.get(partition, 0)
            if is_known or self._names_earlier_epoch(partition, sent.proposal):
                partition.withdraw_proposal()
            self._again_later([partition])

    def _names_earlier_epoch(self, partition: Partition, proposal: IsrProposal) -> bool:
        """Returns whether the image has the partition as it is here, and a member in a later broker epoch."""
        image = self._image()
        state = image.partition(partition.topic_id, partition.partition_id)
        if state is None or state.partition_epoch != partition.partition_epoch:
            return False
        return any(
            UNKNOWN_EPOCH < broker_epoch < broker.epoch
            for broker_id, broker_epoch in proposal.members
            if (broker := image.brokers.get(broker_id)) is not None
        )

    def _again_later(self, partitions: list[Partition]) -> None:
        at_ms = self._clock.monotonic_ms() + RETRY_MS
        for partition in partitions:
            self._not_before_ms[partition] = at_ms

        def again() -> None:
            for partition in partitions:
                if partition.is_leader:
                    self._waiting[partition] = None
            self._send_soon()

        self._scheduler.call_at(at_ms, again)


def _make_change(partition: Partition, proposal: IsrProposal) -> IsrChange:
    return IsrChange(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple(IsrMember(broker_id, epoch) for broker_id, epoch in proposal.members),
    )
