"""What handlers that write in transactions have in common: verification, and what its errors become.

Before the first batch of a transaction is appended to a partition the transaction coordinator is asked
(`peers.transaction_verifier`), and the partition remembers that it was (`replication.verifications`).  A
`VerifiedPartitions` is one request's part of that: made before the coordinator is asked, told what it said,
and released once the request has appended, or gave up.

A partition that this broker leads on in another leader epoch, as at the end of a move, has forgotten what was
asked before.  The client is told to try again then, and not that its transaction is in a wrong state.
"""

from collections.abc import Iterator
from typing import Final

from distributedlog.broker.net.dispatch import RequestError
from distributedlog.broker.peers.transaction_verifier import Purpose, Verdicts
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidTransactionStateError, NotEnoughReplicasError
from distributedlog.model.ids import TopicPartition
from distributedlog.replication.partition import Partition
from distributedlog.replication.verifications import Verification
from distributedlog.statemachine import Producer

RETRIABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a client may try again, but producers do not expect of a partition."""


class VerifiedPartitions:
    """The partitions of one request about which the coordinator is asked."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self._begun: dict[Partition, Verification] = {}
        self._leader_epochs: dict[Partition, int] = {}

    def __len__(self) -> int:
        return len(self._begun)

    def add(self, partition: Partition) -> None:
        if partition not in self._begun:
            self._begun[partition] = partition.verifications.begin(*self.producer)
            self._leader_epochs[partition] = partition.leader_epoch

    @property
    def keys(self) -> tuple[TopicPartition, ...]:
        return tuple(each.key for each in self._begun)

    def is_of_earlier_epoch(self, partition: Partition) -> bool:
        """Returns whether the partition has been led on anew since the coordinator was asked about it."""
        epoch = self._leader_epochs.get(partition, partition.leader_epoch)
        return partition.is_leader and epoch != partition.leader_epoch

    def take(self, verdicts: Verdicts) -> Iterator[tuple[Partition, ErrorCode]]:
        """Confirms what the coordinator confirmed; yields what it did not, with the error code."""
        for partition, verification in self._begun.items():
            code = verdicts[partition.key]
            if code is ErrorCode.NONE:
                verification.is_confirmed = True
            else:
                yield partition, code

    def release(self) -> None:
        begun, self._begun = self._begun, {}
        for partition, verification in begun.items():
            partition.verifications.release(verification)


def make_produce_error(code: ErrorCode, purpose: Purpose) -> DlogError:
    """Makes the error with which a partition refuses a batch that the coordinator did not confirm."""
    if code is ErrorCode.INVALID_TXN_STATE:
        return InvalidTransactionStateError("the partition was not added to the transaction")
    is_too_early = code is ErrorCode.CONCURRENT_TRANSACTIONS and purpose is not Purpose.ADD
    if code in RETRIABLE or is_too_early:
        # Which clients of every version try again, without looking for another leader first.
        return NotEnoughReplicasError(f"the transaction could not be verified: {code.name}")
    return RequestError(code, "the transaction coordinator did not confirm the transaction")


def make_group_error(code: ErrorCode) -> DlogError:
    """Makes the error of offsets that are committed in a transaction that was not confirmed."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Which clients try again, without looking for the group's coordinator first.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return RequestError(code, "the transaction coordinator did not confirm the transaction")
