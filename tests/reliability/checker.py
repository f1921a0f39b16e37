"""All checks by name, and what they found.

    finding                    what it means that it happens
    inconsistent offsets       one offset was seen with two values
    duplicate                  one value stands at two offsets (idempotence on)
    lost write                 an acknowledged value below the highest offset read was never read
    unseen                     an acknowledged value was not read by the final read
    aborted read               a value whose write definitely failed or was aborted was read (read_committed)
    phantom                    a value that nobody sent was read
    torn transaction           part of a transaction was read and part never appears
    own uncommitted read       a transaction reads its own sends
    circular flow              a cycle of write-read dependencies between committed transactions
    poll skip                  a consumer with a fixed assignment jumped forward
    non-monotonic poll         a consumer with a fixed assignment jumped back
    non-monotonic send         a later send of one process stands at a lower offset
    offset regression          a committed offset, the high watermark or the latest offset went back
    stale end                  the latest offset was lower than what had been acknowledged before
    group offset regression    a group's committed offset went back from one member to another
    two owners                 a partition belonged to two members of one generation
    read then gone             a value was read and is not in the final read
    offset gap                 an offset was passed over; only where nothing may leave one out

Each is looked for by a pure function of the history, of which there are unit tests with one history each.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tests.reliability.checks import groups, offsets, order, positions, transactions, writes
from tests.reliability.history import History, Outcome

Check = Callable[[History], Iterator[str]]
SHOWN_MAX = 5

ALWAYS: Mapping[str, Check] = {
    "inconsistent offsets": offsets.inconsistent_offsets,
    "lost write": writes.lost_writes,
    "unseen": writes.unseen,
    "aborted read": writes.aborted_reads,
    "phantom": writes.phantoms,
    "torn transaction": transactions.torn_transactions,
    "own uncommitted read": transactions.own_uncommitted_reads,
    "circular flow": transactions.circular_flows,
    "poll skip": order.poll_skips,
    "non-monotonic poll": order.non_monotonic_polls,
    "non-monotonic send": order.non_monotonic_sends,
    "offset regression": positions.offset_regressions,
    "stale end": positions.stale_ends,
    "two owners": groups.two_owners,
}
"""What no log may show, as long as its producers keep their order (idempotent, or one request at a time)."""
IDEMPOTENT: Mapping[str, Check] = {"duplicate": offsets.duplicates}
"""The checks with idempotent producers."""
WHOLE: Mapping[str, Check] = {"offset gap": offsets.offset_gaps, "read then gone": writes.read_then_gone}
"""The checks with neither transactions nor compaction, and within the retention."""
GROUPS: Mapping[str, Check] = {"group offset regression": positions.group_offset_regressions}
"""The checks with groups whose members commit only what they read since they were assigned it."""


class Finding(NamedTuple):
    name: str
    text: str


def check(history: History, checks: Mapping[str, Check] = ALWAYS) -> list[Finding]:
    return [Finding(name, text) for name, found in checks.items() for text in found(history)]


def describe(findings: list[Finding]) -> str:
    """How many of each, and the first few."""
    lines = []
    for name in dict.fromkeys(finding.name for finding in findings):
        texts = [finding.text for finding in findings if finding.name == name]
        lines.append(f"{name}: {len(texts)}")
        lines += [f"    {text}" for text in texts[:SHOWN_MAX]]
    return "\n".join(lines) or "nothing is wrong"


def figures(history: History) -> str:
    outcomes = [send.outcome for send in history.sends]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in Outcome)
    polled = sum(len(poll.records) for poll in history.polls)
    final = sum(map(len, history.final.values()))
    ended = [each.outcome for each in history.ended]
    told = ", ".join(f"{ended.count(outcome)} {outcome}" for outcome in Outcome)
    transactions = f"{len(ended)} transactions ({told}), " if ended else ""
    return (
        f"{len(outcomes)} sends ({counts}), {transactions}{polled} records polled, "
        f"{len(history.positions)} positions told, {final} records in the final read"
    )
