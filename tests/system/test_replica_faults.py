"""A directory that is gone, and damage: what a restarted node claims, what clients see, and the way back."""

import shutil
import signal
from pathlib import Path

import pytest

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.view import NO_NODE
from distributedlog.model.ids import TopicPartition
from tests.system.server_process import ServerProcess, dlog

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
LOG = "00000000000000000000.log"
TOPICS = ("gone", "damaged", "sound")


def fill(node: ServerProcess, lines: Path) -> None:
    lines.write_text("one\ntwo\nthree\n")
    for topic in TOPICS:
        made = dlog("topic", "produce", topic, "-l", str(lines), "--bootstrap", node.facts["client"])
        assert made.returncode == 0, made.stderr


def look(node: ServerProcess) -> dict[str, tuple[int, int | None]]:
    """Returns of each topic its leader, and the end of its log if there is one to ask."""
    with BlockingAdmin(node.facts["client"]) as admin:
        topics = [each for each in admin.list_topics() if each.name in TOPICS]
        ranges = admin.offset_ranges([each for each in topics if each.partitions[0].has_leader])
        return {
            each.name: (
                each.partitions[0].leader_id,
                ranges[TopicPartition(each.name, 0)].end if each.partitions[0].has_leader else None,
            )
            for each in topics
        }


def rot(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 8
    path.write_bytes(content)


def test_a_log_that_is_gone_has_no_leader_until_it_is_back_or_given_up(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(tmp_path, {}) as node:
        fill(node, tmp_path / "lines")
        assert node.stop() == 0
        shutil.move(data / "gone-0", tmp_path / "kept")
        node.restart()
        assert look(node) == {"gone": (NO_NODE, None), "damaged": (1, 3), "sound": (1, 3)}
        assert not (data / "gone-0").exists()
        health = dlog("cluster", "health", "--bootstrap", node.facts["client"])
        assert "gone-0" in health.stdout
        assert "bring its directory back" in health.stdout
        assert "the log of gone-0 is missing; the controller is told" in node.log
        node.stop(signal.SIGKILL)
        node.restart()
        assert look(node)["gone"] == (NO_NODE, None), "nor does the next process claim to have it"
        assert node.stop() == 0
        shutil.move(tmp_path / "kept", data / "gone-0")
        node.restart()
        assert look(node) == {"gone": (1, 3), "damaged": (1, 3), "sound": (1, 3)}
        assert node.stop() == 0
        shutil.rmtree(data / "gone-0")
        node.restart()
        with BlockingAdmin(node.facts["client"]) as admin:
            elected = admin.elect_leaders([TopicPartition("gone", 0)], unclean=True)
        assert set(elected.values()) == {None}
        fill(node, tmp_path / "lines")
        assert look(node) == {"gone": (1, 3), "damaged": (1, 6), "sound": (1, 6)}
        assert node.stop() == 0


def test_the_only_replica_leads_what_is_sound_of_a_damaged_log_and_says_so(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as node:
        fill(node, tmp_path / "lines")
        fill(node, tmp_path / "lines")
        node.stop(signal.SIGKILL)
        rot(tmp_path / "data" / "damaged-0" / LOG, 75)
        node.restart()
        assert look(node) == {"gone": (1, 6), "damaged": (1, 0), "sound": (1, 6)}
        assert "the log of damaged-0 is damaged; the controller is told" in node.log
        assert (tmp_path / "data" / "damaged-0" / "quarantine").is_dir()
        node.stop(signal.SIGKILL)
        told = node.log.count("damaged-0 is damaged")
        node.restart()
        assert look(node)["damaged"] == (1, 0)
        assert node.log.count("damaged-0 is damaged") == told, "once it is known it is not told again"
