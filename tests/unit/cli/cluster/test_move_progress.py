from distributedlog.cli.cluster.move_progress import RATE_SECONDS, MoveRate, find_left
from distributedlog.client.admin.admin import Reassignment
from distributedlog.model.ids import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
MIB = 1024 * 1024


def test_what_new_replicas_lack_of_the_largest_is_left() -> None:
    moves = {A0: Reassignment((3, 4, 1), (3, 4), (1,)), A1: Reassignment((2, 1), (2,), (1,))}
    sizes = {1: {A0: 100, A1: 70}, 2: {A1: 70}, 3: {A0: 40}}
    assert find_left(moves, sizes) == {A0: 60 + 100, A1: 0}, "of 4 nothing is known"
    assert find_left(moves, {}) == {A0: 0, A1: 0}


def test_the_rate_is_that_of_the_last_seconds_and_says_how_long_it_takes() -> None:
    rate = MoveRate()
    rate.note(100 * MIB, 0.0)
    assert rate.per_second is None
    assert rate.spell(3) == "3 moves under way, 100.0 MiB left"
    rate.note(90 * MIB, 1.0)
    assert rate.spell(3) == "3 moves under way, 90.0 MiB left, 10.0 MiB in a second: 9.0 s"
    rate.note(90 * MIB, 1.0 + RATE_SECONDS)
    assert rate.spell(2) == "2 moves under way, 90.0 MiB left, 0 bytes in a second"
    rate.note(95 * MIB, 2.0 + RATE_SECONDS)
    assert rate.per_second == 0, "more was written than fetched"
