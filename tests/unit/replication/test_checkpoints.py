"""Checkpoints that are written beside the loop: the newest wins; what becomes wrong is taken back."""

import errno

from distributedlog.model.errors import DiskFullError
from distributedlog.model.ids import TopicPartition
from distributedlog.replication.checkpoints import OffsetCheckpoint
from distributedlog.storage.checkpoints import decode_offsets, encode_offsets
from distributedlog.storage.files import Files
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
PATH = "/data/high_watermarks"


class Stage:
    def __init__(self, loaded: dict[TopicPartition, int] | None = None) -> None:
        self.disk = SimDisk()
        self.files = Files(self.disk)
        self.files.make_directory("/data")
        if loaded is not None:
            self.files.write_atomically(PATH, encode_offsets(loaded))
        self.executor = StepExecutor()
        self.checkpoint = OffsetCheckpoint(self.files, (PATH,), self.executor)

    def on_disk(self) -> dict[TopicPartition, int]:
        data = self.files.read_small(PATH)
        return {} if data is None else decode_offsets(data)


def test_a_checkpoint_is_written_by_the_executor_and_told_when_durable() -> None:
    stage = Stage()
    told: list[BaseException | None] = []
    stage.checkpoint.write({A: 5}, told.append)
    assert (stage.on_disk(), told) == ({}, [])
    stage.executor.run_all()
    assert (stage.on_disk(), told) == ({A: 5}, [None])
    stage.disk.crash("drop")
    assert stage.on_disk() == {A: 5}


def test_a_write_that_comes_late_does_not_replace_a_newer_one() -> None:
    stage = Stage()
    stage.checkpoint.write({A: 5})
    stage.checkpoint.write({A: 9})
    stage.executor.run_one(1)
    stage.executor.run_all()
    assert stage.on_disk() == {A: 9}


def test_what_stands_there_is_not_written_again_but_what_failed_is() -> None:
    stage = Stage()
    stage.disk.inject("write", "/data/*", errno.ENOSPC)
    told: list[BaseException | None] = []
    stage.checkpoint.write({A: 5}, told.append)
    stage.executor.run_all()
    assert isinstance(told.pop(), DiskFullError)
    stage.checkpoint.write({A: 5})
    stage.executor.run_all()
    assert stage.on_disk() == {A: 5}
    operations = stage.disk.operations
    stage.checkpoint.write({A: 5}, told.append)
    assert (stage.disk.operations, stage.executor.waiting, told) == (operations, 0, [None])


def test_what_is_about_to_be_wrong_is_taken_back_also_if_it_is_not_written_yet() -> None:
    stage = Stage()
    stage.checkpoint.write({A: 5, B: 7})
    stage.checkpoint.lower({A: 2})
    assert stage.on_disk() == {A: 2, B: 7}
    stage.executor.run_all()
    assert stage.on_disk() == {A: 2, B: 7}


def test_after_the_store_wrote_what_it_knew_at_its_opening_ours_is_written_again() -> None:
    stage = Stage({A: 3, B: 4})
    stage.checkpoint.write_now({A: 30})
    stage.files.write_atomically(PATH, encode_offsets({A: 3, B: 0}))  # the store takes B back
    stage.checkpoint.write_again_after_store({B: 0})
    assert stage.on_disk() == {A: 30}
    operations = stage.disk.operations
    stage.checkpoint.write_again_after_store({B: 0})
    assert stage.disk.operations == operations, "the store did it once"
