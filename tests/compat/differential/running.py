"""Both brokers, all probes, and what is found.

A probe runs on both brokers at the same time.  It must ask both the same questions in the same order; one
that broke off on a broker has that as its last answer there, which is never like the other's.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from distributedlog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from distributedlog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from distributedlog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from distributedlog.protocol.registry import APIS
from distributedlog.protocol.schema import VersionRange
from tests.bench.broker_kafka import Broker, Kafka, Ours, make_first_topic
from tests.compat.differential.asking import ClosedError, Conversation, Step
from tests.compat.differential.compare import Difference, Question, find_differences
from tests.compat.differential.registry import Probe

READY_SECONDS_MAX: Final = 120.0
AGAIN_SECONDS: Final = 0.2
FIRST_TOPIC: Final = "first"
GROUP_KEYS, TRANSACTION_KEYS = 0, 1
"""What FindCoordinator is asked for."""

SETTINGS: Final = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.index.size.max.bytes": "65536",
}
"""What both are set to; small indexes, since each of the many partitions has two as files of that size."""

Offered = Mapping[int, VersionRange]


class Outcome(NamedTuple):
    """What a whole run found."""

    probes: int
    questions: int
    equal: int
    differences: list[Difference]
    not_asked: list[str]
    """APIs and versions that both brokers offer, and nobody asked for."""
    apis: int
    versions: int


@contextmanager
def both_brokers(directory: Path) -> Iterator[tuple[Broker, Broker]]:
    """Kafka and ours, each serving, with the topics of groups' offsets and of transactions' states."""
    brokers: tuple[Broker, Broker] = Kafka(directory / "kafka", SETTINGS), Ours(directory / "ours", SETTINGS)
    try:
        for broker in brokers:
            broker.start()
        for broker in brokers:
            make_first_topic(broker, FIRST_TOPIC)
            wait_for_coordinators(broker)
        yield brokers
    finally:
        for broker in brokers:
            broker.stop()


def wait_for_coordinators(broker: Broker) -> None:
    """Until the coordinators of all groups and transactions answer; asking makes the topics of both."""
    conversation = Conversation(broker.port, "first", 0)
    give_up = time.monotonic() + READY_SECONDS_MAX
    keys = [f"key-{at}" for at in range(200)]
    try:
        for is_coordinated in (_are_groups_coordinated, _are_transactions_coordinated):
            while not is_coordinated(conversation, keys):
                assert time.monotonic() < give_up, f"{broker.name} coordinates nothing"
                time.sleep(AGAIN_SECONDS)
    finally:
        conversation.close()


def _are_found(conversation: Conversation, kind: int, keys: Sequence[str], topic_name: str) -> bool:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
    found = conversation.call(request, 4, FindCoordinatorResponse).coordinators
    if any(each.error_code for each in found):
        return False
    topics = MetadataRequest(topics=[MetadataRequestTopic(name=topic_name)])
    (topic,) = conversation.call(topics, 9, MetadataResponse).topics
    return not topic.error_code and all(each.leader_id >= 0 for each in topic.partitions)


def _are_groups_coordinated(conversation: Conversation, groups: Sequence[str]) -> bool:
    if not _are_found(conversation, GROUP_KEYS, groups, OFFSETS_TOPIC):
        return False
    asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    fetched = conversation.call(OffsetFetchRequest(groups=asked), 8, OffsetFetchResponse).groups
    return not any(each.error_code for each in fetched)


def _are_transactions_coordinated(conversation: Conversation, names: Sequence[str]) -> bool:
    if not _are_found(conversation, TRANSACTION_KEYS, names, TRANSACTIONS_TOPIC):
        return False
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    described = conversation.call(request, 0, DescribeTransactionsResponse).transaction_states
    if any(each.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for each in described):
        return False
    producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    return conversation.call(producer, 1, InitProducerIdResponse).error_code == ErrorCode.NONE


def offered_by(broker: Broker) -> Offered:
    conversation = Conversation(broker.port, "first", 0)
    try:
        request = ApiVersionsRequest(client_software_name="probe", client_software_version="1")
        answer = conversation.call(request, 3, ApiVersionsResponse)
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    finally:
        conversation.close()


def offered_by_both(brokers: Sequence[Broker]) -> Offered:
    """What both speak, and our messages can be written in."""
    kafka, ours = (offered_by(broker) for broker in brokers)
    common: dict[int, VersionRange] = {}
    for key, (low, high) in ours.items():
        if key in kafka:
            first, last = APIS[key].versions
            common[key] = max(low, kafka[key][0], first), min(high, kafka[key][1], last)
    return common


def run_probes(brokers: Sequence[Broker], probes: Iterable[Probe]) -> Outcome:
    offered = offered_by_both(brokers)
    started_ms = time.time_ns() // 1_000_000
    missing = {(key, version) for key, (low, high) in offered.items() for version in range(low, high + 1)}
    versions = len(missing)
    ran = questions = equal = 0
    differences: list[Difference] = []
    with ThreadPoolExecutor(len(brokers)) as pool:
        for probe in probes:
            for version in probe.versions_within(offered.get(probe.api, (0, -1))):
                ran += 1
                kafka, ours = pool.map(lambda each: _run(probe, version, each, started_ms), brokers)  # noqa: B023
                missing -= {(step.api, step.version) for step in kafka}
                for theirs, mine in zip_longest(kafka, ours):
                    questions += 1
                    step = theirs or mine
                    question = Question(f"{probe.title}/{step.label}", version)
                    found = find_differences(question, theirs and theirs.answer, mine and mine.answer)
                    equal += not found
                    differences += found
    not_asked = [f"{APIS[key].key.name} {version}" for key, version in sorted(missing)]
    return Outcome(ran, questions, equal, differences, not_asked, len(offered), versions)


def _run(probe: Probe, version: int, broker: Broker, started_ms: int) -> list[Step]:
    conversation = Conversation(broker.port, f"{probe.prefix}-v{version}", started_ms)
    try:
        probe.run(conversation, version)
    except (AssertionError, DlogError, ClosedError, OSError) as error:
        where = conversation.steps[-1].label if conversation.steps else "the beginning"
        broke_off = {f"broke off on {broker.name} after": f"{where}: {type(error).__name__}: {error}"}
        conversation.steps.append(Step(-1, version, "broke off", broke_off))
    finally:
        conversation.close()
    return conversation.steps
