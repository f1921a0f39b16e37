"""`-f`: records in kcat's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.cli.records.formats import compile_format, unescaped
from distributedlog.model.errors import ConfigError
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Header, Record

HERE = TopicPartition("orders", 2)
RECORD = Record(b"va\xfflue", b"key", (Header("a", b"1"), Header("b", None)), 1234, 77)
EMPTY = Record(None, None, (), -1, 0)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%k %v", b"key va\xfflue\n"),
        ("%s", b"va\xfflue\n"),
        ("%t[%p]@%o", b"orders[2]@77\n"),
        ("%T %h", b"1234 a=1,b=NULL\n"),
        ("%K %S", b"3 6\n"),
        ("%o\\n", b"77\n"),
        ("%o\\t%k\\r\\n", b"77\tkey\r\n"),
        ("%v\\0", b"va\xfflue\0"),
        ("%v\\xFE", b"va\xfflue\xfe"),
        ("100%%", b"100%\n"),
        ("\\\\%k", b"\\key\n"),
        ("", b"\n"),
        ("größe\n", "größe\n\n".encode()),
    ],
)
def test_a_format_says_how_a_record_is_printed(text: str, printed: bytes) -> None:
    assert compile_format(text)(HERE, RECORD) == printed


def test_what_is_not_there_is_empty_or_as_one_likes() -> None:
    assert compile_format("%k|%v|%K|%S|%h")(HERE, EMPTY) == b"||-1|-1|\n"
    assert compile_format("%k|%v", b"NULL")(HERE, EMPTY) == b"NULL|NULL\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [("%q", "%q means nothing"), ("%", "no escape"), ("\\q", "no escape"), ("\\", "no escape")],
)
def test_what_means_nothing_is_refused_with_what_does(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compile_format(text)


@given(st.text(st.characters(exclude_characters="%\\", exclude_categories=["Cs"])))
def test_text_is_printed_as_it_is(text: str) -> None:
    assert compile_format(text)(HERE, RECORD) == text.encode() + b"\n"


@pytest.mark.parametrize(
    ("text", "separator"), [(":", b":"), ("\\t", b"\t"), ("=>", b"=>"), ("%k", b"%k"), ("\\x00", b"\0")]
)
def test_a_separator_may_be_escaped(text: str, separator: bytes) -> None:
    assert unescaped(text) == separator
