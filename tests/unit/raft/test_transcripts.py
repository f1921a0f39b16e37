"""Stories of a small cluster: transcripts/*.txt, in the commands of `Stage`.

`tests/unit/transcripts.py` says how; `python -m tests.unit.raft.test_transcripts` rewrites them.
"""

from pathlib import Path

import pytest

from tests.unit.raft.stage import Stage
from tests.unit.transcripts import replay, rewrite, transcripts_beside

TRANSCRIPTS = transcripts_beside(__file__)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_story_goes_as_it_was_told(path: Path) -> None:
    text = path.read_text()
    assert replay(text, Stage) == text


def test_all_the_stories_are_there() -> None:
    stories = {path.stem for path in TRANSCRIPTS}
    assert stories >= {
        "a_voter_that_lost_its_disk", "an_election", "a_split_vote", "commit_only_ones_own_term",
        "conflict_repair", "linearizable_reads", "a_newcomer_becomes_a_voter", "a_leader_removes_itself",
        "leadership_transfer", "one_change_at_a_time", "an_observer_catches_up",
        "a_partitioned_leader_steps_down", "pre_vote_prevents_disruption", "snapshot_install",
        "synced_before_answered",
    }  # fmt: skip


if __name__ == "__main__":
    rewrite(TRANSCRIPTS, Stage)
