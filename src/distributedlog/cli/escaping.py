r"""Control characters, made visible before they reach a terminal.

A record, a header's name, a group id and a client id hold whatever their writer put into them, and a terminal
that is given an escape sequence obeys it: it hides text, changes the title, answers as if its user had typed.

| what is printed                        | escaped                                                        |
|----------------------------------------|----------------------------------------------------------------|
| tables, lines, warnings, errors        | always                                                         |
| JSON                                   | always, as JSON does: a reader gets the same characters        |
| records as bytes (`consume`), CSV      | on a terminal; into a pipe or a file they go as they are       |

Escaped are the control characters (C0, DEL and C1), the separators of lines and paragraphs, and those that
change the direction of text, since they make a line look like another.
"""

import re
from typing import Final

_CONTROL_CLASS: Final = "\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
_CONTROL: Final = re.compile(f"[{_CONTROL_CLASS}]")
_CONTROL_BUT_LINES: Final = re.compile(f"(?![\\n\\t])[{_CONTROL_CLASS}]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str, *, keeps_lines: bool = False) -> str:
    r"""Returns the text with `\x1b` in the place of an escape character, and so on.

    With `keeps_lines`, newlines and tabs stay what they are.
    """
    if text.isprintable():
        return text
    return (_CONTROL_BUT_LINES if keeps_lines else _CONTROL).sub(_escape, text)


def escape_json_controls(json_text: str) -> str:
    r"""Returns JSON of the same meaning in which control characters are `\u…` (`json.dumps` leaves some)."""
    if json_text.isprintable():
        return json_text
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)


def escape_bytes(data: bytes) -> bytes:
    r"""Returns bytes that a terminal can be given: newlines and tabs stay, what is no UTF-8 is `\xff`."""
    return escape_controls(data.decode(errors="backslashreplace"), keeps_lines=True).encode()


def _escape(match: "re.Match[str]") -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
