"""The index of aborted transactions."""

import pytest

from distributedlog.model.errors import CorruptLogError
from distributedlog.storage.files import Files
from distributedlog.storage.txn_index import AbortedTransaction, TransactionIndex
from tests.simulation.disk import SimDisk

FIRST = AbortedTransaction(7, 10, 15, 12)
SECOND = AbortedTransaction(8, 12, 20, 21)
PATH = "/d/i.txnindex"


def an_index() -> tuple[SimDisk, TransactionIndex]:
    disk = SimDisk(1)
    disk.make_directory("/d")
    index = TransactionIndex(Files(disk), PATH, 10)
    index.start_empty()
    return disk, index


def read_anew(disk: SimDisk) -> TransactionIndex:
    return TransactionIndex(Files(disk), PATH, 10)


def test_it_has_kafkas_bytes() -> None:
    disk, index = an_index()
    index.append(AbortedTransaction(1, 2, 258, 4))
    index.write_out()
    columns = ("0000000000000001", "0000000000000002", "0000000000000102", "0000000000000004")
    assert disk.files()[PATH].hex() == "0000" + "".join(columns)


def test_an_empty_one_has_no_file() -> None:
    disk, index = an_index()
    index.write_out()
    assert disk.files() == {}
    index.append(FIRST)
    index.write_out()
    assert disk.files()
    index.truncate_to_offset(15)
    index.write_out()
    assert disk.files() == {}
    assert read_anew(disk).entries() == []


def test_entries_are_read_as_they_were_written() -> None:
    disk, index = an_index()
    index.append(FIRST)
    index.write_out()
    index.append(SECOND)
    index.write_out()
    assert read_anew(disk).entries() == [FIRST, SECOND]
    assert not read_anew(disk).is_verified
    index.truncate_to_offset(20)
    index.write_out()
    assert read_anew(disk).entries() == [FIRST]
    index.start_empty()
    index.append(SECOND)
    index.write_out()
    assert read_anew(disk).entries() == [SECOND]


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [(1, b"\x01", "version 1"), (10, b"\x7f", "impossible"), (18, b"\xff", "impossible")],
)
def test_an_impossible_entry_is_not_believed(position: int, value: bytes, problem: str) -> None:
    disk, index = an_index()
    index.append(FIRST)
    index.write_out()
    disk.open(PATH, write=True).write_at(position, value)
    with pytest.raises(CorruptLogError, match=problem):
        read_anew(disk).entries()


def test_a_file_of_odd_length_is_not_believed() -> None:
    disk, index = an_index()
    index.append(FIRST)
    index.write_out()
    disk.open(PATH, write=True).truncate(33)
    with pytest.raises(CorruptLogError, match="whole number"):
        read_anew(disk).entries()
