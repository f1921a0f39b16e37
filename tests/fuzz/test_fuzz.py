"""A short run of the fuzzer, and proof that it would notice.  The long one: `python -m tests.fuzz`."""

import os
import struct
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.fuzzer import CORPUS, CrashError, Fuzzer
from tests.fuzz.mutation import BYTES_MAX, mutate
from tests.fuzz.targets import Target, all_targets

EXECUTIONS = 2_000_000 if os.environ.get("DLOG_SOAK") else 20_000


def test_whatever_the_bytes_are_readers_read_them_or_refuse_them_in_their_own_words() -> None:
    fuzzer = Fuzzer(all_targets(), seed=7)
    assert fuzzer.load() > 1_000
    fuzzer.run(EXECUTIONS)


def test_the_corpus_has_inputs_for_every_reader_of_records() -> None:
    kept = CORPUS.read_text()
    for target in all_targets():
        if ":" not in target.name and target.name != "codec NONE":
            assert f'"target": "{target.name}"' in kept, target.name


def test_an_error_of_another_kind_is_a_crash_that_names_its_input() -> None:
    target = Target("four bytes", lambda data: struct.unpack(">i", data), (ValueError,), (b"\0\0\0\0",))
    with pytest.raises(CrashError, match=r"four bytes with [0-9a-f]*: error"):
        Fuzzer([target], seed=1).run(1_000)


def test_an_input_that_makes_the_process_grow_is_a_crash() -> None:
    hoard: list[bytes] = []

    def keep(data: bytearray) -> None:
        hoard.append(b"x" * 1_000_000)

    with pytest.raises(CrashError, match="has grown"):
        Fuzzer([Target("hoard", keep, (), (b"",))], seed=1).run(2_000)


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    seen: list[list[bytes]] = [[], []]
    for inputs in seen:
        random = Random(3)
        inputs += [bytes(mutate(b"some bytes to begin with", [b"others"], random)) for _ in range(500)]
    assert seen[0] == seen[1]
    assert len(set(seen[0])) > 400
    assert max(map(len, seen[0])) <= BYTES_MAX
