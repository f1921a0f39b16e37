"""Kafka's `__cluster_metadata-0`: the newest snapshot, and the log behind it, read into an image.

    OFFSET-EPOCH.checkpoint     a snapshot: what the records below OFFSET made, in batches
    BASE.log                    the log; from OFFSET on it says what came after

Control batches (leader changes, voters, a snapshot's head and foot) say nothing of topics.  The end of the
log may be torn after a crash, as any log's: it is left out, and said.  Anything else that is unsound refuses
the whole, with where it stands: half of the topics would be worse than none.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from distributedlog.adoption.kafka_image import KafkaImage
from distributedlog.adoption.kafka_records import decode_kafka_record
from distributedlog.model.errors import CorruptLogError, DlogError
from distributedlog.records.record import decode_batch
from distributedlog.storage.files import Files
from distributedlog.storage.scan import BadBatchError, LocatedBatch, find_valid_batch_behind, walk
from distributedlog.storage.segment import LOG_SUFFIX
from distributedlog.storage.verification.directory import segment_bases

METADATA_LOG_DIRECTORY: Final = "__cluster_metadata-0"
SNAPSHOT_FILE: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class MetadataLogRead(NamedTuple):
    image: KafkaImage
    end_offset: int
    """How far the log reached: of two copies the longer one knows more."""
    notes: tuple[str, ...]


def read_metadata_log(files: Files, directory: str) -> MetadataLogRead:
    """Raises CorruptLogError with what is wrong, and where."""
    image, notes = KafkaImage(), list[str]()
    names = files.names(directory)
    newest = max((name for name in names if SNAPSHOT_FILE.fullmatch(name)), default=None)
    start = 0
    if newest is not None:
        start = int(newest[:20])
        path = f"{directory}/{newest}"
        for batch in _sound_batches(files, path, None):
            _apply(image, batch, path)
    end = _replay_log(files, directory, segment_bases(names), start, image, notes)
    if image.is_in_transaction:
        notes.append("its last change was not finished when Kafka stopped: it does not count")
    return MetadataLogRead(image, end, tuple(notes))


def _replay_log(
    files: Files, directory: str, bases: list[int], start: int, image: KafkaImage, notes: list[str]
) -> int:
    """Everything from `start` on; where the log ends."""
    if not bases and start == 0:
        raise CorruptLogError(f"{directory} holds neither a snapshot nor a log")
    if bases and bases[0] > start:
        raise CorruptLogError(
            f"{directory} begins at {bases[0]}, and its newest snapshot ends at {start}: between them "
            "something is missing"
        )
    end = start
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if following is not None and following <= start:
            continue
        path = f"{directory}/{base:020d}{LOG_SUFFIX}"
        for batch in _sound_batches(files, path, notes if following is None else None):
            if batch.header.base_offset >= start:
                _apply(image, batch, path)
            end = max(end, batch.header.next_offset)
        if following is not None and end != following:
            raise CorruptLogError(f"{path} ends at {end}; the next file begins at {following}")
    return end


def _sound_batches(files: Files, path: str, torn: list[str] | None) -> Iterator[LocatedBatch]:
    """Yields the batches that are sound; `torn` gets where a torn end is, and without it that is damage."""
    managed = files.manage(path, writable=False)
    try:
        size = managed.size()
        try:
            yield from walk(managed, 0, size)
        except BadBatchError as error:
            if torn is None or find_valid_batch_behind(managed, error.position, size) is not None:
                raise CorruptLogError(f"{path} {error}") from error
            torn.append(
                f"{path} is torn at position {error.position}: what a crash leaves, and it is left out"
            )
    finally:
        managed.close()


def _apply(image: KafkaImage, batch: LocatedBatch, path: str) -> None:
    if batch.header.is_control:
        return
    try:
        for record in decode_batch(batch.data):
            image.apply(decode_kafka_record(record.value).message)
    except DlogError as error:
        raise CorruptLogError(f"{path} at offset {batch.header.base_offset}: {error}") from error
