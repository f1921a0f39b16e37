"""What was acknowledged is there, what was refused is not, and nothing comes from nowhere."""

from collections import defaultdict
from collections.abc import Iterator

from tests.reliability.history import History, Outcome, Place, Send


def _promised(history: History) -> Iterator[Send]:
    """Acknowledged, and if in a transaction, not in one that was aborted or may have been."""
    open_ended = history.transactions(Outcome.FAIL, Outcome.UNKNOWN)
    return (send for send in history.acknowledged() if send.transaction not in open_ended)


def lost_writes(history: History) -> Iterator[str]:
    """An acknowledged value below the highest offset that was read was never read."""
    highest: dict[Place, int] = defaultdict(lambda: -1)
    values = set()
    for place, seen in history.read():
        highest[place] = max(highest[place], seen.offset)
        values.add(seen.value)
    for send in _promised(history):
        if send.value not in values and send.offset is not None and send.offset < highest[send.place]:
            yield f"{send.place} at {send.offset}: {send.value}, acknowledged to {send.process}"


def unseen(history: History) -> Iterator[str]:
    """An acknowledged value was not read by the final read."""
    values = {seen.value for records in history.final.values() for seen in records}
    for send in _promised(history):
        if send.value not in values:
            yield f"{send.place} at {send.offset}: {send.value}, acknowledged to {send.process}"


def read_then_gone(history: History) -> Iterator[str]:
    """A value was read and is not there at the end, whether its write was acknowledged or not."""
    standing = {(place, seen) for place, records in history.final.items() for seen in records}
    gone = {
        (poll.place, seen): poll.process
        for poll in history.polls
        for seen in poll.records
        if poll.place in history.final and (poll.place, seen) not in standing
    }
    for (place, seen), process in gone.items():
        yield f"{place} at {seen.offset}: {seen.value}, read by {process}"


def aborted_reads(history: History) -> Iterator[str]:
    """A value whose write definitely failed, or whose transaction was aborted, was read (read_committed)."""
    aborted = history.transactions(Outcome.FAIL)
    never = {
        send.value: send
        for send in history.sends
        if send.outcome is Outcome.FAIL or send.transaction in aborted
    }
    for place, seen in history.read():
        if seen.value in never:
            yield f"{place} at {seen.offset}: {seen.value}, which failed for {never[seen.value].process}"


def phantoms(history: History) -> Iterator[str]:
    """A value that nobody sent to this partition was read."""
    sent = {(send.place, send.value) for send in history.sends}
    for place, seen in history.read():
        if (place, seen.value) not in sent:
            yield f"{place} at {seen.offset}: {seen.value}"
