"""What somebody may have meant: the one name, or some of them, and nothing where nothing is near."""

from distributedlog.model.suggestions import did_you_mean, nearest

KNOWN = ("retention.ms", "retention.bytes", "segment.bytes")


def test_a_slip_is_surely_meant_and_a_guess_is_not() -> None:
    assert nearest("retention.m", KNOWN) == "retention.ms"
    assert nearest("colour", KNOWN) is None


def test_what_is_near_is_offered_nearest_first_and_else_what_to_do() -> None:
    assert did_you_mean("retention.byte", KNOWN, "-").startswith("did you mean retention.bytes or ")
    assert did_you_mean("colour", KNOWN, "see the list") == "see the list"


def test_a_name_of_a_megabyte_is_looked_at_only_in_part() -> None:
    assert nearest("x" * 1_000_000, KNOWN) is None
