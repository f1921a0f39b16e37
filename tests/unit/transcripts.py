"""Stories told in transcripts/*.txt, replayed line by line.

In a transcript a line that starts with "> " is a command; the lines under it are what it brought about;
everything else is prose.  `rewrite` writes what happens now into the files, to be read before it is believed.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol


class Teller(Protocol):
    def perform(self, command: str) -> Iterable[str]:
        """What the command brought about, a line each."""
        ...


def transcripts_beside(module: str) -> list[Path]:
    return sorted((Path(module).parent / "transcripts").glob("*.txt"))


def replay(text: str, make: Callable[[], Teller]) -> str:
    """The transcript as it goes today: prose and commands kept, outcomes made anew."""
    teller, told, in_outcome = make(), [], False
    for line in text.splitlines():
        if line.startswith("> "):
            told.append(line)
            told.extend(f"    {outcome}" for outcome in teller.perform(line[2:]))
            in_outcome = True
        elif not (in_outcome and line.startswith("    ")):
            told.append(line)
            in_outcome = False
    return "\n".join(told) + "\n"


def rewrite(paths: Iterable[Path], make: Callable[[], Teller]) -> None:
    for path in paths:
        before = path.read_text()
        after = replay(before, make)
        if before != after:
            path.write_text(after)
            sys.stdout.write(f"rewritten: {path.name}\n")
