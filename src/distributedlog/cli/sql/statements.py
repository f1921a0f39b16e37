"""SQL text divided into statements, at the semicolons that are in no text, name or comment."""

import re
from typing import Final

_PIECES: Final = re.compile(
    r"""
      --[^\n]*                    # a comment
    | /\*.*?\*/
    | '(?:[^'\\]|\\.|'')*'        # a text
    | "(?:[^"\\]|\\.)*"
    | `(?:[^`]|``)*`              # a name
    | [^;'"`/-]+                  # what means nothing here
    | .                           # a semicolon, or the beginning of something that has no end
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENERS: Final = ("'", '"', "`")
_CHANGE: Final = re.compile(
    r"(DROP|ALTER|CREATE(?:\s+OR\s+REPLACE)?|REPLACE|MSCK\s+REPAIR)(?:\s+EXTERNAL)?\s+(TABLE|DATABASE|SCHEMA)\b"
    r"|(TRUNCATE|INSERT|DELETE|UPDATE|MERGE|LOAD\s+DATA)\b",
    re.IGNORECASE,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """Returns the statements that are ended by a semicolon, and what is behind them."""
    statements: list[str] = []
    begin = 0
    for found in _PIECES.finditer(text):
        piece = found[0]
        if piece == ";":
            statements.append(text[begin : found.start()].strip())
            begin = found.end()
        elif piece in _OPENERS or (piece == "/" and text.startswith("/*", found.start())):
            break  # it goes on in a line that is not there yet
    return [each for each in statements if _says_something(each)], text[begin:]


def last_statement(rest: str) -> str | None:
    """Returns what is left at the end of the text, if it is more than blanks and comments."""
    return rest.strip() if _says_something(rest) else None


def find_change(statement: str) -> str | None:
    """Returns the words by which the statement would change a table, in capitals; None if it only asks, or
    makes views, which end with the session."""
    without_comments = "".join(
        " " if found[0].startswith(("--", "/*")) else found[0] for found in _PIECES.finditer(statement)
    )
    found = _CHANGE.match(without_comments.strip())
    return None if found is None else " ".join(found[0].upper().split())


def _says_something(text: str) -> bool:
    return any(not found[0].startswith(("--", "/*")) and found[0].strip() for found in _PIECES.finditer(text))
