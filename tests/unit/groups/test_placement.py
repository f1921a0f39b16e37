import pytest

from distributedlog.groups.placement import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("ä", 228),
        ("\U0001f600", 1772899),
    ],
)
def test_a_name_is_hashed_as_java_does(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_the_partition_is_kafkas() -> None:
    assert partition_of("hello", 50) == 22
    assert partition_of("polygenelubricants", 50) == 0, "the smallest number has no absolute value in Java"
    assert partition_of("", 50) == 0
