"""Stories of a group, told in transcripts/*.txt and replayed here line by line.

In a transcript a line that starts with "> " is a command of `teller.Teller`; the lines under it are what it
brought about; everything else is prose.  `python -m tests.unit.groups.test_transcripts` writes what happens
now into the files, to be read before it is believed.
"""

import pathlib
import sys

import pytest

from tests.unit.groups.teller import Teller

TRANSCRIPTS = sorted((pathlib.Path(__file__).parent / "transcripts").glob("*.txt"))


def replay(text: str) -> str:
    """The transcript as it goes today: prose and commands kept, outcomes made anew."""
    teller, told, in_outcome = Teller(), [], False
    for line in text.splitlines():
        if line.startswith("> "):
            told.append(line)
            told.extend(f"    {outcome}" for outcome in teller.perform(line[2:]))
            in_outcome = True
        elif not (in_outcome and line.startswith("    ")):
            told.append(line)
            in_outcome = False
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_story_goes_as_it_was_told(path: pathlib.Path) -> None:
    text = path.read_text()
    assert replay(text) == text


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
    for transcript in TRANSCRIPTS:
        before = transcript.read_text()
        after = replay(before)
        if before != after:
            transcript.write_text(after)
            sys.stdout.write(f"rewritten: {transcript.name}\n")
