"""Reading a segment to see whether it still holds what was written: every checksum is computed again.

It runs wherever there is CPU to spare, a piece at a time (`ScrubPiece`), and changes nothing.  The offsets of
batches are not under their checksums: they must rise, and lie within the segment.

A log lives on meanwhile.  A segment that was replaced, truncated or deleted while it was read may look
corrupt: whoever asked must see whether it is still the one that it was before the finding is believed.
"""

from typing import NamedTuple

from distributedlog.model.errors import StorageError
from distributedlog.ports.disk import Disk
from distributedlog.storage.files import Files
from distributedlog.storage.scan import BadBatchError, walk


class ScrubPiece(NamedTuple):
    """A part of a segment's log file, from a batch on."""

    path: str
    position: int
    size: int
    """Where the segment ends in its file."""
    next_offset: int
    """The lowest offset that may stand at `position`."""
    end_offset: int
    """The offset behind the segment's last."""
    piece_bytes: int
    """How much to read, rounded up to whole batches."""


class ScrubResult(NamedTuple):
    position: int
    """From where on to read next."""
    next_offset: int
    finding: str | None = None
    """What is corrupt, at `position`."""


def scrub_piece(piece: ScrubPiece, disk: Disk) -> ScrubResult:
    """Reads on until the piece is read or something is corrupt."""
    files = Files(disk)
    position, next_offset = piece.position, piece.next_offset
    until = min(piece.size, piece.position + piece.piece_bytes)
    try:
        for batch in walk(files.manage(piece.path), position, piece.size):
            header = batch.header
            if header.base_offset < next_offset or header.next_offset > piece.end_offset:
                reason = f"offsets {header.base_offset} to {header.last_offset} stand after {next_offset - 1}"
                return ScrubResult(position, next_offset, f"at position {position}: {reason}")
            position, next_offset = batch.position + header.size, header.next_offset
            if position >= until:
                break
    except (BadBatchError, StorageError) as error:  # a place that cannot be read is as good as a flipped bit
        return ScrubResult(position, next_offset, str(error))
    finally:
        files.close()
    return ScrubResult(position, next_offset)
