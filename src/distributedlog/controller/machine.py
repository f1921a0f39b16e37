"""The controller as a machine: every request a `Result`, the image the only state that counts.

    request -> the subject's module -> records at the cluster's level -> append, replay -> the next image

SOFT STATE: the sessions of brokers (see `brokers`), when leaders are to be balanced next, and when internal
topics are looked at.  A new
controller takes over by replay.  Every change is one entry of the log, so nothing can be half done; what a
predecessor had begun and not yet written (a broker to fence, a shutdown to finish, a partition without
a leader that could have one) follows from the image, and is taken up in `activated` or as its time comes.
Nobody is fenced by a new controller before any lease must have ended that the one before it granted, but for
who is dead by what its ports say (decision 34).

The first entry of each controller says who it is, and has the settings of the whole cluster that it lacked.
The first of a new cluster says its level and its id too, and nothing may stand before it.  The machine asks
for no effects: brokers act on the log itself.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from distributedlog.controller import brokers, partitions, producer_ids, reassignments, topics
from distributedlog.controller.brokers import Session, Sessions, supports_level
from distributedlog.controller.bundles import check_fits
from distributedlog.controller.cluster_settings import settle_cluster_settings
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.elections import is_leaderless, sweep
from distributedlog.controller.features import (
    FEATURES,
    GROUP_FEATURE,
    METADATA_FEATURE,
    TRANSACTION_FEATURE,
    versioned,
)
from distributedlog.controller.image import NO_OFFSET, Broker, MetadataImage
from distributedlog.controller.moves.internal_topics import InternalTopicsGrowth
from distributedlog.controller.placement import Chance
from distributedlog.controller.quorum import registrations
from distributedlog.controller.quotas import ENTITIES_MAX, edit_quotas, entity_of
from distributedlog.controller.records import ClusterCreated, ControllerElected, FeatureLevelSet, Versioned
from distributedlog.controller.requests import (
    AddVoterRequest,
    AllocateProducerIdsRequest,
    AlterConfigsRequest,
    AlterPartitionsRequest,
    AlterQuotasRequest,
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    FeaturesReply,
    FenceRefusedRequest,
    ForgetControllerRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    ItemOutcome,
    QuotasReply,
    ReadImageRequest,
    RegisterBrokerReply,
    RegisterBrokerRequest,
    RegisterControllerRequest,
    RemoveVoterRequest,
    Request,
    Response,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
    failure,
)
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot
from distributedlog.model.cluster_settings import find_new_cluster_defaults
from distributedlog.model.config import SECOND_MS
from distributedlog.model.errors import (
    ConsensusError,
    DlogError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    PolicyViolationError,
)
from distributedlog.protocol.schema import Message
from distributedlog.statemachine import Context, Result

ControllerResult = Result[Versioned, Response, None]
Handled = tuple[list[Message], Response]

BALANCE_AGAIN_MS = SECOND_MS
"""The pause until the next part, when one part of the elections was not enough."""


class ControllerMachine:
    def __init__(self, config: ControllerConfig, chance: Chance, image: MetadataImage | None = None) -> None:
        """`image` is the state to begin with; images are immutable, so it costs nothing to share one."""
        self.config = config
        self.image = image or MetadataImage()
        self._chance = chance
        self._sessions = Sessions()
        self._growth = InternalTopicsGrowth()
        self._balance_ms = 0

    # --- the contract --------------------------------------------------------------------------

    def handle(self, request: Request, context: Context) -> ControllerResult:
        records, response = self._handle(request, context)
        made = self._at_level(records)
        check_fits(made)
        return Result(response, made)

    def replay(self, records: Sequence[Versioned], offset: int) -> None:
        messages = [message for message, _ in records]
        self._sessions.leases.note_changes(self.image, messages, offset)
        self._sessions.unclean.note_changes(messages)
        self._growth.note_changes(messages)
        self.image = self.image.apply(messages, offset, level_max=self.config.level_max)

    def activated(self, context: Context) -> Result[Versioned, None, None]:
        self._sessions.restart(
            self.image,
            context.now_ms,
            context.next_offset,
            self.config.refused_timeout_ms,
            self.config.election_timeout_ms,
        )
        self._growth.restart(context.now_ms)
        self._balance_ms = context.now_ms + self.config.leader_balance_interval_ms
        elected = ControllerElected(controller_id=self.config.controller_id, epoch=context.epoch)
        if not self.image.cluster_id:
            # Only a new cluster: one that exists goes on as it was.
            given = {
                **find_new_cluster_defaults(self.config.brokers_expected),
                **self.config.cluster_settings,
            }
            common = settle_cluster_settings(self.image, given)
            level = self.config.bootstrap_level
            first: list[Message] = [FeatureLevelSet(name=METADATA_FEATURE, feature_level=level)]
            for name, kafka_level in (
                (GROUP_FEATURE, self.config.bootstrap_group_level),
                (TRANSACTION_FEATURE, self.config.bootstrap_transaction_level),
            ):
                if kafka_level:
                    first.append(FeatureLevelSet(name=name, feature_level=kafka_level))
            first.append(ClusterCreated(cluster_id=self.config.cluster_id))
            return Result(None, versioned([*first, *common, elected], level))
        if self.image.cluster_id != self.config.cluster_id:
            raise ConsensusError(
                f"the log is of the cluster {self.image.cluster_id}, this node of {self.config.cluster_id}"
            )
        common = settle_cluster_settings(self.image, self.config.cluster_settings)
        image = self.image.apply(common, context.next_offset, level_max=self.config.level_max)
        # With a minimum that was not in the log before, eligibility is judged anew.
        settled = sweep(image, lambda each: is_leaderless(each) or bool(common and each.elr))
        return Result(None, self._at_level([elected, *common, *settled]))

    def next_deadline_ms(self) -> int | None:
        expiry = self._sessions.next_expiry(self.image)
        unclean_ms = self._sessions.unclean.next_deadline_ms(self.image)
        expiry_ms = None if expiry is None else expiry[0]
        times = (self._balance_ms, expiry_ms, unclean_ms, self._growth.next_deadline_ms())
        return min(each for each in times if each is not None)

    def tick(self, context: Context) -> Result[Versioned, None, None]:
        expiry = self._sessions.next_expiry(self.image)
        if expiry is not None and expiry[0] <= context.now_ms:
            self._sessions.excuse(self.image, expiry[0], context.now_ms)
            fenced = brokers.fence_expired(self.image, self._sessions, context.now_ms)
            return Result(None, self._at_level(fenced))
        elected = self._sessions.unclean.elect(self.image, context.now_ms)
        if elected:
            return Result(None, self._at_level(elected))
        grown = self._growth.grow(self.image, context.now_ms)
        if grown:
            return Result(None, self._at_level(grown))
        if self._balance_ms > context.now_ms:
            return Result(None)
        limit = self.config.elections_per_balance_max
        balanced = partitions.balance_leaders(self.image, limit)
        pause_ms = BALANCE_AGAIN_MS if len(balanced) >= limit else self.config.leader_balance_interval_ms
        self._balance_ms = context.now_ms + pause_ms
        return Result(None, self._at_level(list(balanced)))

    def find_silent(self, now_ms: int) -> Iterator[Broker]:
        """Returns the unfenced brokers that have been silent for so long that their ports are to be tried."""
        return self._sessions.find_silent(self.image, now_ms, self.config.refused_timeout_ms)

    def heard(self) -> Iterator[tuple[int, Session]]:
        """Returns the sessions of brokers that sent this controller a heartbeat, by id."""
        return self._sessions.heard()

    def snapshot(self) -> bytes:
        return encode_snapshot(self.image)

    def restore(self, data: bytes, offset: int) -> None:
        image = decode_snapshot(data, level_max=self.config.level_max)
        if image.offset != NO_OFFSET and image.offset > offset:
            raise ConsensusError(f"a snapshot of the offset {image.offset} is given for {offset}")
        self.image = image

    # --- inside --------------------------------------------------------------------------------

    def _at_level(self, records: Sequence[Message]) -> list[Versioned]:
        return versioned(records, self.image.level)

    def _handle(self, request: Request, context: Context) -> Handled:
        image, config, sessions = self.image, self.config, self._sessions
        match request:
            case HeartbeatRequest():
                return brokers.heartbeat(image, sessions, request, context.now_ms, context.next_offset)
            case FenceRefusedRequest():
                wait_ms = config.refused_timeout_ms
                return brokers.fence_refused(image, sessions, request, context.now_ms, wait_ms), None
            case RegisterBrokerRequest():
                records, epoch = brokers.register(
                    image, sessions, request, context.now_ms, context.next_offset
                )
                return records, RegisterBrokerReply(epoch)
            case UnregisterBrokerRequest():
                return brokers.unregister(image, request.broker_id), None
            case AlterPartitionsRequest():
                return partitions.alter_partitions(image, config, request)
            case ElectLeadersRequest():
                return partitions.elect_leaders(image, config, sessions.unclean, request)
            case AllocateProducerIdsRequest():
                return producer_ids.allocate(image, request)
            case UpdateFeaturesRequest():
                return self._update_features(request)
            case AlterQuotasRequest():
                return self._alter_quotas(request)
            case AlterReassignmentsRequest():
                return reassignments.alter_reassignments(image, config, request)
            case RegisterControllerRequest():
                return registrations.register(image, request), None
            case ForgetControllerRequest():
                return registrations.forget(image, request), None
            case DescribeQuorumRequest() | AddVoterRequest() | RemoveVoterRequest():
                raise InvalidRequestError("who keeps the log is not known to what the log makes")
            case ReadImageRequest():
                return [], image
            case _:
                return self._administer(request, context)

    def _administer(
        self,
        request: CreateTopicsRequest
        | DeleteTopicsRequest
        | CreatePartitionsRequest
        | AlterConfigsRequest
        | IncrementalAlterConfigsRequest,
        context: Context,
    ) -> Handled:
        match request:
            case CreateTopicsRequest():
                return topics.create_topics(self.image, self.config, self._chance, request)
            case DeleteTopicsRequest():
                return topics.delete_topics(self.image, self.config, request)
            case CreatePartitionsRequest():
                return topics.create_partitions(self.image, self.config, self._chance, request)
            case AlterConfigsRequest() | IncrementalAlterConfigsRequest():
                return topics.alter_configs(self.image, self.config, request, context.next_offset)

    def _alter_quotas(self, request: AlterQuotasRequest) -> Handled:
        topics.check_item_count(self.config, request.entities)
        counts = Counter(frozenset(entity) for entity, _ in request.entities)
        records: list[Message] = []
        outcomes = []
        added = 0
        for given, edits in request.entities:
            try:
                if counts[frozenset(given)] > 1:
                    raise InvalidRequestError("the entity is in the request more than once")
                entity = entity_of(given)
                made = edit_quotas(self.image, entity, edits)
                added += bool(made) and entity not in self.image.quotas
                if len(self.image.quotas) + added > ENTITIES_MAX:
                    raise PolicyViolationError(f"{ENTITIES_MAX} users and client ids have quotas already")
            except DlogError as error:
                outcomes.append((given, failure(error)))
                continue
            records += made
            outcomes.append((given, ItemOutcome()))
        return ([] if request.validate_only else records), QuotasReply(tuple(outcomes))

    def _update_features(self, request: UpdateFeaturesRequest) -> Handled:
        topics.check_item_count(self.config, request.levels)
        names = [name for name, _ in request.levels]
        if len(set(names)) != len(names):
            raise InvalidRequestError("a feature is in the request more than once")
        records: list[Message] = []
        outcomes = []
        for name, level in request.levels:
            try:
                self._check_level(name, level)
            except DlogError as error:
                outcomes.append((name, failure(error)))
                continue
            outcomes.append((name, ItemOutcome()))
            if level != self._level_of(name):
                records.append(FeatureLevelSet(name=name, feature_level=level))
        return ([] if request.validate_only else records), FeaturesReply(tuple(outcomes))

    def _level_of(self, name: str) -> int:
        return self.image.level if name == METADATA_FEATURE else self.image.features.get(name, 0)

    def _check_level(self, name: str, level: int) -> None:
        if name not in FEATURES:
            raise InvalidUpdateVersionError(f"there is no feature {name!r}")
        low, high = FEATURES[name]
        if name == METADATA_FEATURE:
            high = self.config.level_max
        if not low <= level <= high:
            raise InvalidUpdateVersionError(f"this controller knows the levels {low} to {high}, not {level}")
        now = self._level_of(name)
        if level < now:
            raise InvalidUpdateVersionError(f"from level {now} there is no way down to {level}")
        behind = sorted(
            broker.broker_id
            for broker in self.image.brokers.values()
            if level != now and not supports_level(broker, level, name)
        )
        if behind:
            raise InvalidUpdateVersionError(
                f"broker {behind[0]} does not know level {level}: upgrade it first"
            )
