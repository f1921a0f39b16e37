"""`python -m tests.compat.differential.page` writes docs/differences.md from the intended differences."""

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Final

from tests.compat.differential.compare import Intended
from tests.compat.differential.intended import INTENDED

PATH: Final = Path(__file__).parents[3] / "docs" / "differences.md"
LINE_CHARACTERS_MAX: Final = 120
_OPENING: Final = """# What is different from Apache Kafka

`make compat-jvm` asks this broker and Apache Kafka 4.2 the same questions, every call that is served here in
every version that both offer, with good and bad arguments, and compares the answers field by field. What
differs on purpose is below, and under the last heading what merely differs still; the run fails on any other
difference, and on a line of this page that is no longer true. The page is made from
`tests/compat/differential/intended.py`.

Not compared, as no two brokers agree on it: ids that a broker makes (but where they recur), ports,
directories, clocks, free space, the words of error messages, and the order of elements that have a name or a
number.
"""


def page_of(intended: Sequence[Intended]) -> str:
    headings = dict.fromkeys(entry.topic for entry in intended if entry.topic)
    parts = [_OPENING]
    for heading in headings:
        reasons = [entry.reason for entry in intended if entry.topic == heading]
        items = [fill(f"- {each}", LINE_CHARACTERS_MAX, subsequent_indent="  ") for each in reasons]
        parts.append(f"\n## {heading}\n\n" + "\n".join(items) + "\n")
    return "".join(parts)


def main() -> int:
    PATH.write_text(page_of(INTENDED), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
