import pytest

from distributedlog.replication.verifications import REFUSED_MAX, Verifications


def test_only_a_confirmed_verification_of_the_very_epoch_counts() -> None:
    verifications = Verifications()
    asked = verifications.begin(7, 1)
    assert not verifications.is_confirmed(7, 1)
    asked.is_confirmed = True
    assert verifications.is_confirmed(7, 1)
    assert not verifications.is_confirmed(7, 0)
    assert not verifications.is_confirmed(7, 2)
    assert not verifications.is_confirmed(8, 1)


def test_a_marker_ends_what_was_asked_before_it() -> None:
    verifications = Verifications()
    before = verifications.begin(7, 1)
    verifications.end(7, 1, has_bumped_epoch=False)
    before.is_confirmed = True  # the response of before the marker comes late
    assert not verifications.is_confirmed(7, 1)
    after = verifications.begin(7, 1)
    assert after is not before
    verifications.release(before)
    after.is_confirmed = True
    assert verifications.is_confirmed(7, 1)


@pytest.mark.parametrize(
    ("marker_epoch", "has_bumped_epoch", "is_ended"),
    [
        (4, False, False),  # late: of a producer before
        (5, False, True),  # it may be this transaction's
        (6, False, True),  # the coordinator has fenced the producer
        (5, True, False),  # of the transaction before
        (6, True, True),
        (7, True, True),
    ],
)
def test_a_marker_ends_transactions_up_to_its_own_epoch_and_a_bumped_one_up_to_the_epoch_before(
    marker_epoch: int, has_bumped_epoch: bool, is_ended: bool
) -> None:
    verifications = Verifications()
    verifications.begin(7, 5).is_confirmed = True
    verifications.begin(8, 0).is_confirmed = True
    verifications.end(7, marker_epoch, has_bumped_epoch=has_bumped_epoch)
    assert verifications.is_confirmed(7, 5) is not is_ended
    assert verifications.is_confirmed(8, 0), "another producer"


def test_it_is_kept_until_the_last_one_who_asked_has_released_it() -> None:
    verifications = Verifications()
    first, second = verifications.begin(7, 1), verifications.begin(7, 1)
    assert first is second
    first.is_confirmed = True
    verifications.release(first)
    assert verifications.is_confirmed(7, 1)
    verifications.release(second)
    assert not verifications.is_confirmed(7, 1)
    assert len(verifications) == 0


def test_another_epoch_takes_the_place_of_the_one_before() -> None:
    verifications = Verifications()
    earlier = verifications.begin(7, 1)
    earlier.is_confirmed = True
    later = verifications.begin(7, 2)
    assert not verifications.is_confirmed(7, 1)
    verifications.release(earlier)
    later.is_confirmed = True
    assert verifications.is_confirmed(7, 2)


def test_a_zombie_of_an_earlier_epoch_takes_nobodys_place() -> None:
    verifications = Verifications()
    present = verifications.begin(7, 3)
    late = verifications.begin(7, 2)
    late.is_confirmed = True
    assert not verifications.is_confirmed(7, 2)
    verifications.release(late)
    present.is_confirmed = True
    assert verifications.is_confirmed(7, 3)
    verifications.release(present)
    assert not len(verifications)


def test_a_new_leadership_begins_without_any() -> None:
    verifications = Verifications()
    verifications.begin(7, 1).is_confirmed = True
    verifications.clear()
    assert not verifications.is_confirmed(7, 1)


def test_nothing_overtakes_the_lowest_sequence_that_was_refused() -> None:
    verifications = Verifications()
    verifications.refuse(7, 1, 10)
    verifications.refuse(7, 1, 5)
    verifications.refuse(7, 1, 8)
    assert [verifications.overtakes(7, 1, sequence) for sequence in (0, 5, 6, 10)] == [
        False,
        False,
        True,
        True,
    ]
    assert not verifications.overtakes(8, 1, 6), "another producer"
    assert not verifications.overtakes(7, 2, 6), "another epoch"
    verifications.refuse(7, 0, 0)
    assert not verifications.overtakes(7, 1, 5), "an earlier epoch says nothing of this one"
    verifications.refuse(7, 2, 9)
    assert (verifications.overtakes(7, 1, 6), verifications.overtakes(7, 2, 10)) == (False, True)
    verifications.end(7, 2, has_bumped_epoch=True)
    assert verifications.overtakes(7, 2, 10), "the marker is of the epoch before"
    verifications.end(7, 3, has_bumped_epoch=True)
    assert not verifications.overtakes(7, 2, 10)


def test_sequences_begin_anew_behind_the_highest() -> None:
    verifications = Verifications()
    verifications.refuse(7, 1, 2**31 - 1)
    assert verifications.overtakes(7, 1, 0)
    verifications.refuse(7, 1, 4)
    assert verifications.overtakes(7, 1, 0), "the lowest is still the one before the turn"


def test_refused_sequences_are_bounded() -> None:
    verifications = Verifications()
    for producer_id in range(REFUSED_MAX + 1):
        verifications.refuse(producer_id, 0, 0)
    assert not verifications.overtakes(0, 0, 1)
    assert verifications.overtakes(REFUSED_MAX, 0, 1)
