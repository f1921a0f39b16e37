"""A hole in the matrix is seen, and what is missing on a machine is named."""

import os
import subprocess
import sys

from tests.compat.broker.clients import CLIENTS, ROOT
from tests.compat.broker.corpus import corpus_for
from tests.compat.broker.features import ABSENT, CODECS, FEATURES, IN_CORPUS, TIMESTAMPS
from tests.compat.broker.matrix import PROPERTY, Matrix


def cells() -> list[tuple[str, object]]:
    features = [(client, feature, "") for client in CLIENTS for feature in FEATURES]
    crossed = [(reader, writer, codec) for reader in CLIENTS for writer in CLIENTS for codec in CODECS]
    return [(PROPERTY, [*cell, True]) for cell in features + crossed if cell[:2] not in ABSENT]


def test_whatever_is_not_tested_is_a_hole() -> None:
    matrix = Matrix()
    assert not matrix
    matrix.add(cells())
    assert matrix
    assert matrix.holes() == []
    for at in (0, -1):
        lacking = cells()
        lacking.pop(at)
        matrix = Matrix()
        matrix.add(lacking)
        assert len(matrix.holes()) == 1


def test_one_failure_is_not_hidden_by_a_later_success() -> None:
    matrix = Matrix()
    matrix.add([*cells(), (PROPERTY, ["kcat", "seek back and forth", "", False]), *cells()])
    assert [line for line in matrix.lines() if "FAILED" in line] == [
        line for line in matrix.lines() if line.startswith("seek back and forth")
    ]


def test_every_client_writes_every_trait_that_it_offers() -> None:
    for client in CLIENTS:
        written = {entry.trait for entry in corpus_for(client)}
        if any(entry.record["timestamp"] is not None for entry in corpus_for(client)):
            written.add(TIMESTAMPS)
        assert written == {trait for trait in IN_CORPUS if (client, trait) not in ABSENT}


def test_what_cannot_be_installed_is_named() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.compat.broker.install"],
        cwd=ROOT, env={**os.environ, "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.startswith("not found: kcat, node, npm.  Install the Debian packages kcat nodejs npm")
