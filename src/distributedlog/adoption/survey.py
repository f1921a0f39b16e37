"""Kafka's directories, looked at: what can be taken over, what cannot, and why.  Changes nothing.

The directories are those of one cluster, all stopped: the log directories of one broker, or of several.  The
metadata is read from the longest copy of `__cluster_metadata-0` among them.  Of each partition one replica is
taken: the leader's if it is here, else one that was in sync, else one that may lead (ELR), else that of the
last leader where all had stopped.  All come to one node, so every partition will have one replica.

| found                                                       | then                                       |
|-------------------------------------------------------------|--------------------------------------------|
| ZooKeeper's days, no metadata log, other clusters, unsound  | nothing can be taken: NotAdoptableError     |
| metadata                                                    |                                            |
| a partition that is not here, or only an outdated replica;  | the topic is refused, with the reason      |
| tiered storage; records of before Kafka 0.11                |                                            |
| `__transaction_state` and other topics that are Kafka's own | left behind, with what that means          |
| a setting that is not known, or not possible here           | the topic is taken without it              |
| an open transaction; users, access rules                    | a note                                     |

A topic is taken whole or not at all.  Partitions in the directories that the metadata does not know (deleted,
or of another topic of that name) are left behind.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.adoption.kafka_image import (
    TOPIC_RESOURCE,
    KafkaImage,
    KafkaPartition,
    KafkaTopic,
)
from distributedlog.adoption.metadata_log import (
    METADATA_LOG_DIRECTORY,
    MetadataLogRead,
    read_metadata_log,
)
from distributedlog.adoption.settings import (
    RETENTION,
    dynamic_settings,
    startup_settings,
    usable_quotas,
    usable_topic_settings,
)
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.image import CLUSTER_DEFAULT
from distributedlog.controller.records import ClientQuotaChanged
from distributedlog.data_directory.identity import UNFINISHED_ADOPTION_FILE
from distributedlog.data_directory.raft_storage import STATE_FILE
from distributedlog.model.config import LogConfig
from distributedlog.model.errors import CorruptLogError, InvalidNameError, NotAdoptableError
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.settings.node_settings import METADATA_DIRECTORY
from distributedlog.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    MetaProperties,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
)
from distributedlog.storage.files import Files
from distributedlog.storage.producers import ProducerStates
from distributedlog.storage.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from distributedlog.storage.verification.directory import OFFSET_CHECKPOINTS, segment_bases

SET_ASIDE_SUFFIX: Final = ".kafka"
"""What an adoption in place leaves behind keeps its name, with this behind it."""
FIRST_MAGIC: Final = 2
MAGIC_AT: Final = 16
NODE_ID_MAX: Final = 2**31 - 1
PARTITIONS_MAX: Final = ControllerConfig(controller_id=0, cluster_id="").partitions_max
REMOTE_STORAGE: Final = "remote.storage.enable"
KAFKAS_OWN: Final = {
    "__transaction_state": "transactional ids begin anew here; what their producers have committed or "
    "taken back stays so",
    "__share_group_state": "there are no share groups here",
    "__remote_log_metadata": "there is no tiered storage here",
}
UNFINISHED: Final = {
    "-delete": "was being deleted by Kafka",
    "-future": "is the unfinished half of a move between log directories; the replica itself counts",
    "-stray": "was found by Kafka to be no one's",
}


class RemarkKind(Enum):
    REFUSED = "refused"
    """Cannot be taken."""
    LEFT = "left"
    """Is not taken, and need not be."""
    NOTE = "note"


class Remark(NamedTuple):
    kind: RemarkKind
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Source:
    """One of Kafka's log directories."""

    path: str
    meta: MetaProperties
    is_clean: bool
    names: tuple[str, ...]
    partitions: Mapping[TopicPartition, Uuid | None]
    """Those it holds, with the topic's id that stands in them."""
    checkpoints: Mapping[str, Mapping[TopicPartition, int]]

    @property
    def broker_id(self) -> int:
        return -1 if self.meta.node_id is None else self.meta.node_id


@dataclass(frozen=True, slots=True)
class AdoptedPartition:
    partition: TopicPartition
    source: Source
    leader_epoch: int
    size_bytes: int

    @property
    def path(self) -> str:
        return f"{self.source.path}/{self.partition.directory_name}"


@dataclass(frozen=True, slots=True)
class AdoptedTopic:
    name: str
    topic_id: Uuid
    partitions: tuple[AdoptedPartition, ...]
    settings: Mapping[str, str]


@dataclass(slots=True)
class Survey:
    cluster_id: str
    node_id: int
    sources: tuple[Source, ...]
    next_producer_id: int
    topics: list[AdoptedTopic] = field(default_factory=list)
    broker_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings by the name of the resource: empty for all brokers, else the node's id."""
    quotas: list[ClientQuotaChanged] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    @property
    def refusals(self) -> list[Remark]:
        return [each for each in self.remarks if each.kind is RemarkKind.REFUSED]

    @property
    def partitions(self) -> Iterator[AdoptedPartition]:
        for topic in self.topics:
            yield from topic.partitions

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.partitions)

    @property
    def is_clean(self) -> bool:
        """Nothing that is taken has to be recovered."""
        return all(each.source.is_clean for each in self.partitions)

    def remark(self, kind: RemarkKind, subject: object, message: str) -> None:
        self.remarks.append(Remark(kind, str(subject), message))


def survey(
    files: Files,
    paths: Sequence[str],
    *,
    node_id: int | None = None,
    topics: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Survey:
    """Surveys `topics`, or all if none is named; `properties` are what Kafka was started with, if that is
    known."""
    sources = tuple(_look_at(files, path) for path in paths)
    clusters = sorted({str(each.meta.cluster_id) for each in sources})
    if len(clusters) > 1:
        raise NotAdoptableError(f"the directories are of different clusters: {', '.join(clusters)}")
    read, path = _longest_metadata(files, sources)
    found = Survey(
        clusters[0],
        sources[0].broker_id if node_id is None else node_id,
        sources,
        read.image.next_producer_id,
    )
    for note in read.notes:
        found.remark(RemarkKind.NOTE, METADATA_LOG_DIRECTORY, note)
    _TopicSurvey(files, read.image, found).run(topics)
    _survey_settings(read.image, found, properties)
    _survey_the_rest(files, read.image, found, path)
    return found


# --- the directories ---------------------------------------------------------------------------


def _look_at(files: Files, path: str) -> Source:
    if not files.is_directory(path):
        raise NotAdoptableError(f"there is no directory {path}")
    data = files.read_small(f"{path}/{META_PROPERTIES_FILE}")
    if data is None:
        raise NotAdoptableError(
            f"{path} is no log directory of Kafka: it has no {META_PROPERTIES_FILE} (one that was never "
            "formatted holds nothing to take)"
        )
    is_half_done = files.exists(f"{path}/{UNFINISHED_ADOPTION_FILE}")
    if files.exists(f"{path}/{METADATA_DIRECTORY}/{STATE_FILE}") and not is_half_done:
        raise NotAdoptableError(f"{path} is a node's of dlog already: start it with `dlog server start`")
    meta = decode_meta_properties(data, f"{path}/{META_PROPERTIES_FILE}")
    if meta.version == 0 or meta.cluster_id is None or meta.node_id is None:
        raise NotAdoptableError(
            f"{path} is of a Kafka that keeps its metadata in ZooKeeper: migrate it to KRaft first (Kafka "
            "3.9 can), then stop it and adopt it"
        )
    names = tuple(files.names(path))
    return Source(
        path,
        meta,
        files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"),
        names,
        dict(_partitions_in(files, path, names)),
        {name: _offsets(files, f"{path}/{name}") for name in OFFSET_CHECKPOINTS},
    )


def _partitions_in(
    files: Files, path: str, names: Sequence[str]
) -> Iterator[tuple[TopicPartition, Uuid | None]]:
    for name in names:
        try:
            partition = TopicPartition.from_directory_name(name)
        except InvalidNameError:
            continue
        if name == METADATA_LOG_DIRECTORY or not files.is_directory(f"{path}/{name}"):
            continue
        identity = f"{path}/{name}/{PARTITION_METADATA_FILE}"
        try:
            data = files.read_small(identity)
            yield partition, None if data is None else decode_partition_metadata(data, identity)
        except CorruptLogError:
            yield partition, None


def _offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """One that is missing or damaged costs a longer recovery, as for Kafka."""
    try:
        data = files.read_small(path)
        return {} if data is None else decode_offsets(data, path)
    except CorruptLogError:
        return {}


def _longest_metadata(files: Files, sources: Sequence[Source]) -> tuple[MetadataLogRead, str]:
    """Returns the longest metadata log, and the directory it is in.  An adoption in place that was cut short
    has set it aside already."""
    candidates = [
        path
        for source in sources
        for name in (METADATA_LOG_DIRECTORY, METADATA_LOG_DIRECTORY + SET_ASIDE_SUFFIX)
        if files.is_directory(path := f"{source.path}/{name}")
    ]
    if not candidates:
        raise NotAdoptableError(
            f"none of the directories holds {METADATA_LOG_DIRECTORY}, in which Kafka keeps what topics there "
            "are: name the one that metadata.log.dir was set to as well"
        )
    read = [(read_metadata_log(files, path), path) for path in candidates]
    return max(read, key=lambda each: each[0].end_offset)


# --- topics ------------------------------------------------------------------------------------


class _TopicSurvey:
    def __init__(self, files: Files, image: KafkaImage, found: Survey) -> None:
        self._files = files
        self._image = image
        self._found = found

    def run(self, only: Sequence[str]) -> None:
        known = {topic.name for topic in self._image.topics.values()}
        for name in only:
            if name not in known:
                self._found.remark(RemarkKind.REFUSED, name, "there is no such topic")
        room = PARTITIONS_MAX
        for topic in sorted(self._image.topics.values(), key=lambda each: each.name):
            if only and topic.name not in only:
                continue
            if topic.name in KAFKAS_OWN:
                self._found.remark(RemarkKind.LEFT, topic.name, KAFKAS_OWN[topic.name])
                continue
            taken = self._take(topic, room - len(topic.partitions))
            if taken is not None:
                room -= len(topic.partitions)
                self._found.topics.append(taken)

    def _take(self, topic: KafkaTopic, room: int) -> AdoptedTopic | None:
        before = len(self._found.refusals)
        settings = self._image.settings_of(TOPIC_RESOURCE, topic.name)
        if room < 0:
            self._refuse(topic.name, f"a cluster has at most {PARTITIONS_MAX} partitions here")
        if settings.get(REMOTE_STORAGE, "").strip().lower() == "true":
            self._refuse(topic.name, f"part of it is in tiered storage ({REMOTE_STORAGE}=true)")
        if sorted(topic.partitions) != list(range(len(topic.partitions))):
            self._refuse(topic.name, "its partitions are not numbered without gaps")
        taken = [
            self._take_partition(topic, TopicPartition(topic.name, number), partition)
            for number, partition in sorted(topic.partitions.items())
        ]
        if len(self._found.refusals) > before:
            return None
        usable, notes = usable_topic_settings(topic.name, settings)
        for note in notes:
            self._found.remark(RemarkKind.NOTE, topic.name, note)
        return AdoptedTopic(
            topic.name, topic.topic_id, tuple(each for each in taken if each is not None), usable
        )

    def _refuse(self, subject: object, message: str) -> None:
        self._found.remark(RemarkKind.REFUSED, subject, message)

    # --- a partition ---------------------------------------------------------------------------

    def _take_partition(
        self, topic: KafkaTopic, key: TopicPartition, partition: KafkaPartition
    ) -> AdoptedPartition | None:
        here = [source for source in self._found.sources if key in source.partitions]
        owned = [source for source in here if source.partitions[key] in (topic.topic_id, None)]
        if not owned:
            self._refuse(key, self._why_missing(partition, is_other_topics=bool(here)))
            return None
        source = min(owned, key=lambda each: _rank(partition, each.broker_id))
        if _rank(partition, source.broker_id) == OUTDATED:
            in_sync = _spelled(partition.state.isr or partition.state.elr or partition.state.last_known_elr)
            self._refuse(
                key,
                f"the replica of broker {source.broker_id} may lack records: in sync is {in_sync}; name the "
                "directory of that broker too",
            )
            return None
        path = f"{source.path}/{key.directory_name}"
        names = self._files.names(path)
        if not self._is_readable_format(key, path, names):
            return None
        if source.is_clean:
            self._note_open_transactions(key, path, names)
        taken = names_to_take(self._files, path, is_clean=source.is_clean)
        size_bytes = sum(self._files.size(f"{path}/{name}") for name in taken)
        return AdoptedPartition(key, source, self._leader_epoch(partition, path), size_bytes)

    def _why_missing(self, partition: KafkaPartition, *, is_other_topics: bool) -> str:
        if is_other_topics:
            return "the directory of that name is of another topic, which was deleted"
        given = {source.broker_id: source for source in self._found.sources}
        for broker_id in partition.state.replicas:
            directory = partition.directory_of(broker_id)
            ids = {
                source.meta.directory_id for source in self._found.sources if source.broker_id == broker_id
            }
            if broker_id in given and directory is not None and directory not in ids:
                return (
                    f"it is in another log directory of broker {broker_id}, that with "
                    f"directory.id={directory} in its {META_PROPERTIES_FILE}: name it too"
                )
        if any(broker_id in given for broker_id in partition.state.replicas):
            return "it should be here, and is not: its directory is missing"
        return f"it is on broker {_spelled(partition.state.replicas)}: name the directory of that broker too"

    def _is_readable_format(self, key: TopicPartition, path: str, names: list[str]) -> bool:
        """Judges by the first batch of each segment: a newer format never stands before an older one."""
        for base in segment_bases(names):
            name = f"{path}/{base:020d}{LOG_SUFFIX}"
            managed = self._files.manage(name, writable=False)
            try:
                head = managed.read_at(0, MAGIC_AT + 1) if managed.size() > MAGIC_AT else b""
            finally:
                managed.close()
            if len(head) > MAGIC_AT and head[MAGIC_AT] < FIRST_MAGIC:
                self._refuse(
                    key,
                    f"{name} holds records in format {head[MAGIC_AT]}, of before Kafka 0.11: copy the topic "
                    "with Kafka into a new one first",
                )
                return False
        return True

    def _note_open_transactions(self, key: TopicPartition, path: str, names: list[str]) -> None:
        newest = max((name for name in names if name.endswith(SNAPSHOT_SUFFIX)), default=None)
        data = None if newest is None else self._files.read_small(f"{path}/{newest}")
        if data is None:
            return
        try:
            states = ProducerStates.decode_snapshot(data)
        except CorruptLogError:
            return  # recovery reads the log instead
        first = states.first_undecided_offset
        if first is not None:
            self._found.remark(
                RemarkKind.NOTE,
                key,
                f"has a transaction that was not ended, from offset {first} on: those who read only what is "
                "committed stop there",
            )

    def _leader_epoch(self, partition: KafkaPartition, path: str) -> int:
        """Returns a leader epoch that is not below any in the log."""
        try:
            data = self._files.read_small(f"{path}/{LEADER_EPOCH_FILE}")
            epochs = [] if data is None else decode_epochs(data, f"{path}/{LEADER_EPOCH_FILE}")
        except CorruptLogError:
            epochs = []
        return max([partition.state.leader_epoch, *(each.epoch for each in epochs)])


OUTDATED: Final = 4


def _rank(partition: KafkaPartition, broker_id: int) -> int:
    """Returns how good the replica of this broker is; 0 is best."""
    state = partition.state
    if broker_id == state.leader or state.replicas == (broker_id,):
        return 0
    for rank, group in enumerate((state.isr, state.elr, state.last_known_elr), start=1):
        if broker_id in group:
            return rank
    return OUTDATED


def _spelled(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"


def names_to_take(files: Files, path: str, *, is_clean: bool) -> list[str]:
    """The files of a partition that are worth copying.

    Kafka allocates the indexes of the newest segment in advance, and cuts them when it stops; killed, it
    leaves megabytes of zeros, and recovery makes them anew anyway.
    """
    names = files.names(path)
    newest = f"{max(segment_bases(names), default=0):020d}"
    allocated = () if is_clean else (newest + OFFSET_INDEX_SUFFIX, newest + TIME_INDEX_SUFFIX)
    return [
        name
        for name in names
        if name not in allocated
        and not name.endswith(DELETED_SUFFIX)
        and not files.is_directory(f"{path}/{name}")
    ]


# --- everything else ---------------------------------------------------------------------------


def _survey_settings(image: KafkaImage, found: Survey, properties: Mapping[str, str] | None) -> None:
    """Surveys the settings: what was set while Kafka ran stands before what it was started with."""
    taken, notes = dynamic_settings(image, found.sources[0].broker_id, found.node_id)
    if properties is not None:
        started_with, more = startup_settings(properties)
        notes += more
        if started_with:
            taken[CLUSTER_DEFAULT] = {**started_with, **taken.get(CLUSTER_DEFAULT, {})}
    found.broker_settings = taken
    for note in notes:
        found.remark(RemarkKind.NOTE, "settings", note)
    found.quotas, notes = usable_quotas(image)
    for note in notes:
        found.remark(RemarkKind.LEFT, "quotas", note)
    without = [topic.name for topic in found.topics if RETENTION not in topic.settings and _deletes(topic)]
    if properties is None and without:
        whose = f"{without[0]} and others" if len(without) > 1 else without[0]
        found.remark(
            RemarkKind.NOTE,
            "settings",
            "what Kafka was started with is not in its directories: name its server.properties with "
            f"--properties, or records of {whose} go after the seven days that are the default",
        )


def _deletes(topic: AdoptedTopic) -> bool:
    return LogConfig.from_properties(
        {name: value for name, value in topic.settings.items() if name == "cleanup.policy"}
    ).deletes


def _survey_the_rest(files: Files, image: KafkaImage, found: Survey, metadata_path: str) -> None:
    counted = {
        "access rules": len(image.access_rules),
        "users with passwords (SCRAM)": len({name for name, _ in image.users}),
        "delegation tokens": len(image.tokens),
    }
    for what, count in counted.items():
        if count:
            found.remark(RemarkKind.LEFT, what, f"{count} of them are not taken over")
    if len(image.controllers) > 1:
        found.remark(
            RemarkKind.NOTE,
            METADATA_LOG_DIRECTORY,
            f"there were {len(image.controllers)} controllers; {metadata_path} is taken for the truth, and "
            "is that if its controller was the active one, or had caught up",
        )
    known = {topic.topic_id for topic in image.topics.values()}
    for source in found.sources:
        if not source.is_clean:
            found.remark(
                RemarkKind.NOTE,
                source.path,
                "Kafka was not stopped cleanly: its logs are recovered at the start",
            )
        for partition, topic_id in source.partitions.items():
            if topic_id is not None and topic_id not in known:
                found.remark(RemarkKind.LEFT, f"{source.path}/{partition}", "is of a topic that was deleted")
        for name in source.names:
            ending = next((each for each in UNFINISHED if name.endswith(each)), None)
            if ending is not None and files.is_directory(f"{source.path}/{name}"):
                found.remark(RemarkKind.LEFT, f"{source.path}/{name}", UNFINISHED[ending])
