"""Bugs worth seeding into the state-machine runtime and the controller, and what catches each."""

from tests.mutants.harness import Mutant

C = "tests/unit/controller"
RUNTIME = "tests/unit/statemachine/test_runtime.py"
CONTROLLER = f"{C}/test_partitions.py {C}/test_elections.py {C}/test_topics.py {C}/test_image.py"

MUTANTS = [
    Mutant(
        "a response leaves before its commit",
        "statemachine/runtime.py",
        "while self._parked and self._parked[0].depends_on <= self.committed_offset:",
        "while self._parked:",
        RUNTIME,
    ),
    Mutant(
        "an effect runs before its commit",
        "statemachine/runtime.py",
        "while self._waiting_effects and self._waiting_effects[0].depends_on <= self.committed_offset:",
        "while self._waiting_effects:",
        RUNTIME,
    ),
    Mutant(
        "a read does not wait for what it saw",
        "statemachine/runtime.py",
        "        self._parked.append(_Parked(self.replayed_offset, answer))",
        (
            "        waits = NO_OFFSET if answer.needs_leadership else self.replayed_offset\n"
            "        self._parked.append(_Parked(waits, answer))"
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
            "                self._answers.append(_failed(ticket, why))"
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
            "    if not rules.eligible_leaders or len(isr) >= min(rules.min_isr, len(partition.replicas)):\n"
            "        return ()"
        ),
        ("    if not rules.eligible_leaders:\n        return ()"),
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
        "a second living incarnation is accepted",
        "controller/brokers.py",
        "    if existing is not None and not same and sessions.is_alive(request.broker_id, now_ms):",
        "    if False:",
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
        "controller/elections.py",
        "    if rules.unclean_allowed and election is Election.ONLINE:",
        "    if election is Election.ONLINE:",
        CONTROLLER,
    ),
    Mutant(
        "a new controller fences by what its predecessor heard",
        "controller/brokers.py",
        "            self._of[broker_id] = Session(now_ms, False, shutdown_offset=shutdown_offset)",
        "            self._of[broker_id] = Session(now_ms - 1, False, shutdown_offset=shutdown_offset)",
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
]
