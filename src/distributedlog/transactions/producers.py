"""Which producer id and epoch InitProducerId gives, and to whom it gives none (KIP-360).

| the id is       | who asks                                | gets                                         |
|-----------------|-----------------------------------------|----------------------------------------------|
| not known       | anyone                                  | a new producer id, epoch 0                   |
| free            | a producer that starts                  | the next epoch; all before it are fenced     |
| free            | the producer itself, for its next epoch | the next epoch                               |
| free            | the same again: its answer was lost     | the same answer                              |
| free, exhausted | one of the first two                    | a new producer id, epoch 0                   |
| ONGOING         | one that starts, or the producer itself | CONCURRENT_TRANSACTIONS, after it was fenced |
| PREPARE         | any of these                            | CONCURRENT_TRANSACTIONS: to be asked again   |
| any             | any other                               | PRODUCER_FENCED                              |

Free is EMPTY or COMPLETE.  That a request is sent again is known from the epoch before the last
InitProducerId (`last_epoch`), which no record has a field for: a new coordinator does not know it, as in
Kafka.
"""

from distributedlog.statemachine.pending import Producer
from distributedlog.transactions.transaction import (
    COMPLETE,
    EPOCH_GIVEN_MAX,
    NO_EPOCH,
    PREPARED,
    VERSION_EPOCH_PER_TRANSACTION,
    Event,
    Transaction,
    TransactionState,
    fenced,
    move,
)


def needs_fencing(transaction: Transaction, expected: Producer | None) -> bool:
    """Returns whether the open transaction has to be aborted before the request can be served; raises if the
    request is refused whatever the state."""
    if expected is not None and not _may_be_own(transaction, expected):
        raise fenced(transaction, expected)
    if transaction.state in PREPARED:
        move(transaction.state, Event.INIT)  # raises
    if transaction.state is not TransactionState.ONGOING:
        return False
    if expected is not None and expected != transaction.producer:
        raise fenced(transaction, expected)
    return True


def _may_be_own(transaction: Transaction, expected: Producer) -> bool:
    if expected.producer_id == transaction.producer_id:
        return True
    is_before = expected.producer_id == transaction.previous_producer_id
    return is_before and expected.producer_epoch >= EPOCH_GIVEN_MAX


def is_repeated(transaction: Transaction, expected: Producer | None, last_epoch: int) -> bool:
    """Returns whether the producer asks for what it was given already; raises if it is another one."""
    if expected is None or expected == transaction.producer:
        return False
    if expected.producer_epoch == _last_epoch(transaction, last_epoch):
        return True
    raise fenced(transaction, expected)


def _last_epoch(transaction: Transaction, last_epoch: int) -> int:
    """The epoch before the present one, where that is known to have been the same producer's."""
    if transaction.state in COMPLETE and transaction.version >= VERSION_EPOCH_PER_TRANSACTION:
        return transaction.producer_epoch - 1 if transaction.producer_epoch > 0 else NO_EPOCH
    return last_epoch
