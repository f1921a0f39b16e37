"""Bugs of the patterns: records that are lost between two topics, relays and tables that end for good."""

from tests.mutants.harness import Mutant

P = "tests/unit/patterns"

MUTANTS = [
    Mutant(
        "an old record that failed is deleted as soon as it is a dead letter",
        "patterns/runner.py",
        "(topic, value, key, partition=partition, headers=headers)\n",
        "(topic, value, key, partition=partition, headers=headers, timestamp_ms=10**12)\n",
        f"{P}/test_runner.py -k old_record",
    ),
    Mutant(
        "a request that wants its reply where nothing is stops the responder",
        "patterns/runner.py",
        "            if code_of(error) not in WRONG_ADDRESS:\n",
        "            if code_of(error) is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:\n",
        f"{P}/test_runner.py -k wrong_reply",
    ),
    Mutant(
        "what is passed on goes through the serializers of what handlers send",
        "patterns/runner.py",
        "        return Producer(self._bootstrap, **plain) if has_serializers else producer\n",
        "        return producer\n",
        f"{P}/test_runner.py -k change_nothing",
    ),
    Mutant(
        "a table is of no use any more after a short outage",
        "patterns/table.py",
        "self._is_loaded and is_retriable(error)",
        "False",
        f"{P}/test_table.py -k away",
    ),
    Mutant(
        "a relay keeps its producer when nobody knows what was published",
        "patterns/outbox.py",
        "            self._give_up(producer)  # perhaps",
        "            self._give_up_connection()  # perhaps",
        f"{P}/test_outbox.py -k interrupted",
    ),
    Mutant(
        "events of a new database are taken for those of the old one",
        "patterns/outbox.py",
        "            uuid.uuid4().hex,\n",
        "            topic,\n",
        f"{P}/test_outbox.py -k made_anew",
    ),
]
