"""A follower whose last entry conflicts with the very one at which the leader's snapshot ends."""

from tests.unit.raft.stage import Stage


def play(*commands: str) -> list[str]:
    stage = Stage()
    return [line for command in commands for line in stage.perform(command)]


def test_a_conflict_at_the_snapshots_end_is_settled_by_the_snapshot_and_not_asked_about_for_ever() -> None:
    told = play(
        "cluster 1 2 3",
        "timeout 1",
        "deliver quietly",
        "cut 1 | 2 3",
        "propose 1 stranded too",  # at 2.1 and 3.1, on node 1 alone
        "timeout 3",  # it hears no leader any more, and so will vote
        "lose",
        "timeout 2",
        "deliver quietly",  # node 2 leads term 2, and its first entry stands at 2
        "propose 2 decided",
        "deliver quietly",
        "run 400",
        "snapshot 3",  # up to 3.2; nothing before it is kept
        "transfer 2 to 3",
        "deliver quietly",  # node 3 leads term 3, and asks node 1 for what is before its own first entry
        "heal",
        "run 3000",
        "show",
    )
    assert "1 installs the snapshot up to 3" in told
    shown = [line for line in told if line.startswith("1: ")][-1]
    assert "follower, term 3, committed 4" in shown
