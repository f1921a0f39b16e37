"""Taking over: into a new directory, or in place.  Whatever it is cut short by, running it again finishes it.

Into a new directory; Kafka's stay as they are:

    1  DIR/adoption-unfinished                   from here on nobody may start a node here
    2  DIR/TOPIC-N.adopting -> DIR/TOPIC-N       each partition: its files copied and synced, then renamed
    3  the checkpoints; the marker of a clean stop, if all were stopped cleanly
    4  DIR/__cluster_metadata                    the new cluster's metadata
    5  DIR/meta.properties                       the directory is a node's now
    6  DIR/adoption-unfinished goes

With `link`, the log files of sealed segments become second names of Kafka's own files instead of copies: both
sides only ever read or remove those (but for a truncation).  The newest segment and small files are copied.

In place; no record is copied or moved.  All renames are within the directory, so each happens or does not:

    1  DIR/adoption-unfinished
    2  DIR/NAME -> DIR/NAME.kafka                what is not taken, and last Kafka's metadata log
    3  the marker of a clean stop names our epoch; meta.properties gets a directory id if it has none
    4  DIR/__cluster_metadata.adopting -> DIR/__cluster_metadata
    5  DIR/adoption-unfinished goes

A node refuses to start where step 1 was and the last step was not.  Going back, as long as no node was
started: remove `__cluster_metadata`, take `.kafka` off the names again.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.adoption.cluster_metadata import ADOPTED_BROKER_EPOCH, adopted_image, write_metadata
from distributedlog.adoption.metadata_log import METADATA_LOG_DIRECTORY
from distributedlog.adoption.survey import (
    SET_ASIDE_SUFFIX,
    UNFINISHED,
    AdoptedPartition,
    Survey,
    names_to_take,
)
from distributedlog.data_directory.identity import UNFINISHED_ADOPTION_FILE
from distributedlog.model.errors import DiskFullError, NotAdoptableError
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.ports.clock import Clock
from distributedlog.ports.randomness import Randomness
from distributedlog.settings.node_settings import METADATA_DIRECTORY, SECRET_FILE
from distributedlog.settings.secret_file import new_secret
from distributedlog.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
)
from distributedlog.storage.files import TEMPORARY_SUFFIX, Files
from distributedlog.storage.segment import LOG_SUFFIX
from distributedlog.storage.store import DELETED_DIRECTORY
from distributedlog.storage.verification.directory import OFFSET_CHECKPOINTS, segment_bases

ADOPTING_SUFFIX: Final = ".adopting"
COPY_BYTES: Final = 1024 * 1024
SPARE_BYTES: Final = 64 * 1024 * 1024
"""Room that is left beyond what is copied, for the node's first steps."""

Link = Callable[[str, str], bool]
"""Gives the first path the second as another name; False if it cannot."""
Progress = Callable[[int], None]


class Tools(NamedTuple):
    files: Files
    clock: Clock
    randomness: Randomness


# --- into a new directory ----------------------------------------------------------------------


def adopt_into(
    tools: Tools,
    survey: Survey,
    target: str,
    *,
    link: Link | None = None,
    on_progress: Progress = lambda _: None,
) -> None:
    """Makes `target` a node's directory with the topics of the survey."""
    files = tools.files
    if not files.is_directory(target):
        files.make_directory(target)
    lock = files.lock(f"{target}/{LOCK_FILE}")
    try:
        if _is_finished(files, survey, target):
            return
        _check_room(files, survey, target)
        copying = _Copying(files, target, link, on_progress)
        for partition in survey.partitions:
            copying.take(partition)
        _write_checkpoints(files, survey, target)
        _write_clean_marker(files, survey, target)
        meta = MetaProperties(survey.cluster_id, survey.node_id, tools.randomness.new_uuid())
        _found(tools, survey, f"{target}/{METADATA_DIRECTORY}", meta)
        files.write_atomically(f"{target}/{META_PROPERTIES_FILE}", encode_meta_properties(meta))
        _finish(files, target)
    finally:
        lock.release()


def _is_finished(files: Files, survey: Survey, target: str) -> bool:
    """Marks the directory as begun, if it is empty; goes on with one that was begun."""
    path = f"{target}/{UNFINISHED_ADOPTION_FILE}"
    wanted = _begun(survey)
    begun = files.read_small(path)
    if begun is None:
        ours = (LOCK_FILE, UNFINISHED_ADOPTION_FILE + TEMPORARY_SUFFIX)
        if others := [name for name in files.names(target) if name not in ours]:
            raise NotAdoptableError(f"{target} is not empty ({others[0]}): name a new directory")
        files.write_atomically(path, wanted)
        return False
    if begun != wanted:
        raise NotAdoptableError(
            f"{target} holds an adoption of something else, or in another way, that was not finished: repeat "
            f"that one, or remove {target} and begin anew"
        )
    if files.exists(f"{target}/{META_PROPERTIES_FILE}"):
        _finish(files, target)
        return True
    return False


def _begun(survey: Survey) -> bytes:
    """Returns what an adoption is of, so that another is not taken for its second half."""
    facts = {
        "cluster_id": survey.cluster_id,
        "node_id": survey.node_id,
        "sources": [source.path for source in survey.sources],
        "topics": {topic.name: str(topic.topic_id) for topic in survey.topics},
    }
    return json.dumps(facts, sort_keys=True, indent=1).encode() + b"\n"


def _check_room(files: Files, survey: Survey, target: str) -> None:
    missing = sum(
        each.size_bytes
        for each in survey.partitions
        if not files.is_directory(f"{target}/{each.partition.directory_name}")
    )
    free = files.free_bytes(target)
    if missing + SPARE_BYTES > free:
        raise DiskFullError(
            f"{missing} bytes are to be copied, and {target} has room for {free}: make room, or see --link "
            "and --in-place"
        )


class _Copying:
    def __init__(self, files: Files, target: str, link: Link | None, on_progress: Progress) -> None:
        self._files = files
        self._target = target
        self._link = link
        self._on_progress = on_progress

    def take(self, partition: AdoptedPartition) -> None:
        """The partition's directory appears whole, or not at all."""
        final = f"{self._target}/{partition.partition.directory_name}"
        if self._files.is_directory(final):
            self._on_progress(partition.size_bytes)
            return
        begun = final + ADOPTING_SUFFIX
        if self._files.is_directory(begun):
            self._files.remove_tree(begun)
        self._files.make_directory(begun)
        names = names_to_take(self._files, partition.path, is_clean=partition.source.is_clean)
        sealed = {f"{base:020d}{LOG_SUFFIX}" for base in segment_bases(names)[:-1]}
        for name in names:
            source = f"{partition.path}/{name}"
            if name in sealed and self._link is not None and self._link(source, f"{begun}/{name}"):
                self._on_progress(self._files.size(source))
            else:
                self._copy(source, f"{begun}/{name}")
        self._files.sync_directory(begun)
        self._files.rename(begun, final)
        self._files.sync_directory(self._target)

    def _copy(self, source: str, target: str) -> None:
        reading, writing = self._files.manage(source, writable=False), self._files.create(target)
        try:
            size, position = reading.size(), 0
            while position < size:
                chunk = reading.read_at(position, min(COPY_BYTES, size - position))
                if not chunk:
                    raise NotAdoptableError(f"{source} has become shorter: is Kafka running?")
                writing.append_at(position, chunk)
                position += len(chunk)
                self._on_progress(len(chunk))
            writing.sync()
        finally:
            reading.close()
            writing.close()


def _write_checkpoints(files: Files, survey: Survey, target: str) -> None:
    for name in OFFSET_CHECKPOINTS:
        offsets: dict[TopicPartition, int] = {}
        for each in survey.partitions:
            offset = each.source.checkpoints[name].get(each.partition)
            if offset is not None:
                offsets[each.partition] = offset
        files.write_atomically(f"{target}/{name}", encode_offsets(offsets))


# --- in place ----------------------------------------------------------------------------------


def adopt_in_place(tools: Tools, survey: Survey) -> list[str]:
    """Makes Kafka's directory a node's; what of it was set aside, by its new names."""
    files = tools.files
    if len(survey.sources) != 1:
        raise NotAdoptableError(
            "a node has one directory here, so only a broker with one can be adopted in place: use --to"
        )
    source = survey.sources[0]
    if survey.node_id != source.broker_id:
        raise NotAdoptableError(f"in place the node keeps its id, {source.broker_id}: leave --node-id away")
    lock = files.lock(f"{source.path}/{LOCK_FILE}")
    try:
        marker = f"{source.path}/{UNFINISHED_ADOPTION_FILE}"
        begun = files.read_small(marker)
        if begun is not None and begun != _begun(survey):
            raise NotAdoptableError(
                f"{source.path} holds an adoption that was not finished, of other topics: repeat that one"
            )
        files.write_atomically(marker, _begun(survey))
        final = f"{source.path}/{METADATA_DIRECTORY}"
        if files.is_directory(final):  # only the marker was still there
            _finish(files, source.path)
            return []
        aside = _set_aside(files, survey)
        _write_clean_marker(files, survey, source.path)
        meta = source.meta
        if meta.directory_id is None:
            meta = meta._replace(directory_id=tools.randomness.new_uuid())
            files.write_atomically(f"{source.path}/{META_PROPERTIES_FILE}", encode_meta_properties(meta))
        _found(tools, survey, final + ADOPTING_SUFFIX, meta)
        files.rename(final + ADOPTING_SUFFIX, final)
        _finish(files, source.path)
        return aside
    finally:
        lock.release()


def _set_aside(files: Files, survey: Survey) -> list[str]:
    """Whatever would be taken for a log of ours that no topic knows, and so be deleted."""
    source = survey.sources[0]
    taken = {each.partition for each in survey.partitions}
    names = [each.directory_name for each in source.partitions if each not in taken]
    names += [
        name
        for name in source.names
        if name.endswith(tuple(UNFINISHED)) and not DELETED_DIRECTORY.fullmatch(name)
    ]
    moved = []
    for name in [*sorted(names), METADATA_LOG_DIRECTORY]:  # the metadata last: what is taken is read from it
        if files.is_directory(f"{source.path}/{name}"):
            files.rename(f"{source.path}/{name}", f"{source.path}/{name}{SET_ASIDE_SUFFIX}")
            moved.append(name + SET_ASIDE_SUFFIX)
    files.sync_directory(source.path)
    return moved


# --- both --------------------------------------------------------------------------------------


def _write_clean_marker(files: Files, survey: Survey, directory: str) -> None:
    """Writes the marker of a clean stop: without it everything behind the recovery points is read again at
    the start."""
    if survey.is_clean:
        files.write_atomically(
            f"{directory}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(ADOPTED_BROKER_EPOCH)
        )


def _found(tools: Tools, survey: Survey, directory: str, meta: MetaProperties) -> None:
    directory_id = meta.directory_id
    assert isinstance(directory_id, Uuid)
    image = adopted_image(survey, directory_id, tools.randomness.new_uuid())
    write_metadata(tools.files, directory, image, survey.node_id, tools.clock)
    tools.files.write_atomically(f"{directory}/{SECRET_FILE}", new_secret().encode("ascii"))


def _finish(files: Files, directory: str) -> None:
    files.sync_directory(directory)
    files.remove(f"{directory}/{UNFINISHED_ADOPTION_FILE}")
    files.sync_directory(directory)
