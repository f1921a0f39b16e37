"""SQL text, divided into statements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.cli.sql.statements import find_change, last_statement, split_statements


def test_statements_end_with_semicolons_that_are_in_no_text_name_or_comment() -> None:
    text = "SELECT ';' AS a, \"x;\" -- not; this\nFROM `b;c` /* nor;\nthis */; SELECT 'it''s;';\n ; SELECT 3"
    statements, rest = split_statements(text)
    assert statements == [
        "SELECT ';' AS a, \"x;\" -- not; this\nFROM `b;c` /* nor;\nthis */",
        "SELECT 'it''s;'",
    ]
    assert last_statement(rest) == "SELECT 3"


def test_what_has_no_end_yet_waits_for_it() -> None:
    for begun in ("SELECT 'a;", 'SELECT "a;', "SELECT `a;", "SELECT 1 /* a;"):
        assert split_statements(begun) == ([], begun)
        assert last_statement(begun) == begun


def test_comments_and_blanks_are_no_statement() -> None:
    assert split_statements("-- hello;\n;; /* x */ ;\n") == ([], "\n")
    assert last_statement("\n -- the end") is None
    assert split_statements("SELECT 1 - 2 / 3;") == (["SELECT 1 - 2 / 3"], "")


@given(st.lists(st.text(alphabet="ab';`\"-/*\\", max_size=20), max_size=6))
def test_lines_that_come_one_by_one_say_the_same(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    found: list[str] = []
    held = ""
    for line in lines:
        statements, held = split_statements(f"{held}{line}\n")
        found += statements
    assert (found, held) == split_statements(text)


@pytest.mark.parametrize(
    ("statement", "change"),
    [
        ("drop table orders", "DROP TABLE"),
        ("  -- why\n DROP /* x */ TABLE IF EXISTS orders", "DROP TABLE"),
        ("Create Or Replace Table t AS SELECT 1", "CREATE OR REPLACE TABLE"),
        ("INSERT INTO orders VALUES (1)", "INSERT"),
        ("truncate table orders", "TRUNCATE"),
        ("SELECT 'DROP TABLE orders'", None),
        ("WITH drop AS (SELECT 1) SELECT * FROM drop", None),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", None),
        ("DROP VIEW v", None),
        ("SHOW TABLES", None),
        ("inserted", None),
    ],
)
def test_a_statement_that_would_change_tables_is_known(statement: str, change: str | None) -> None:
    assert find_change(statement) == change
