"""What a JVM answers to those who ask it for transactions."""

from base64 import b64encode

import pytest

from tests.reliability.history import Seen
from tests.reliability.programs.java.compiled import name_of_classes
from tests.reliability.programs.transactions.java_client import (
    JavaError,
    is_fenced,
    read_answer,
    read_record,
)
from tests.reliability.programs.values import as_bytes


def test_an_answer_is_what_was_asked_for() -> None:
    assert read_answer("ok\n") == []
    assert read_answer("ok\t1:YQ==\t2:Yg==\n") == ["1:YQ==", "2:Yg=="]


@pytest.mark.parametrize(("word", "fenced"), [("fenced", True), ("other", False)])
def test_a_refusal_says_whether_the_producer_is_fenced(word: str, *, fenced: bool) -> None:
    with pytest.raises(JavaError, match="TimeoutException: too late") as raised:
        read_answer(f"refused\t{word}\tTimeoutException: too late\n")
    assert is_fenced(raised.value) is fenced


@pytest.mark.parametrize("line", ["", "o", "ok"])
def test_a_jvm_that_has_ended_is_no_refusal(line: str) -> None:
    with pytest.raises(EOFError):
        read_answer(line)


def test_a_record_is_its_offset_and_its_value() -> None:
    assert read_record(f"7:{b64encode(as_bytes('a-1')).decode()}") == Seen(7, "a-1")
    assert read_record("7:") == Seen(7, repr(b""))


def test_classes_are_known_by_what_they_are_made_of() -> None:
    made = name_of_classes([("A.java", b"a"), ("B.java", b"b")], "4.2.1")
    assert made == name_of_classes([("B.java", b"b"), ("A.java", b"a")], "4.2.1")
    others = [
        name_of_classes([("A.java", b"a"), ("B.java", b"c")], "4.2.1"),
        name_of_classes([("A.java", b"a"), ("C.java", b"b")], "4.2.1"),
        name_of_classes([("A.java", b"a"), ("B.java", b"b")], "4.2.2"),
        name_of_classes([("A.java", b"a")], "4.2.1"),
    ]
    assert len({made, *others}) == 1 + len(others)
