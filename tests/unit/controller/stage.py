"""A controller on a log in memory.  Entries are kept as bytes: what is replayed went through the codec."""

from collections.abc import Sequence
from typing import TypeVar, cast

from distributedlog.controller.bundles import decode_bundle, encode_bundle
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.features import LEVEL_MAX, METADATA_FEATURE
from distributedlog.controller.image import Endpoint, MetadataImage, Partition, SupportedLevels
from distributedlog.controller.machine import ControllerMachine
from distributedlog.controller.records import Versioned
from distributedlog.controller.requests import (
    CreateTopicsRequest,
    HeartbeatReply,
    HeartbeatRequest,
    NewTopic,
    RegisterBrokerReply,
    RegisterBrokerRequest,
    Request,
    Response,
    TopicsReply,
)
from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import Uuid
from distributedlog.statemachine import Runtime
from tests.simulation.clock import SeededRandomness

CLUSTER = "cluster-1"
SESSION_MS = 6_000
Reply = TypeVar("Reply")


def config(**changes: object) -> ControllerConfig:
    """Settings of the whole cluster are named with '_' for '.'."""
    common = {key: name for name in CLUSTER_SETTINGS if (key := name.replace(".", "_")) in changes}
    given = {name: str(changes.pop(key)).lower() for key, name in common.items()}
    settings: dict[str, object] = {"controller_id": 1, "cluster_id": CLUSTER, "cluster_settings": given}
    return ControllerConfig(**(settings | changes))  # type: ignore[arg-type]


def incarnation(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


class MemoryLog:
    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def next_offset(self) -> int:
        return len(self.entries)

    def append(self, records: Sequence[Versioned]) -> int:
        self.entries.append(encode_bundle(records))
        return len(self.entries) - 1


class Stage:
    """One controller at a time; `failover` puts another in its place, which has only the log."""

    def __init__(self, settings: ControllerConfig | None = None, *, seed: int = 1) -> None:
        self.config = settings or config()
        self.log = MemoryLog()
        self.now_ms = 0
        self.epoch = 0
        self.epochs: dict[int, int] = {}
        self._chance = SeededRandomness(seed)
        self._incarnations = 0
        self.failover()

    def failover(self, settings: ControllerConfig | None = None) -> None:
        self.config = settings or self.config
        self.epoch += 1
        self.runtime: Runtime[Request, Versioned, Response, None] = Runtime(
            lambda: ControllerMachine(self.config, self._chance), self.log
        )
        self.runtime.elected(self.epoch)
        for offset, entry in enumerate(self.log.entries):
            self.runtime.replay(decode_bundle(entry), offset)
        self.runtime.loaded(self.now_ms)
        self.commit()

    def commit(self) -> None:
        self.runtime.committed(len(self.log.entries) - 1)

    @property
    def machine(self) -> ControllerMachine:
        return cast(ControllerMachine, self.runtime.machine)

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def replayed(self) -> MetadataImage:
        """The image that someone who has only the log arrives at."""
        image = MetadataImage()
        for offset, entry in enumerate(self.log.entries):
            image = image.apply([message for message, _ in decode_bundle(entry)], offset)
        return image

    # --- asking --------------------------------------------------------------------------------

    def ask(self, request: Request, reply: type[Reply]) -> Reply:
        """The committed answer; a refusal of the whole request is raised."""
        ticket = self.runtime.submit(request, self.now_ms, self.now_ms + 1_000)
        self.commit()
        (answer,) = self.runtime.take().replies
        assert answer.ticket == ticket
        if answer.error is not None:
            raise answer.error
        assert isinstance(answer.response, reply)
        return answer.response

    def refusal(self, request: Request) -> ErrorCode:
        try:
            self.ask(request, object)
        except DlogError as error:
            return error.code
        return ErrorCode.NONE

    def pass_time(self, ms: int) -> None:
        """Timers go off when they should."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.runtime.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.runtime.tick(self.now_ms)
            self.commit()
        self.now_ms = end_ms

    # --- brokers -------------------------------------------------------------------------------

    def registration(self, broker_id: int, **changes: object) -> RegisterBrokerRequest:
        self._incarnations += 1
        fields: dict[str, object] = {
            "cluster_id": CLUSTER,
            "broker_id": broker_id,
            "incarnation_id": incarnation(self._incarnations),
            "endpoints": (Endpoint("CLIENT", f"host-{broker_id}", 9092),),
            "features": (SupportedLevels(METADATA_FEATURE, 1, LEVEL_MAX),),
            "log_dirs": (incarnation(1_000 + broker_id),),
            **changes,
        }
        return RegisterBrokerRequest(**fields)  # type: ignore[arg-type]

    def register(self, broker_id: int, **changes: object) -> int:
        epoch = self.ask(self.registration(broker_id, **changes), RegisterBrokerReply).broker_epoch
        self.epochs[broker_id] = epoch
        return epoch

    def heartbeat(self, broker_id: int, **changes: object) -> HeartbeatReply:
        fields: dict[str, object] = {
            "broker_id": broker_id,
            "broker_epoch": self.epochs[broker_id],
            "metadata_offset": self.log.next_offset() - 1,
            **changes,
        }
        return self.ask(HeartbeatRequest(**fields), HeartbeatReply)  # type: ignore[arg-type]

    def start(self, *broker_ids: int, **changes: object) -> None:
        """Registered, heard and active."""
        for broker_id in broker_ids:
            self.register(broker_id, **changes)
            self.heartbeat(broker_id)

    def silence(self, *broker_ids: int) -> None:
        """All others are heard until these have been silent for too long."""
        others = [each for each in self.image.brokers if each not in broker_ids]
        for _ in range(4):
            self.pass_time(SESSION_MS // 3)
            for broker_id in others:
                self.heartbeat(broker_id, want_fence=self.image.brokers[broker_id].fenced)

    # --- topics --------------------------------------------------------------------------------

    def create(self, name: str, *assignments: tuple[int, ...], **settings: str) -> Uuid:
        """A topic with these replicas; settings are named with '_' for '.'."""
        configs = tuple((key.replace("_", "."), value) for key, value in settings.items())
        topic = NewTopic(name=name, assignments=tuple(enumerate(assignments)), configs=configs)
        (outcome,) = self.ask(CreateTopicsRequest((topic,)), TopicsReply).topics
        assert outcome.outcome.error is ErrorCode.NONE, outcome.outcome.message
        return outcome.topic_id

    def partition(self, name: str, number: int = 0) -> Partition:
        topic = self.image.topic_named(name)
        assert topic is not None
        return topic.partitions[number]
