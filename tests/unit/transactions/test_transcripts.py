"""Stories of a transactional id: transcripts/*.txt, in the commands of `Teller`.

`tests/unit/transcripts.py` says how; `python -m tests.unit.transactions.test_transcripts` rewrites them.
"""

from pathlib import Path

import pytest

from tests.unit.transactions.teller import Teller
from tests.unit.transcripts import replay, rewrite, transcripts_beside

TRANSCRIPTS = transcripts_beside(__file__)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_story_goes_as_it_was_told(path: Path) -> None:
    text = path.read_text()
    assert replay(text, Teller) == text


def test_all_the_stories_are_there() -> None:
    stories = {path.stem for path in TRANSCRIPTS}
    assert stories >= {
        "classic_transactions", "every_end_raises_the_epoch", "a_successor_fences_a_zombie",
        "a_transaction_times_out", "the_coordinator_dies_before_the_markers",
        "ends_that_are_repeated_or_late", "a_producer_asks_for_its_next_epoch",
    }  # fmt: skip


if __name__ == "__main__":
    rewrite(TRANSCRIPTS, Teller)
