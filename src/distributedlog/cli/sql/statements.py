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


def _says_something(text: str) -> bool:
    return any(not found[0].startswith(("--", "/*")) and found[0].strip() for found in _PIECES.finditer(text))
