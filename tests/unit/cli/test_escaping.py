r"""No escape sequence of a record or a name reaches a terminal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.cli.escaping import escape_bytes, escape_controls, escape_json_controls
from distributedlog.cli.output import TextTable, columns, print_json, print_line, show_bytes, warn

TITLE = "\x1b]0;owned\x07"
C1_CSI = "\x9b31m"
REVERSED = "\u202etxt.exe"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain, Grüße, 日本, 👍", "plain, Grüße, 日本, 👍"),
        (TITLE, "\\x1b]0;owned\\x07"),
        (C1_CSI, "\\x9b31m"),
        (REVERSED, "\\u202etxt.exe"),
        ("a\rb\nc\td\x7f\0", "a\\rb\\nc\\td\\x7f\\x00"),
        ("Grüße\x1b", "Grüße\\x1b"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, escaped: str) -> None:
    assert escape_controls(text) == escaped
    assert show_bytes(text.encode()) == escaped


def test_newlines_and_tabs_may_stay_and_nothing_else() -> None:
    assert escape_controls("a\tb\n\r\x1b", keeps_lines=True) == "a\tb\n\\r\\x1b"
    assert escape_bytes(b"a\tb\n\xff\x1b[2J") == b"a\tb\n\\xff\\x1b[2J"


@given(st.text())
def test_escaped_json_is_safe_and_means_the_same(text: str) -> None:
    escaped = escape_json_controls(json.dumps(text, ensure_ascii=False))
    assert json.loads(escaped) == text
    assert escape_controls(escaped) == escaped


def test_tables_lines_json_and_warnings_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    TextTable(columns("name<8 count>5")).row(f"{TITLE}\nforged", 1)
    print_line(f"group {TITLE}\nforged")
    print_json({"type": "group", "group": f"{TITLE}{C1_CSI}{REVERSED}\x7f"})
    warn(f"no topic {TITLE}\nforged")
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 4
    assert len(printed.err.splitlines()) == 1
    for line in [*printed.out.splitlines(), *printed.err.splitlines()]:
        assert escape_controls(line) == line
    assert json.loads(printed.out.splitlines()[-1])["group"] == f"{TITLE}{C1_CSI}{REVERSED}\x7f"
