"""Transactions that the coordinator has confirmed to be part of, on the leader of a partition.  Pure.

No transactional batch begins a transaction in a log unless the transaction coordinator knows that this
partition takes part in it: otherwise nobody would ever write its marker, and the last stable offset would
stand still for good.  So before the first append of a transaction the coordinator is asked, which takes a
while; what may happen meanwhile is why there is more to this than a flag.

    begin      somebody asks the coordinator about (producer id, producer epoch)
    confirm    it said yes: a batch of that producer and epoch may begin a transaction
    release    who asked has appended, or gave up; the last one to do so takes the verification away
    end        a marker was written: what was asked before it says nothing about what comes after it, if the
               marker may be of that transaction

| order of events                       | what becomes of the batch                                        |
|---------------------------------------|------------------------------------------------------------------|
| begin, confirm, append                | appended                                                         |
| begin, append                         | refused: nobody has confirmed it                                 |
| begin, end, confirm, append           | refused: the confirmation is of a transaction that has ended     |
| begin, confirm, another epoch, append | refused: it was another transaction that was confirmed           |
| begin, confirm, end of the one before | appended: see below which transactions a marker may be of        |

Once a transaction is open in the log no verification is needed: its marker is yet to come.

**Whose marker.**  Markers come again, from the same coordinator or from the next one, when the producer is in
its next transaction already.  At transaction.version 2 a marker carries the epoch behind that of its
transaction, so it ends what has an earlier epoch than its own.  In the classic flow nothing tells the
transactions of an epoch apart: a marker ends what has its own epoch, or an earlier one.

**Order.**  A first batch that was refused, and that its producer sends again, must not be overtaken by the
next one, which may be confirmed before it: a log that knows nothing of a producer takes any sequence.  So the
lowest sequence that was refused is remembered for a producer and epoch, until the marker, and nothing above
it begins a transaction.  At transaction.version 2 every epoch begins with 0 anyway: this is for classic
clients.

All of this is soft state of one leadership; who leads next asks again.  So does who leads on in another
leader epoch; but its clients notice nothing of that, and what was refused is still to come first.
"""

from typing import Final

from distributedlog.records.layout import is_behind

REFUSED_MAX: Final = 1_000
"""The producers of which a refused sequence is remembered; of more, the first ones are forgotten."""


class Verification:
    """A question to the coordinator, of one or more who wait for its answer."""

    __slots__ = ("is_confirmed", "producer_epoch", "producer_id", "users")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.is_confirmed = False
        self.users = 0


class Verifications:
    """The verifications of one partition, at most one for each producer id."""

    __slots__ = ("_by_producer", "_refused")

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}
        self._refused: dict[int, tuple[int, int]] = {}
        """The epoch of a producer id, and the lowest sequence of it that was refused."""

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, producer_id: int, producer_epoch: int) -> Verification:
        """Returns the verification of this producer and epoch: the one under way if there is any.  One of an
        earlier epoch than another's counts not, or no more; whoever begins one releases it."""
        found = self._by_producer.get(producer_id)
        if found is None or found.producer_epoch < producer_epoch:
            found = self._by_producer[producer_id] = Verification(producer_id, producer_epoch)
        elif found.producer_epoch > producer_epoch:
            found = Verification(producer_id, producer_epoch)
        found.users += 1
        return found

    def is_confirmed(self, producer_id: int, producer_epoch: int) -> bool:
        found = self._by_producer.get(producer_id)
        return found is not None and found.is_confirmed and found.producer_epoch == producer_epoch

    def release(self, verification: Verification) -> None:
        verification.users -= 1
        if not verification.users and self._by_producer.get(verification.producer_id) is verification:
            del self._by_producer[verification.producer_id]

    def refuse(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Remembers that a batch was not appended which its producer is to send again."""
        epoch, lowest = self._refused.get(producer_id, (producer_epoch, sequence))
        if epoch > producer_epoch:
            return
        if epoch < producer_epoch or is_behind(lowest, sequence):
            lowest = sequence
        self._refused[producer_id] = producer_epoch, lowest
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def overtakes(self, producer_id: int, producer_epoch: int, sequence: int) -> bool:
        """Returns whether a batch comes before one that was refused, and should stand behind it."""
        epoch, lowest = self._refused.get(producer_id, (producer_epoch, sequence))
        return epoch == producer_epoch and is_behind(sequence, lowest)

    def end(self, producer_id: int, marker_epoch: int, *, has_bumped_epoch: bool) -> None:
        """A marker stands in the log.  `has_bumped_epoch`: it carries a higher epoch than its transaction."""
        last_epoch = marker_epoch - 1 if has_bumped_epoch else marker_epoch
        found = self._by_producer.get(producer_id)
        if found is not None and found.producer_epoch <= last_epoch:
            del self._by_producer[producer_id]
        refused = self._refused.get(producer_id)
        if refused is not None and refused[0] <= last_epoch:
            del self._refused[producer_id]

    def forget_confirmed(self) -> None:
        """Begins another leader epoch of the same leader."""
        self._by_producer.clear()

    def clear(self) -> None:
        self._by_producer.clear()
        self._refused.clear()
