"""Bugs worth seeding into the state-machine runtime and the controller, and what catches each."""

from tests.mutants.harness import Mutant

C = "tests/unit/controller"
RUNTIME = "tests/unit/statemachine/test_runtime.py"
CONTROLLER = f"{C}/test_partitions.py {C}/test_elections.py {C}/test_topics.py {C}/test_image.py"

COMMON = f"{C}/test_cluster_settings.py"
EFFECTS = "tests/unit/broker/replicas/test_config_effects.py"

UNCLEAN = f"{C}/sessions/test_unclean.py"

MUTANTS = [
    Mutant(
        "an unclean election takes the first replica that is there, however short its log",
        "controller/sessions/unclean.py",
        "            return (found.last_epoch, found.end_offset)",
        "            return (-2, -2)",
        UNCLEAN,
    ),
    Mutant(
        "a new controller fences who may hold a lease that the one before has just granted",
        "controller/brokers.py",
        "ELECTION_PARTS: Final = 8\n",
        "ELECTION_PARTS: Final = 3\n",
        f"{C}/test_brokers.py",
    ),
    Mutant(
        "a broker that is fenced early is taken for one without a lease",
        "controller/brokers.py",
        "            if image.is_active(broker_id) or self.may_hold_lease(broker_id, now_ms):",
        "            if image.is_active(broker_id):",
        f"{C}/test_brokers.py",
    ),
    Mutant(
        "a new controller gives who is silent a full session",
        "controller/brokers.py",
        "        contact_ms = now_ms - min(election_timeout_ms, timeout_ms // ELECTION_PARTS)\n",
        "        contact_ms = now_ms\n",
        f"{C}/test_brokers.py",
    ),
    Mutant(
        "a process on other disks takes the place of one that may hold a lease",
        "controller/brokers.py",
        "        may_answer = existing.is_active or sessions.may_hold_lease(request.broker_id, now_ms)\n",
        "        may_answer = existing.is_active\n",
        f"{C}/test_brokers.py",
    ),
    Mutant(
        "the end of a log counts though its broker has crashed since",
        "controller/sessions/unclean.py",
        "    return broker is not None and broker.epoch == told.broker_epoch",
        "    return broker is not None",
        UNCLEAN,
    ),
    Mutant(
        "two truths of the minimum in sync: leaders believe their own settings",
        "broker/replicas/partitions.py",
        "config, min_insync_replicas(self.image, partition.topic))",
        "config, self._settings.min_insync_replicas)",
        EFFECTS,
    ),
    Mutant(
        "two truths of the minimum in sync: each controller writes its own",
        "controller/cluster_settings.py",
        "        if name not in present\n",
        "",
        COMMON,
    ),
    Mutant(
        "a single broker has a minimum in sync of its own",
        "controller/cluster_settings.py",
        "            if now is not None:\n                raise",
        "            if now is not None and now is was:\n                raise",
        COMMON,
    ),
    Mutant(
        "a response leaves before its commit",
        "statemachine/runtime.py",
        "while self._delayed and self._delayed[0].depends_on <= self.committed_offset:",
        "while self._delayed:",
        RUNTIME,
    ),
    Mutant(
        "an effect runs before its commit",
        "statemachine/runtime.py",
        "while self._delayed_effects and self._delayed_effects[0].depends_on <= self.committed_offset:",
        "while self._delayed_effects:",
        RUNTIME,
    ),
    Mutant(
        "a read does not wait for what it saw",
        "statemachine/runtime.py",
        "        self._delayed.append(_DelayedReply(self.replayed_offset, reply))",
        (
            "        waits = NO_OFFSET if reply.needs_leadership else self.replayed_offset\n"
            "        self._delayed.append(_DelayedReply(waits, reply))"
        ),
        RUNTIME,
    ),
    Mutant(
        "a machine with uncommitted records survives lost leadership",
        "statemachine/runtime.py",
        ("        if self.replayed_offset > self.committed_offset:\n            self._discard()"),
        ("        if self.replayed_offset > self.committed_offset + 1:\n            self._discard()"),
        RUNTIME,
    ),
    Mutant(
        "lost leadership forgets who waits",
        "statemachine/runtime.py",
        (
            "            if ticket in self._waiting_tickets:\n"
            "                self._waiting_tickets.discard(ticket)\n"
            "                self._replies.append(_failed(ticket, why))"
        ),
        "            self._waiting_tickets.discard(ticket)",
        RUNTIME,
    ),
    Mutant(
        "the broker epoch of an ISR member is ignored",
        "controller/partitions.py",
        "    return broker_epoch == broker.epoch",
        "    return True",
        CONTROLLER,
    ),
    Mutant(
        "the broker epoch of a leader is ignored",
        "controller/brokers.py",
        "    if broker.epoch != broker_epoch:",
        "    if broker.epoch < broker_epoch:",
        f"{C}/test_partitions.py",
    ),
    Mutant(
        "a leader is elected outside the ISR",
        "controller/elections.py",
        "    return next((each for each in partition.replicas if each in eligible and may(each)), NO_LEADER)",
        "    return next((each for each in partition.replicas if may(each)), NO_LEADER)",
        CONTROLLER,
    ),
    Mutant(
        "a topic id is used again",
        "controller/topics.py",
        ("    topic_id = chance.new_uuid()\n    while topic_id in image.topics:"),
        ("    topic_id = Uuid(topic.name.encode().ljust(16)[:16])\n    while topic_id in image.topics:"),
        CONTROLLER,
    ),
    Mutant(
        "an ISR change of a stale leader is accepted",
        "controller/partitions.py",
        (
            "    if change.leader_epoch < partition.leader_epoch:\n"
            "        return ErrorCode.FENCED_LEADER_EPOCH\n"
        ),
        "",
        CONTROLLER,
    ),
    Mutant(
        "an ISR change of an old partition epoch is accepted",
        "controller/partitions.py",
        (
            "    if change.partition_epoch < partition.partition_epoch:\n"
            "        return ErrorCode.INVALID_UPDATE_VERSION\n"
        ),
        "",
        CONTROLLER,
    ),
    Mutant(
        "a fenced broker enters the ISR",
        "controller/partitions.py",
        ("    if broker is None or not broker.is_active:\n        return False"),
        ("    if broker is None:\n        return False"),
        CONTROLLER,
    ),
    Mutant(
        "the minimum ISR is ignored for eligible leaders",
        "controller/elections.py",
        (
            "if not rules.eligible_leaders or len(isr) >= min(rules.min_isr, partition.replication_factor):\n"
            "        return ()"
        ),
        ("if not rules.eligible_leaders:\n        return ()"),
        CONTROLLER,
    ),
    Mutant(
        "a lower minimum ISR leaves stale eligible leaders",
        "controller/topics.py",
        "    return [*changes, *_consequences(image, config, changes, next_offset)], reply",
        "    return [*changes], reply",
        CONTROLLER,
    ),
    Mutant(
        "a new controller takes every coordinator before for gone",
        "controller/sessions/leases.py",
        "        self._floor = last_offset\n",
        "        self._floor = NO_OFFSET\n",
        f"{C}/sessions/test_leases.py -k new_controller",
    ),
    Mutant(
        "who lost a coordinator's partition keeps its lease",
        "controller/sessions/leases.py",
        "            self._lost[broker_id] = offset\n",
        "            pass\n",
        f"{C}/sessions/test_leases.py -k nobody_else_must",
    ),
    Mutant(
        "a broker asks to shut down with its lease in hand",
        "broker/cluster/lifecycle.py",
        "        if request.want_fence or request.want_shutdown:\n            self._grant(NO_LEASE)\n",
        "",
        "tests/unit/broker/cluster/test_lifecycle.py -k gives_its_lease_up",
    ),
    Mutant(
        "a process with other disks takes the place of one that may be alive",
        "controller/brokers.py",
        "        is_heard = not (may_answer and _has_other_disks(existing, request.log_dirs))\n",
        "        is_heard = True\n",
        f"{C}/test_elections.py -k replaced_under_a_leader",
    ),
    Mutant(
        "a second living incarnation is accepted",
        "controller/brokers.py",
        "        if sessions.is_alive(image, request.broker_id, now_ms, is_heard=is_heard):",
        "        if False:",
        f"{C}/test_brokers.py",
    ),
    Mutant(
        "a preferred election picks a replica that is not in sync",
        "controller/elections.py",
        "Election.PREFERRED and partition.replicas[0] in eligible and may(",
        "Election.PREFERRED and may(",
        CONTROLLER,
    ),
    Mutant(
        "an unclean restart keeps its place among the eligible",
        "controller/elections.py",
        "        if each in held and each not in isr and not departed.from_elr(each)",
        "        if each in held and each not in isr",
        CONTROLLER,
    ),
    Mutant(
        "an unclean election is held where the topic forbids it",
        "controller/sessions/unclean.py",
        "            if allowed[topic.name] and candidates:",
        "            if candidates:",
        UNCLEAN,
    ),
    Mutant(
        "a new controller fences by what its predecessor heard",
        "controller/brokers.py",
        "            session = Session(contact_ms, silent_since_ms, False, ",
        "            session = Session(contact_ms - 1, silent_since_ms, False, ",
        f"{C}/test_brokers.py",
    ),
    Mutant(
        "a change of leader does not raise the leader epoch",
        "controller/image.py",
        "        leader_epoch=partition.leader_epoch + (not same_leader),",
        "        leader_epoch=partition.leader_epoch + (record.leader >= 0),",
        CONTROLLER,
    ),
    Mutant(
        "a level is raised although a broker does not know it",
        "controller/machine.py",
        "if level != now and not supports_level(broker, level, name)",
        "if level != now and broker.is_active and not supports_level(broker, level, name)",
        f"{C}/test_features.py",
    ),
    Mutant(
        "validate_only writes",
        "controller/topics.py",
        (
            "            records += _grow(image, chance, more, room)\n"
            "        except DlogError as error:\n"
            "            outcomes.append(TopicOutcome(name=more.name, outcome=failure(error)))\n"
            "        else:\n"
            "            outcomes.append(TopicOutcome(name=more.name, num_partitions=more.count))\n"
            "    return ([] if request.validate_only else records)"
        ),
        (
            "            records += _grow(image, chance, more, room)\n"
            "        except DlogError as error:\n"
            "            outcomes.append(TopicOutcome(name=more.name, outcome=failure(error)))\n"
            "        else:\n"
            "            outcomes.append(TopicOutcome(name=more.name, num_partitions=more.count))\n"
            "    return (records)"
        ),
        CONTROLLER,
    ),
    Mutant(
        "a replaced disk is still trusted as the last leader",
        "controller/elections.py",
        "    return () if leader == NO_LEADER or leader in departed.without_disk else (leader,)",
        "    return () if leader == NO_LEADER else (leader,)",
        f"{C}/test_elections.py",
    ),
    Mutant(
        "old replicas of a move are removed before the target is in sync",
        "controller/reassignments.py",
        "if not partition.is_moving or not set(target) <= set(isr):",
        "if not partition.is_moving:",
        "tests/unit/controller/test_reassignments.py",
    ),
    Mutant(
        "a cancelled move loses who holds what is committed",
        "controller/reassignments.py",
        "    _check_held(partition, moving.replicas)\n",
        "",
        "tests/unit/controller/test_reassignments.py",
    ),
    Mutant(
        "who led last counts among those who hold what is committed",
        "controller/reassignments.py",
        "(*partition.isr, *partition.elr) or partition.last_known_elr",
        "(*partition.isr, *partition.elr, *partition.last_known_elr)",
        "tests/unit/controller/test_reassignments.py",
    ),
    Mutant(
        "the leader epoch stays when a replica is dropped",
        "controller/elections.py",
        " and set(partition.replicas) <= set(after.replicas)",
        "",
        "tests/unit/controller/test_reassignments.py",
    ),
    Mutant(
        "a new controller forgets a move",
        "controller/image.py",
        "        removing=now(record.removing_replicas, partition.removing),\n",
        "        removing=(),\n",
        "tests/unit/controller/test_reassignments.py",
    ),
    Mutant(
        "who is being added counts for the minimum",
        "controller/image.py",
        "return len(self.replicas) - len(self.adding)",
        "return len(self.replicas)",
        "tests/unit/controller/test_reassignments.py",
    ),
]
