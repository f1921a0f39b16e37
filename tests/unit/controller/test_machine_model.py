"""Brokers that come and go, operators that ask for anything, controllers that fail: what must always hold.

Beside the image a ghost is kept: who holds all committed data of a partition.  While an ISR of at least the
minimum has a leader, data is committed, so only its members hold all of it; below the minimum nothing is, so
whoever held all still does.  A leader that does not hold all is a loss, and must have been allowed.
"""

import os
from collections.abc import Iterator

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from distributedlog.controller.bundles import decode_bundle
from distributedlog.controller.cluster_settings import allows_unclean_election, min_insync_replicas
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.deltas import diff
from distributedlog.controller.features import METADATA_FEATURE
from distributedlog.controller.image import ConfigResource, MetadataImage, Partition, ResourceType, Topic
from distributedlog.controller.reassignments import find_original
from distributedlog.controller.records import NO_LEADER, RECOVERING
from distributedlog.controller.requests import (
    AllocateProducerIdsRequest,
    AlterPartitionsReply,
    AlterPartitionsRequest,
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectionType,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    IsrChange,
    IsrMember,
    MorePartitions,
    NewTopic,
    ProducerIdBlock,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition, Uuid
from tests.unit.controller.image_deltas import apply_delta
from tests.unit.controller.stage import SESSION_MS, Stage, config, incarnation

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b", "c")
WISHES = ("", "", "", "fence", "shutdown", "stuck")
STALE = ("", "", "", "leader epoch", "partition epoch", "member epoch")
Where = tuple[Uuid, int]


def placed(image: MetadataImage) -> Iterator[tuple[Where, Topic, Partition]]:
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            yield (topic.topic_id, number), topic, partition


class ControllerModel(RuleBasedStateMachine):
    @initialize(level=st.sampled_from([1, 2, 2]), seed=st.integers(0, 9))
    def begin(self, level: int, seed: int) -> None:
        self.stage = Stage(config(bootstrap_level=level), seed=seed)
        self.seen = MetadataImage()
        self.ids_ever: set[Uuid] = set()
        self.broker_epochs: dict[int, int] = {}
        self.disks = 0
        self.blocks: set[int] = set()
        self.holders: dict[Where, set[int]] = {}
        self.unclean_asked = False
        self.stage.start(1, 2, 3)
        self.stage.create("a", (1, 2, 3), (2, 3, 1), min_insync_replicas="2")
        self.stage.create("b", (3, 1))

    # --- brokers -----------------------------------------------------------------------------------

    @rule(broker_id=st.sampled_from(BROKERS), how=st.sampled_from(["clean", "unclean", "new disk"]))
    def process_starts(self, broker_id: int, how: str) -> None:
        stage = self.stage
        before = stage.image.brokers.get(broker_id)
        changes: dict[str, object] = {}
        if how == "clean" and before is not None:
            changes["previous_broker_epoch"] = before.epoch
        if how == "new disk":
            self.disks += 1
            changes["log_dirs"] = (incarnation(10_000 + self.disks),)
        elif before is not None and before.log_dirs:
            changes["log_dirs"] = before.log_dirs
        request = stage.registration(broker_id, **changes)
        if stage.refusal(request) is ErrorCode.NONE:
            stage.epochs[broker_id] = stage.image.brokers[broker_id].epoch
            if how != "clean" or before is None:
                self._loses_data(broker_id)
        else:
            assert before is not None

    @rule(
        broker_id=st.sampled_from(BROKERS), wish=st.sampled_from(["", "", "", "fence", "shutdown", "stuck"])
    )
    def broker_is_heard(self, broker_id: int, wish: str) -> None:
        if broker_id in self.stage.image.brokers:
            self.stage.heartbeat(
                broker_id,
                want_fence=wish == "fence",
                want_shutdown=wish == "shutdown",
                data_loop_lag_ms=60_000 if wish == "stuck" else 0,
            )

    @rule(heard=st.sets(st.sampled_from(BROKERS)))
    def only_these_are_heard_for_a_while(self, heard: set[int]) -> None:
        for _ in range(3):
            self.stage.pass_time(SESSION_MS // 2)
            for broker_id in heard & set(self.stage.image.brokers):
                self.stage.heartbeat(broker_id)

    @rule(broker_id=st.sampled_from(BROKERS))
    def operator_unregisters(self, broker_id: int) -> None:
        if self.stage.refusal(UnregisterBrokerRequest(broker_id)) is ErrorCode.NONE:
            self._loses_data(broker_id)

    def _loses_data(self, broker_id: int) -> None:
        """The last member of an ISR is trusted at level 1 whatever happened to it: it knows no better."""
        image = self.stage.image
        for where, held in self.holders.items():
            partition = image.partition(*where)
            if partition is None or image.level > 1 or partition.isr != (broker_id,):
                held.discard(broker_id)

    # --- topics ------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        partitions=st.integers(0, 3),
        factor=st.integers(1, 4),
        min_isr=st.integers(1, 3),
        validate_only=st.booleans(),
    )
    def create(self, name: str, partitions: int, factor: int, min_isr: int, validate_only: bool) -> None:
        before = self.stage.image
        topic = NewTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=(("min.insync.replicas", str(min_isr)),),
        )
        self.stage.ask(CreateTopicsRequest((topic,), validate_only), object)
        assert not validate_only or self.stage.image is before

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.stage.ask(DeleteTopicsRequest((name,)), object)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4), validate_only=st.booleans())
    def grow(self, name: str, count: int, validate_only: bool) -> None:
        before = self.stage.image
        self.stage.ask(CreatePartitionsRequest((MorePartitions(name, count),), validate_only), object)
        assert not validate_only or self.stage.image is before

    @rule(
        name=st.sampled_from([*NAMES, ""]),
        edit=st.sampled_from(
            [
                ConfigEdit("min.insync.replicas", ConfigOp.SET, "1"),
                ConfigEdit("min.insync.replicas", ConfigOp.SET, "2"),
                ConfigEdit("min.insync.replicas", ConfigOp.DELETE),
                ConfigEdit("unclean.leader.election.enable", ConfigOp.SET, "true"),
                ConfigEdit("unclean.leader.election.enable", ConfigOp.SET, "false"),
                ConfigEdit("unclean.leader.election.enable", ConfigOp.DELETE),
            ]
        ),
    )
    def configure(self, name: str, edit: ConfigEdit) -> None:
        resource = ConfigResource(ResourceType.TOPIC if name else ResourceType.BROKER, name)
        self.stage.ask(IncrementalAlterConfigsRequest(((resource, (edit,)),)), object)

    # --- partitions --------------------------------------------------------------------------------

    @rule(
        data=st.data(), stale=st.sampled_from(["", "", "", "leader epoch", "partition epoch", "member epoch"])
    )
    def leader_changes_its_isr(self, data: st.DataObject, stale: str) -> None:
        led = sorted(
            (where for where, _, partition in placed(self.stage.image) if partition.leader != NO_LEADER),
        )
        if not led:
            return
        topic_id, number = data.draw(st.sampled_from(led))
        partition = self.stage.image.topics[topic_id].partitions[number]
        isr = {*data.draw(st.sets(st.sampled_from(partition.replicas))), partition.leader}
        brokers = self.stage.image.brokers
        members = tuple(
            IsrMember(each, (brokers[each].epoch if each in brokers else 0) - (stale == "member epoch"))
            for each in sorted(isr)
        )
        change = IsrChange(
            topic_id=topic_id,
            partition_id=number,
            leader_epoch=partition.leader_epoch - (stale == "leader epoch"),
            partition_epoch=partition.partition_epoch - (stale == "partition epoch"),
            isr=members,
        )
        request = AlterPartitionsRequest(partition.leader, brokers[partition.leader].epoch, (change,))
        (outcome,) = self.stage.ask(request, AlterPartitionsReply).changes
        if stale:
            assert outcome.error is not ErrorCode.NONE
        elif all(self.stage.image.is_active(each) for each in isr):
            assert outcome.error is ErrorCode.NONE
        else:
            assert outcome.error is ErrorCode.INELIGIBLE_REPLICA

    @rule(data=st.data(), wanted=st.lists(st.sampled_from(BROKERS), max_size=3, unique=True))
    def operator_moves(self, data: st.DataObject, wanted: list[int]) -> None:
        """Cancels if no replicas are wanted."""
        everywhere = sorted(
            TopicPartition(topic.name, number) for (_, number), topic, _ in placed(self.stage.image)
        )
        if everywhere:
            name = data.draw(st.sampled_from(everywhere))
            self.stage.ask(AlterReassignmentsRequest(((name, tuple(wanted) or None),)), object)

    @rule(election=st.sampled_from(list(ElectionType)))
    def elect(self, election: ElectionType) -> None:
        self.unclean_asked = election is ElectionType.UNCLEAN
        self.stage.ask(ElectLeadersRequest(election), object)

    @rule(broker_id=st.sampled_from(BROKERS))
    def allocate(self, broker_id: int) -> None:
        if broker_id in self.stage.image.brokers:
            epoch = self.stage.image.brokers[broker_id].epoch
            block = self.stage.ask(AllocateProducerIdsRequest(broker_id, epoch), ProducerIdBlock)
            assert block.first not in self.blocks
            self.blocks.add(block.first)

    # --- the cluster -------------------------------------------------------------------------------

    @rule()
    def raise_level(self) -> None:
        self.stage.ask(UpdateFeaturesRequest(((METADATA_FEATURE, 2),)), object)

    @rule()
    def controller_fails(self) -> None:
        before = self.stage.image
        self.stage.failover()
        assert self.stage.image.brokers == before.brokers

    @rule(name=st.sampled_from(NAMES))
    def controller_fails_with_a_change_that_did_not_commit(self, name: str) -> None:
        before = self.stage.image
        entries = len(self.stage.log.entries)
        topic = NewTopic(name=name, num_partitions=2, replication_factor=1)
        self.stage.runtime.submit(CreateTopicsRequest((topic,)), self.stage.now_ms, 2**40)
        self.stage.runtime.submit(DeleteTopicsRequest((name,)), self.stage.now_ms, 2**40)
        del self.stage.log.entries[entries:]
        self.stage.failover()
        assert self.stage.image.topic_ids == before.topic_ids

    # --- what always holds -------------------------------------------------------------------------

    @invariant()
    def everyone_arrives_at_the_same_image(self) -> None:
        """Entry by entry, as one who has only the log would."""
        before = self.seen
        for offset in range(self.seen.offset + 1, len(self.stage.log.entries)):
            records = decode_bundle(self.stage.log.entries[offset])
            image = self.seen.apply([message for message, _ in records], offset)
            self._check_partitions(image)
            self._check_history(image)
            self._check_leaders(image)
            self.seen = image
        self.unclean_asked = False
        assert self.seen == self.stage.image
        assert decode_snapshot(encode_snapshot(self.seen)) == self.seen
        assert apply_delta(diff(before, self.seen), before) == self.seen

    def _check_partitions(self, image: MetadataImage) -> None:
        for _, topic, partition in placed(image):
            replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
            assert isr <= replicas
            assert elr <= replicas
            assert not isr & elr
            assert len(replicas) == len(partition.replicas)
            assert set(partition.adding) | set(partition.removing) <= replicas
            assert not set(partition.adding) & set(partition.removing)
            assert partition.is_moving == bool(partition.original)
            assert len(isr) == len(partition.isr)
            if partition.leader != NO_LEADER:
                assert partition.leader in isr
                assert all(image.is_active(each) for each in isr)
                assert partition.last_known_elr == ()
            if image.level == 1:
                assert isr
                assert not elr
            if len(isr) >= self.min_isr(image, topic, partition):
                assert not elr

    def min_isr(self, image: MetadataImage, topic: Topic, partition: Partition) -> int:
        return min(min_insync_replicas(image, topic.name), partition.replication_factor)

    def _check_history(self, image: MetadataImage) -> None:
        for where, _, partition in placed(image):
            old = self.seen.partition(*where)
            if old is not None and old != partition:
                assert partition.partition_epoch == old.partition_epoch + 1
                rises = partition.leader != old.leader or not set(old.replicas) <= set(partition.replicas)
                assert partition.leader_epoch == old.leader_epoch + rises
        for topic_id in image.topics:
            assert topic_id in self.seen.topics or topic_id not in self.ids_ever, "a topic id came back"
            self.ids_ever.add(topic_id)
        for broker_id, broker in image.brokers.items():
            old_broker = self.seen.brokers.get(broker_id)
            same = old_broker is not None and old_broker.incarnation_id == broker.incarnation_id
            last = self.broker_epochs.get(broker_id, -1)
            assert broker.epoch == last if same else broker.epoch > last
            self.broker_epochs[broker_id] = broker.epoch

    def _check_leaders(self, image: MetadataImage) -> None:
        """Whoever leads holds all that is committed, or was allowed to lose it."""
        for where, topic, partition in placed(image):
            old = self.seen.partition(*where)
            held = self.holders.setdefault(where, set(partition.isr))
            if old is not None and partition.leader not in (NO_LEADER, old.leader):
                self._check_new_leader(image, topic, old, partition, held)
            if old is not None:
                self._check_move(old, partition, held)
            if partition.leader != NO_LEADER:
                if len(partition.isr) >= self.min_isr(image, topic, partition):
                    held.clear()
                held.update(partition.isr)

    def _check_move(self, old: Partition, new: Partition, held: set[int]) -> None:
        """The original replicas stay until all of the target are in sync; whoever goes loses its log."""
        if new.replicas != old.replicas and not set(find_original(old)) <= set(new.replicas):
            assert set(new.replicas) <= set(new.isr)
        if held:
            held &= set(new.replicas)
            assert held, f"nobody is left who holds all: {old} {new}"

    def _check_new_leader(
        self, image: MetadataImage, topic: Topic, old: Partition, new: Partition, held: set[int]
    ) -> None:
        if new.leader in held:
            return
        assert new.recovery_state == RECOVERING
        unclean = allows_unclean_election(image, topic.name)
        assert unclean or self.unclean_asked or old.last_known_elr == (new.leader,), (
            f"{new.leader} does not hold all: {old} {new}"
        )


ControllerModel.TestCase.settings = settings(
    max_examples=1000 if os.environ.get("DLOG_SOAK") else 60, stateful_step_count=40, deadline=None
)
test_the_controller_keeps_the_cluster_sound_whatever_happens = ControllerModel.TestCase
