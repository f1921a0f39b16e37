"""Which findings a mode expects."""

from tests.chaos.modes import ACKS_1, CARELESS, MODES, SAFE, UNCLEAN, UNSYNCED
from tests.reliability.checker import Finding

LOSS, OTHER = Finding("unseen", "x"), Finding("offset regression", "x")


def test_the_safe_settings_allow_no_finding() -> None:
    assert SAFE.is_as_expected([])
    assert not SAFE.is_as_expected([OTHER])
    assert not SAFE.is_as_expected([LOSS])


def test_where_records_may_be_lost_a_loss_has_to_be_found() -> None:
    for mode in (ACKS_1, UNCLEAN, UNSYNCED):
        assert mode.is_as_expected([LOSS, OTHER])
        assert not mode.is_as_expected([OTHER])
        assert not mode.is_as_expected([])


def test_of_careless_clients_all_has_to_be_found_that_they_do_wrong() -> None:
    names = ("aborted read", "own uncommitted read", "hanging LSO", "not transformed")
    everything = [Finding(name, "x") for name in names]
    assert CARELESS.is_as_expected([*everything, OTHER])
    for missing in everything:
        assert not CARELESS.is_as_expected([each for each in everything if each is not missing])


def test_transactional_clients_are_where_nothing_may_be_lost() -> None:
    assert [mode for mode in MODES.values() if mode.has_transactions] == [SAFE, CARELESS]


def test_each_mode_is_known_by_its_name() -> None:
    assert set(MODES) == {"safe", "acks-1", "unclean", "unsynced", "careless"}
