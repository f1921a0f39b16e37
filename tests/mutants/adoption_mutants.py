"""Bugs of adopting Kafka's directories: each would lose records, or let a node start on half of them."""

from tests.mutants.harness import Mutant

A = "tests/unit/adoption"

MUTANTS = [
    Mutant(
        "a partition has its name before its files are whole",
        "adoption/adopting.py",
        "        begun = final + ADOPTING_SUFFIX\n",
        "        begun = final\n",
        f"{A}/test_adopting.py -k into-keep",
    ),
    Mutant(
        "a replica that was not in sync is taken for the truth",
        "adoption/survey.py",
        "        if _rank(partition, source.broker_id) == OUTDATED:\n",
        "        if _rank(partition, source.broker_id) > OUTDATED:\n",
        f"{A}/test_survey.py -k not_in_sync",
    ),
    Mutant(
        "what is not taken stays where a node would delete it",
        "adoption/adopting.py",
        "    for name in [*sorted(names), METADATA_LOG_DIRECTORY]:",
        "    for name in [METADATA_LOG_DIRECTORY]:",
        f"{A}/test_adopting.py -k set_aside",
    ),
]
