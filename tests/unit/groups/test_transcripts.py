"""Stories of a group: transcripts/*.txt, in the commands of `Teller`.

`tests/unit/transcripts.py` says how; `python -m tests.unit.groups.test_transcripts` rewrites them.
"""

from pathlib import Path

import pytest

from tests.unit.groups.teller import Teller
from tests.unit.transcripts import replay, rewrite, transcripts_beside

TRANSCRIPTS = transcripts_beside(__file__)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_story_goes_as_it_was_told(path: Path) -> None:
    text = path.read_text()
    assert replay(text, Teller) == text


def test_all_the_stories_are_there() -> None:
    stories = {path.stem for path in TRANSCRIPTS}
    assert stories >= {
        "two_members_meet", "a_newcomer_is_let_in", "a_member_is_killed", "a_slow_member_is_left_behind",
        "a_static_member_restarts", "a_duplicate_instance_is_fenced", "cooperative_members_give_up_little",
        "the_leader_sees_new_partitions", "failover_between_join_and_sync",
        "failover_that_loses_an_assignment", "the_last_one_leaves", "an_old_generation_commits",
        "a_vote_on_the_protocol",
    }  # fmt: skip


if __name__ == "__main__":
    rewrite(TRANSCRIPTS, Teller)
