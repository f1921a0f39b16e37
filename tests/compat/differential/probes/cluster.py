"""ApiVersions, the cluster, its quorum, directories, features, quotas, credentials, and no requests."""

from typing import Any

from distributedlog.model.ids import Uuid
from distributedlog.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from distributedlog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from distributedlog.protocol.messages.alter_client_quotas import EntityData as AlteredEntity
from distributedlog.protocol.messages.alter_client_quotas import EntryData as AlteredEntry
from distributedlog.protocol.messages.api_versions import ApiVersionsRequest
from distributedlog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from distributedlog.protocol.messages.describe_cluster import DescribeClusterRequest
from distributedlog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from distributedlog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionRequest,
    TopicRequest,
)
from distributedlog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from distributedlog.protocol.messages.fetch import FetchRequest
from distributedlog.protocol.messages.metadata import MetadataRequest
from distributedlog.protocol.messages.produce import ProduceRequest
from distributedlog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from distributedlog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from distributedlog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.compat.differential.asking import Conversation
from tests.compat.differential.building import batch_of, metadata
from tests.compat.differential.registry import probe
from tests.compat.differential.trees import Tree

# --- ApiVersions, and what is no request -------------------------------------------------------


@probe(ApiVersionsRequest)
def versions(of: Conversation, version: int) -> None:
    of.ask("greeting", ApiVersionsRequest(client_software_name="probe", client_software_version="1"), version)
    if version >= 3:
        for name in ("", "a b", "-a", "ä"):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            of.ask(f"software '{name}'", request, version)
        request = ApiVersionsRequest(client_software_name="probe", client_software_version="")
        of.ask("no version", request, version)


@probe(ApiVersionsRequest, since=4)
def versions_too_high(of: Conversation, version: int) -> None:
    for high in (5, 99, 32767):
        of.ask_raw(f"version {high}", ApiVersionsRequest.api_key, high, b"", flexible=True, answered=0)
    of.ask_raw("version -1", ApiVersionsRequest.api_key, -1, b"", flexible=False, answered=0)


@probe(ApiVersionsRequest, since=4)
def no_request(of: Conversation, version: int) -> None:
    of.ask_raw("unknown API", 9999, 0, b"", flexible=False)
    of.ask_raw("API -1", -1, 0, b"", flexible=False)
    of.ask_raw("Produce 2", ProduceRequest.api_key, 2, bytes(10), flexible=False)
    of.ask_raw("Fetch 3", FetchRequest.api_key, 3, bytes(20), flexible=False)
    of.ask_raw("Fetch 99", FetchRequest.api_key, 99, bytes(20), flexible=True)
    of.ask_raw("Metadata 14", MetadataRequest.api_key, 14, bytes(20), flexible=True)
    of.ask_raw("StopReplica, between brokers", 5, 4, bytes(20), flexible=True)
    of.ask_raw("ControlledShutdown", 7, 3, bytes(20), flexible=True)
    of.ask_raw("Vote, of controllers", 52, 0, bytes(20), flexible=True)
    of.ask_raw("BrokerRegistration", 62, 0, bytes(20), flexible=True)


@probe(MetadataRequest)
def bodies(of: Conversation, version: int) -> None:
    topic = of.topic()
    body, flexible = of.body_of(metadata(topic.name), version)
    of.ask_raw("cut short", MetadataRequest.api_key, version, body[:-1], flexible=flexible)
    of.ask_raw("no body", MetadataRequest.api_key, version, b"", flexible=flexible)
    of.ask_raw(
        "bytes behind it", MetadataRequest.api_key, version, body + b"xx", flexible=flexible, answered=version
    )
    if flexible:
        tagged = body[:-1] + b"\x01\x63\x02ab"
        of.ask_raw("unknown tag", MetadataRequest.api_key, version, tagged, flexible=True, answered=version)
    many = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
    of.ask_raw("a huge count", MetadataRequest.api_key, version, many, flexible=flexible)


# --- DescribeCluster, DescribeQuorum -----------------------------------------------------------


@probe(DescribeClusterRequest)
def cluster(of: Conversation, version: int) -> None:
    def ask(label: str, with_operations: bool = False, **more: Any) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=with_operations, **more)
        of.ask(label, request, version)

    ask("plain")
    ask("authorized operations", True)
    if version >= 1:
        for kind in (0, 2, 3):
            ask(f"endpoint type {kind}", endpoint_type=kind)
    if version >= 2:
        ask("fenced too", include_fenced_brokers=True)


_MOVING = ("log_end_offset", "high_watermark", "leader_epoch")


def _still(tree: Tree) -> Tree:
    """Without what the metadata log has grown to."""
    if isinstance(tree, dict):
        return {
            key: "<moving>" if key in _MOVING and value >= 0 else _still(value) for key, value in tree.items()
        }
    return tree


@probe(DescribeQuorumRequest)
def quorum(of: Conversation, version: int) -> None:
    def ask(label: str, name: str, *partitions: int) -> None:
        parts = [PartitionRequest(partition_index=at) for at in partitions]
        request = DescribeQuorumRequest(topics=[TopicRequest(topic_name=name, partitions=parts)])
        of.ask(label, request, version, keep=_still)

    ask("metadata", "__cluster_metadata", 0)
    ask("another partition", "__cluster_metadata", 1)
    ask("another topic", of.topic().name, 0)
    ask("no partitions", "__cluster_metadata")
    ask("twice", "__cluster_metadata", 0, 0)
    of.ask("no topics", DescribeQuorumRequest(topics=[]), version, keep=_still)


# --- DescribeLogDirs ---------------------------------------------------------------------------


@probe(DescribeLogDirsRequest)
def log_dirs(of: Conversation, version: int) -> None:
    topic = of.topic(2)
    of.append(topic, batch_of(of))

    def ask(label: str, name: str, *partitions: int) -> None:
        wanted = [DescribableLogDirTopic(topic=name, partitions=list(partitions))]
        of.ask(label, DescribeLogDirsRequest(topics=wanted), version)

    ask("one topic", topic.name, 0, 1)
    ask("one partition", topic.name, 0)
    ask("partition that is not there", topic.name, 7)
    ask("not there", of.name("none"), 0)
    ask("no partitions", topic.name)
    of.ask("no topics", DescribeLogDirsRequest(topics=[]), version)


# --- UnregisterBroker --------------------------------------------------------------------------


@probe(UnregisterBrokerRequest)
def unregistering(of: Conversation, version: int) -> None:
    of.ask("nobody", UnregisterBrokerRequest(broker_id=4711), version)
    of.ask("a negative id", UnregisterBrokerRequest(broker_id=-1), version)


# --- voters ------------------------------------------------------------------------------------

_NOBODY = Uuid(b"nobody's own one")


def _adding(voter_id: int = 4711, cluster_id: str | None = None, **changes: Any) -> AddRaftVoterRequest:
    listeners = [Listener(name="CONTROLLER", host="127.0.0.1", port=1)]
    request: dict[str, Any] = {"voter_directory_id": _NOBODY, "listeners": listeners, **changes}
    return AddRaftVoterRequest(cluster_id=cluster_id, timeout_ms=1_000, voter_id=voter_id, **request)


@probe(AddRaftVoterRequest)
def adding_voters(of: Conversation, version: int) -> None:
    of.ask("of another cluster", _adding(cluster_id="AAAAAAAAAAAAAAAAAAAAAA"), version)
    of.ask("a negative id", _adding(-1), version)
    of.ask("without an address", _adding(listeners=[]), version)


@probe(RemoveRaftVoterRequest)
def removing_voters(of: Conversation, version: int) -> None:
    def ask(title: str, voter_id: int, cluster_id: str | None = None) -> None:
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=_NOBODY)
        of.ask(title, request, version)

    ask("of another cluster", 4711, "AAAAAAAAAAAAAAAAAAAAAA")
    ask("nobody", 4711)
    ask("a negative id", -1)


# --- UpdateFeatures ----------------------------------------------------------------------------


@probe(UpdateFeaturesRequest)
def features(of: Conversation, version: int) -> None:
    def ask(label: str, *updates: tuple[str, int, int]) -> None:
        keys = [
            FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind > 1
            )
            for name, level, kind in updates
        ]
        request = UpdateFeaturesRequest(feature_updates=keys, timeout_ms=5000, validate_only=True)
        of.ask(label, request, version)

    if version:  # version 0 cannot only validate
        ask("group.version to what it is", ("group.version", 1, 1))
        ask("group.version too high", ("group.version", 99, 1))
        ask("downgrade as upgrade", ("group.version", 0, 1))
        ask("upgrade as downgrade", ("group.version", 1, 2))
        ask("type 7", ("group.version", 1, 7))
        ask("one good, one unknown", ("group.version", 1, 1), ("no.such", 1, 1))
    ask("unknown feature", ("no.such", 1, 1))
    ask("empty name", ("", 1, 1))
    ask("negative level", ("group.version", -1, 2))
    ask("twice", ("no.such", 1, 1), ("no.such", 1, 1))
    ask("nothing")


# --- quotas ------------------------------------------------------------------------------------


def _entity(**names: str | None) -> list[AlteredEntity]:
    return [
        AlteredEntity(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in names.items()
    ]


def _quota(
    entity: list[AlteredEntity], *ops: tuple[str, float | None], validate_only: bool = False
) -> AlterClientQuotasRequest:
    changes = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops]
    return AlterClientQuotasRequest(
        entries=[AlteredEntry(entity=entity, ops=changes)], validate_only=validate_only
    )


@probe(AlterClientQuotasRequest)
def quotas(of: Conversation, version: int) -> None:
    user, client = of.name("u"), of.name("c")
    questions = [
        ("user", _quota(_entity(user=user), ("producer_byte_rate", 1000.0))),
        ("user and client", _quota(_entity(user=user, client_id=client), ("consumer_byte_rate", 5.5))),
        ("removed", _quota(_entity(user=user), ("producer_byte_rate", None))),
        ("removed again", _quota(_entity(user=user), ("producer_byte_rate", None))),
        (
            "only to validate",
            _quota(_entity(client_id=client), ("request_percentage", 50.0), validate_only=True),
        ),
        ("mutations", _quota(_entity(user=user), ("controller_mutation_rate", 3.0))),
        ("not known", _quota(_entity(user=user), ("no_such_rate", 1.0))),
        ("not known, removed", _quota(_entity(user=user), ("no_such_rate", None))),
        ("zero", _quota(_entity(user=user), ("producer_byte_rate", 0.0))),
        ("negative", _quota(_entity(user=user), ("producer_byte_rate", -1.0))),
        ("half a byte", _quota(_entity(user=user), ("producer_byte_rate", 0.5))),
        ("infinite", _quota(_entity(user=user), ("producer_byte_rate", float("inf")))),
        ("not a number", _quota(_entity(user=user), ("producer_byte_rate", float("nan")))),
        (
            "user with a byte rate of connections",
            _quota(_entity(user=user), ("connection_creation_rate", 1.0)),
        ),
        ("address", _quota(_entity(ip="127.0.0.9"), ("connection_creation_rate", 5.0), validate_only=True)),
        ("bad address", _quota(_entity(ip="nowhere.invalid"), ("connection_creation_rate", 5.0))),
        ("address with a byte rate", _quota(_entity(ip="127.0.0.9"), ("producer_byte_rate", 5.0))),
        ("address and user", _quota(_entity(ip="127.0.0.9", user=user), ("producer_byte_rate", 5.0))),
        ("another entity", _quota(_entity(shape=user), ("producer_byte_rate", 5.0))),
        ("no entity", _quota([], ("producer_byte_rate", 5.0))),
        ("empty user", _quota(_entity(user=""), ("producer_byte_rate", 5.0), validate_only=True)),
        ("an entity twice", _quota(_entity(user=user) * 2, ("producer_byte_rate", 5.0))),
        ("a key twice", _quota(_entity(user=user), ("producer_byte_rate", 5.0), ("producer_byte_rate", 6.0))),
        ("no changes", _quota(_entity(user=user))),
        ("nothing", AlterClientQuotasRequest(entries=[], validate_only=False)),
    ]
    for label, request in questions:
        of.ask(label, request, version)


@probe(DescribeClientQuotasRequest)
def described_quotas(of: Conversation, version: int) -> None:
    user, client = of.name("u"), of.name("c")
    of.ask("set", _quota(_entity(user=user), ("producer_byte_rate", 1000.0)), 1)
    of.ask("set for both", _quota(_entity(user=user, client_id=client), ("consumer_byte_rate", 5.5)), 1)

    def request(
        *components: tuple[str, int, str | None], strict: bool = False
    ) -> DescribeClientQuotasRequest:
        wanted = [
            ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components
        ]
        return DescribeClientQuotasRequest(components=wanted, strict=strict)

    def is_there(answer: DescribeClientQuotasResponse) -> bool:
        return len(answer.entries or []) == 2

    of.call_until(request(("user", 0, user)), 1, DescribeClientQuotasResponse, is_there)
    questions = [
        ("user", request(("user", 0, user))),
        ("user, strict", request(("user", 0, user), strict=True)),
        ("user and client", request(("user", 0, user), ("client-id", 0, client))),
        ("user and any client", request(("user", 0, user), ("client-id", 2, None))),
        ("user and default client", request(("user", 0, user), ("client-id", 1, None))),
        ("another user", request(("user", 0, of.name("x")))),
        ("another entity", request(("shape", 0, "x"))),
        ("empty entity", request(("", 0, "x"))),
        ("match type 7", request(("user", 7, "x"))),
        ("an entity twice", request(("user", 0, user), ("user", 0, user))),
        ("exact without a name", request(("user", 0, None))),
        ("default with a name", request(("user", 1, "x"))),
        ("any with a name", request(("user", 2, user))),
        ("address and user", request(("ip", 2, None), ("user", 0, user))),
    ]
    for label, asked in questions:
        of.ask(label, asked, version)


# --- credentials -------------------------------------------------------------------------------


@probe(DescribeUserScramCredentialsRequest)
def credentials(of: Conversation, version: int) -> None:
    def ask(label: str, *names: str) -> None:
        users = [UserName(name=name) for name in names]
        of.ask(label, DescribeUserScramCredentialsRequest(users=users), version)

    of.ask("all", DescribeUserScramCredentialsRequest(users=None), version)
    ask("none named")
    ask("one", of.name("u"))
    ask("two", of.name("u"), of.name("v"))
    ask("one twice", of.name("u"), of.name("u"))
    ask("empty name", "")
