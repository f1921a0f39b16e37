"""Who takes part in a run, and what is told of them."""

from collections import Counter

import pytest

from tests.chaos import transactions
from tests.chaos.clients import GROUPS, PLAIN, SECOND, TRANSFORMING, clients_of, describe_clients
from tests.chaos.run import PARTITIONS
from tests.reliability.history import History, Outcome, Place, Poll, Seen, Send

PLACE = Place("orders", 0)


def test_without_java_everybody_else_takes_part() -> None:
    taking = clients_of(1, has_java=False)
    assert taking == (PLAIN, transactions.CLIENTS, GROUPS)


@pytest.mark.parametrize("seed", range(7))
def test_with_java_each_partition_has_one_transformer_still(seed: int) -> None:
    taking = clients_of(seed, has_java=True)
    transformers = [name.split(".") for program, name in taking.transactional if program == TRANSFORMING]
    assert sorted(int(partition) for _, _, partition in transformers) == list(range(transactions.PARTITIONS))
    assert [kind for _, kind, _ in transformers].count("java") == 1


def test_java_takes_the_place_of_every_other_transformer_by_some_seed() -> None:
    replaced = {
        name
        for seed in range(3)
        for program, name in set(transactions.CLIENTS) - set(clients_of(seed, has_java=True).transactional)
    }
    assert replaced == {name for program, name in transactions.CLIENTS if program == TRANSFORMING}


def test_with_java_all_others_but_that_one_are_there() -> None:
    taking = clients_of(3, has_java=True)
    assert set(PLAIN) - set(taking.plain) == {SECOND}
    assert len(set(transactions.CLIENTS) - set(taking.transactional)) == 1
    members = {name.split(".")[0] for program, name in taking.plain if program.startswith("grouping")}
    assert members == set(taking.groups)


@pytest.mark.parametrize("has_java", [False, True])
def test_every_member_of_a_group_has_something_to_read(*, has_java: bool) -> None:
    """Who has no partition gets no further, which is an anomaly."""
    names = [name for _, name in clients_of(1, has_java=has_java).plain]
    members = Counter(name.split(".")[0] for name in names if "." in name)
    assert max(members.values()) <= PARTITIONS


def test_what_each_has_done_is_counted_with_whoever_took_its_place() -> None:
    history = History(
        sends=[
            Send("p-java", PLACE, "a", 1, 2, Outcome.OK, 0),
            Send("p-java+", PLACE, "b", 3, 4, Outcome.OK, 1),
            Send("p-java+", PLACE, "c", 5, 6, Outcome.UNKNOWN),
        ],
        polls=[Poll("c-java", PLACE, 1, (Seen(0, "a"), Seen(1, "b")), 7, 8)],
    )
    assert describe_clients(history).endswith(": c-java 0 and 2, p-java 2 and 0")
    assert describe_clients(History()).endswith(": none")
