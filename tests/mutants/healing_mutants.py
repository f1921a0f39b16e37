"""Bugs of healing: a corrupt replica that counts for what it is about to remove, or is never found."""

from tests.mutants.harness import Mutant

B = "tests/unit/broker"

MUTANTS = [
    Mutant(
        "a corrupt replica removes what it may yet be elected for",
        "broker/replicas/healing.py",
        "            and me not in state.isr\n",
        "",
        f"{B}/replicas/test_healing.py -k counts_for_something",
    ),
    Mutant(
        "an eligible replica is cut",
        "broker/replicas/healing.py",
        "            and me not in state.elr\n",
        "",
        f"{B}/replicas/test_healing.py -k counts_for_something",
    ),
    Mutant(
        "fetches from before the release bring a corrupt replica back",
        "controller/replica_faults.py",
        "    record.leader = target.leader  # also where",
        "    # also where",
        "tests/unit/controller/test_replica_faults.py -k corrupt",
    ),
    Mutant(
        "a corrupt replica fetches on before it is released",
        "broker/replicas/replica_fetcher_manager.py",
        " and partition.corruption is None\n",
        "\n",
        f"{B}/replicas/test_healing.py -k fetches_nothing",
    ),
    Mutant(
        "a corrupt leader gives way to a replica that lacks records",
        "controller/replica_faults.py",
        "    target = plan(partition, rules, image.is_active, departed=departed)",
        (
            "    election = plan.__globals__['Election'].UNCLEAN\n"
            "    target = plan(partition, rules, image.is_active, departed=departed, election=election)"
        ),
        "tests/unit/controller/test_replica_faults.py -k alone_in_sync",
    ),
    Mutant(
        "a segment that was replaced while it was read counts as corrupt",
        "broker/replicas/healing.py",
        "if log.is_closed or not is_as_it_was:",
        "if log.is_closed:",
        f"{B}/replicas/test_healing.py -k another_one_by_now",
    ),
    Mutant(
        "the scrub computes no checksums",
        "storage/verification/scrubbing.py",
        "walk(files.manage(piece.path), position, piece.size)",
        "walk(files.manage(piece.path), position, piece.size, check_crc=False)",
        "tests/unit/storage/verification/test_scrubbing.py",
    ),
    Mutant(
        "the scrub reads as fast as it can",
        "broker/replicas/scrub.py",
        "pause_ms = count * SECOND_MS // self._bytes_per_second",
        "pause_ms = 0",
        f"{B}/replicas/test_scrub.py -k rate",
    ),
]
