"""A segment is read again: what is sound is passed over, what is not is found where it stands."""

import pytest

from distributedlog.storage.log import PartitionLog
from distributedlog.storage.segment import Segment
from distributedlog.storage.verification.scrubbing import ScrubPiece, ScrubResult, scrub_piece
from tests.simulation.disk import SimDisk
from tests.unit.storage.support import append_numbers, open_on


def filled(disk: SimDisk) -> PartitionLog:
    log, _ = open_on(disk)
    append_numbers(log, range(40))
    log.sync()
    return log


def piece_of(log: PartitionLog, segment: Segment, piece_bytes: int = 1 << 30) -> ScrubPiece:
    end = log.segments.next_base(segment)
    assert end is not None
    return ScrubPiece(segment.log.path, 0, segment.size, segment.base_offset, end, piece_bytes)


def test_a_sound_segment_is_read_to_its_end_and_in_pieces_too() -> None:
    disk = SimDisk()
    log = filled(disk)
    for segment in log.segments.sealed:
        end = log.segments.next_base(segment)
        piece = piece_of(log, segment)
        assert scrub_piece(piece, disk) == ScrubResult(segment.size, end or -1)
        pieces = 0
        piece = piece._replace(piece_bytes=200)
        while piece.position < segment.size:
            result = scrub_piece(piece, disk)
            assert result.finding is None
            assert result.position > piece.position
            piece = piece._replace(position=result.position, next_offset=result.next_offset)
            pieces += 1
        assert pieces > 3


@pytest.mark.parametrize("at", [0, 5, 9, 16, 20, 40, 70, 80])
def test_any_flipped_bit_is_found_and_where_reading_had_come(at: int) -> None:
    """The bit may be of the base offset, the length, the magic, the checksum, the header and the record."""
    disk = SimDisk()
    log = filled(disk)
    segment = log.segments.sealed[1]
    place = segment.locate(segment.base_offset + 3)
    assert place is not None
    disk.flip_bit(segment.log.path, place.position + at, 3)
    result = scrub_piece(piece_of(log, segment), disk)
    assert result.finding is not None
    assert result.position == place.position


def test_a_file_that_is_shorter_than_its_segment_or_gone_is_found() -> None:
    disk = SimDisk()
    log = filled(disk)
    short, gone = log.segments.sealed[:2]
    piece = piece_of(log, short)
    result = scrub_piece(piece._replace(size=piece.size + 10), disk)
    assert result.finding is not None
    piece = piece_of(log, gone)
    disk.remove(gone.log.path)
    assert scrub_piece(piece, disk).finding is not None
