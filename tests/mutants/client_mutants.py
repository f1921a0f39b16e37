"""Bugs of the Python client: order and sequences through retries, transactions that end wrongly."""

from tests.mutants.harness import Mutant

C = "tests/unit/client"

MUTANTS = [
    Mutant(
        "a batch goes out before one that came back",
        "client/accumulator.py",
        "            and queue.batches[0].order is None\n",
        "",
        f"{C}/test_in_flight.py -k came_back",
    ),
    Mutant(
        "a batch that may be there leaves its sequences to the next one",
        "client/accumulator.py",
        "        if batch.is_doubtful or batch.attempts > 1 or queue.is_followed(batch):\n",
        "        if queue.is_followed(batch):\n",
        f"{C}/test_in_flight.py -k given_up",
    ),
    Mutant(
        "what a leader refused that was one no more leaves its sequences to the next one",
        "client/accumulator.py",
        "        if batch.is_doubtful or batch.attempts > 1 or queue.is_followed(batch):\n",
        "        if batch.is_doubtful or queue.is_followed(batch):\n",
        f"{C}/test_in_flight.py -k one_no_more",
    ),
    Mutant(
        "the second batch of a producer goes out before the first is acknowledged",
        "client/accumulator.py",
        "            and queue.known_id == self.identity.producer_id\n",
        "",
        f"{C}/test_in_flight.py -k overtaken",
    ),
    Mutant(
        "an epoch begins while the last one is under way",
        "client/accumulator.py",
        "            and queue.under_way[0].identity == self.identity\n",
        "",
        f"{C}/test_in_flight.py -k begins_an_epoch",
    ),
    Mutant(
        "a batch that is too large comes again in halves with other sequences",
        "client/accumulator.py",
        "            if batch.is_numbered:\n                part.base_sequence",
        "            if False:\n                part.base_sequence",
        f"{C}/test_splitting.py",
    ),
    Mutant(
        "a half has the sequences of the whole",
        "client/accumulator.py",
        "                sequence = increment_sequence(sequence, part.record_count)\n",
        "",
        f"{C}/test_splitting.py",
    ),
    Mutant(
        "a transaction in which something failed is committed",
        "client/transactions/state.py",
        "        if self.state is State.ABORTABLE and commits:\n",
        "        if self.state is State.DEAD and commits:\n",
        f"{C}/transactions/test_state.py",
    ),
    Mutant(
        "a block that is cancelled while it commits leaves its transaction open",
        "client/faces/transactions.py",
        "        await producer.commit_transaction()\n    except BaseException as error:\n",
        "        await producer.commit_transaction()\n    except Exception as error:\n",
        f"{C}/faces/test_transactions.py -k cancelled",
    ),
    Mutant(
        "a member that was fenced asks for the names of what it was to have",
        "client/groups/consumer_membership.py",
        "            self._target = frozenset()  # only a member",
        "            pass  # only a member",
        f"{C}/groups/test_consumer_membership.py -k fenced_before",
    ),
    Mutant(
        "a fetch needs what was given up of the cluster",
        "client/consumer.py",
        "            partitions = [each for each in here if self._is_valid_in(latest, each)]\n",
        "            partitions = here\n",
        f"{C}/test_consumer.py -k given_up",
    ),
    Mutant(
        "what comes is opened before the next is asked for",
        "client/consumer.py",
        "                await asyncio.sleep(0)  # they are sent",
        "                pass  # they are sent",
        f"{C}/test_consumer.py -k under_way",
    ),
    Mutant(
        "what is unsound is passed over, for the next was asked for already",
        "client/fetcher.py",
        "                self.positions[partition] = opened_to\n",
        "                pass\n",
        f"{C}/test_fetcher.py -k back_to",
    ),
    Mutant(
        "a new leader is read from before it is asked whether it has what was read",
        "client/consumer.py",
        "        return not self._fetcher.epochs.must_validate(partition, offset, found.leader_epoch)\n",
        "        return offset >= 0\n",
        f"{C}/positions/test_validation.py -k becomes_known",
    ),
    Mutant(
        "the coordinator hears that partitions are given up before the program does",
        "client/groups/consumer_membership.py",
        "            topic_partitions=_by_topic(self._held) if says_held else None,\n",
        "            topic_partitions=_by_topic(self._ready()) if says_held else None,\n",
        f"{C}/groups/test_consumer_membership.py -k before_the_coordinator",
    ),
    Mutant(
        "a broker that refuses is tried again at once",
        "client/metadata.py",
        "            self._reachability.check(address, self.clock.monotonic_ms())\n",
        "",
        f"{C}/test_metadata.py -k refuses",
    ),
    Mutant(
        "clients that lost a broker together come back together",
        "client/options.py",
        "    spread = middle * JITTER_PERCENT // 100\n",
        "    spread = 0\n",
        f"{C}/test_options.py",
    ),
    Mutant(
        "what is known of a cluster that is gone stays known",
        "client/metadata.py",
        "        self.view = ClusterView()\n        self._is_stale = True\n",
        "        self._is_stale = True\n",
        f"{C}/test_metadata.py -k given_up",
    ),
]
