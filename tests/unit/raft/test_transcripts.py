"""Stories of a small cluster, told in transcripts/*.txt and replayed here line by line.

In a transcript a line that starts with "> " is a command of `stage.Stage`; the lines under it are what it
brought about; everything else is prose.  `python -m tests.unit.raft.test_transcripts` writes what happens
now into the files, to be read before it is believed.
"""

import pathlib
import sys

import pytest

from tests.unit.raft.stage import Stage

TRANSCRIPTS = sorted((pathlib.Path(__file__).parent / "transcripts").glob("*.txt"))


def replay(text: str) -> str:
    """The transcript as it goes today: prose and commands kept, outcomes made anew."""
    stage, told, in_outcome = Stage(), [], False
    for line in text.splitlines():
        if line.startswith("> "):
            told.append(line)
            told.extend(f"    {outcome}" for outcome in stage.perform(line[2:]))
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
        "a_voter_that_lost_its_disk", "an_election", "a_split_vote", "commit_only_ones_own_term",
        "conflict_repair", "linearizable_reads", "a_newcomer_becomes_a_voter", "a_leader_removes_itself",
        "leadership_transfer", "one_change_at_a_time", "an_observer_catches_up",
        "a_partitioned_leader_steps_down", "pre_vote_prevents_disruption", "snapshot_install",
        "synced_before_answered",
    }  # fmt: skip


if __name__ == "__main__":
    for transcript in TRANSCRIPTS:
        before = transcript.read_text()
        after = replay(before)
        if before != after:
            transcript.write_text(after)
            sys.stdout.write(f"rewritten: {transcript.name}\n")
