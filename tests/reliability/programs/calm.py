"""DLOG_LOAD_CALM=1 in the environment: no broker dies, so that no client may ever see an error.

A program ends with the first one then, with exit code 1 and the error on stderr; and no transactional client
aborts by chance, gives up or comes back as a zombie.
"""

import os
import sys

IS_CALM = os.environ.get("DLOG_LOAD_CALM") == "1"


def note_error(error: object) -> None:
    """An error reached the program, which goes on unless all is calm."""
    if IS_CALM:
        sys.exit(f"an error reached a user: {error!r}")
