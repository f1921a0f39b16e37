"""A transaction is there whole or not at all, to others only when it is committed, and in some order."""

from collections import defaultdict
from collections.abc import Iterator

from tests.reliability.history import History, Outcome


def torn_transactions(history: History) -> Iterator[str]:
    """Part of a transaction was read and part never appears."""
    read = {seen.value for _, seen in history.read()}
    values: dict[str, list[str]] = defaultdict(list)
    for send in history.sends:
        if send.transaction is not None and send.outcome is not Outcome.FAIL:
            values[send.transaction].append(send.value)
    for transaction, sent in values.items():
        missing = [value for value in sent if value not in read]
        if missing and len(missing) < len(sent):
            yield f"{transaction}: {len(sent) - len(missing)} of {len(sent)} were read; not {missing[0]}"


def own_uncommitted_reads(history: History) -> Iterator[str]:
    """A transaction reads its own sends."""
    sender = {send.value: send.transaction for send in history.sends if send.transaction is not None}
    for poll in history.polls:
        for seen in poll.records:
            if poll.transaction is not None and sender.get(seen.value) == poll.transaction:
                yield f"{poll.transaction} read {seen.value} on {poll.place} at {seen.offset}"


def circular_flows(history: History) -> Iterator[str]:
    """A cycle of write-read dependencies between committed transactions."""
    committed = history.transactions(Outcome.OK)
    sender = {send.value: send.transaction for send in history.sends if send.transaction in committed}
    flows: dict[str, set[str]] = defaultdict(set)
    for poll in history.polls:
        for seen in poll.records:
            source = sender.get(seen.value)
            if source is not None and poll.transaction in committed and source != poll.transaction:
                flows[source].add(poll.transaction)
    for cycle in _cycles(flows):
        yield " -> ".join(cycle)


def _cycles(flows: dict[str, set[str]]) -> Iterator[list[str]]:
    """One cycle for each way back that a walk of the graph meets, without recursion."""
    done: set[str] = set()
    for root in sorted(flows):
        path: list[str] = []
        ways = [iter([root])]
        while ways:
            node = next(ways[-1], None)
            if node is None:
                ways.pop()
                if path:
                    done.add(path.pop())
            elif node in path:
                yield [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                ways.append(iter(sorted(flows.get(node, ()))))
