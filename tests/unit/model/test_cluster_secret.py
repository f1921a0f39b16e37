"""Proofs are good for what they were made for and for nothing else; a file of secrets is read or refused."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.model.cluster_secret import (
    CONTROL_CLIENT,
    CONTROL_SERVER,
    REPLICA_CLIENT,
    SECRETS_MAX,
    Claim,
    ClusterSecrets,
    is_signed,
    parse_secrets,
    prove,
    proving_secret,
    session_key,
    sign,
    spell_secret,
)
from distributedlog.model.errors import ConfigError

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
CLAIM = Claim(CONTROL_CLIENT, "cluster", 1, "broker,controller", 2)
NONCES = (b"a" * 32, b"b" * 32)


def test_a_proof_is_an_hmac_over_all_parts_with_their_lengths() -> None:
    parts = [
        b"dlog proof 1", b"control client", b"cluster", b"1", b"broker,controller", b"-1", b"2", *NONCES,
    ]  # fmt: skip
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert prove(OLD, CLAIM, NONCES) == hmac.new(OLD, message, hashlib.sha256).digest()


@pytest.mark.parametrize(
    "other",
    [
        CLAIM._replace(purpose=CONTROL_SERVER),
        CLAIM._replace(purpose=REPLICA_CLIENT),
        CLAIM._replace(cluster_id="cluster-2"),
        CLAIM._replace(prover_id=3),
        CLAIM._replace(prover_id=2, verifier_id=1),
        CLAIM._replace(prover_roles="controller"),
        CLAIM._replace(verifier_id=3),
        CLAIM._replace(epoch=7),
        CLAIM._replace(cluster_id="cluster1", prover_id=1),
    ],
)
def test_a_proof_is_good_for_one_claim(other: Claim) -> None:
    proof = prove(OLD, CLAIM, NONCES)
    secrets = ClusterSecrets((OLD,))
    assert proving_secret(secrets, CLAIM, NONCES, proof) == OLD
    assert proving_secret(secrets, other, NONCES, proof) is None


def test_a_proof_is_good_for_one_connection() -> None:
    proof = prove(OLD, CLAIM, NONCES)
    secrets = ClusterSecrets((OLD,))
    for nonces in (
        (NONCES[0], b"c" * 32),
        (b"c" * 32, NONCES[1]),
        NONCES[::-1],
        NONCES[:1],
        (b"".join(NONCES),),
    ):
        assert proving_secret(secrets, CLAIM, nonces, proof) is None


def test_of_two_secrets_the_first_proves_and_both_are_accepted() -> None:
    """It is as during a rotation: some nodes prove with the old one, some with the new one."""
    before, after = ClusterSecrets((OLD, NEW)), ClusterSecrets((NEW, OLD))
    for prover in (before, after):
        for verifier in (before, after):
            proof = prove(prover.proving, CLAIM, NONCES)
            assert proving_secret(verifier, CLAIM, NONCES, proof) == prover.proving
    assert proving_secret(ClusterSecrets((NEW,)), CLAIM, NONCES, prove(OLD, CLAIM, NONCES)) is None
    assert proving_secret(before, CLAIM, NONCES, prove(OTHER, CLAIM, NONCES)) is None


@given(st.binary(max_size=100))
def test_what_is_no_proof_proves_nothing(proof: bytes) -> None:
    assert proving_secret(ClusterSecrets((OLD, NEW)), CLAIM, NONCES, proof) is None


def test_a_signature_is_good_for_one_call() -> None:
    key = session_key(OLD, CLAIM, NONCES)
    assert key != prove(OLD, CLAIM, NONCES)
    signed = sign(key, "/a/B", 1, b"body")
    assert is_signed(key, "/a/B", 1, b"body", signed)
    others = [("/a/C", 1, b"body"), ("/a/B", 2, b"body"), ("/a/B", 1, b"bodY"), ("/a/B", 1, b"")]
    assert not any(is_signed(key, *other, signed) for other in others)
    assert not is_signed(session_key(NEW, CLAIM, NONCES), "/a/B", 1, b"body", signed)


def test_a_file_is_read_as_it_is_written() -> None:
    text = "# rotated in May\n" + spell_secret(NEW) + "\n  " + spell_secret(OLD)
    secrets = parse_secrets(text, "file")
    assert secrets.accepted == (NEW, OLD)
    assert secrets.proving == NEW


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no cluster secret"),
        ("# nothing\n\n", "holds no cluster secret"),
        ("short\n", "no cluster secret: 32 random bytes"),
        ("pass word!\n", "no cluster secret: 32 random bytes"),
        (spell_secret(b"s" * 31), "no cluster secret: 32 random bytes"),
        (spell_secret(OLD) + "typo\n", "no cluster secret: 32 random bytes"),
        (spell_secret(OLD) * (SECRETS_MAX + 1), f"at most {SECRETS_MAX}"),
        ("x" * 100_000, "too large"),
    ],
)
def test_what_is_no_file_of_secrets_is_refused_and_not_repeated(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        parse_secrets(text, "file")
    words = [word for word in text.split() if len(word) > 3 and word != "nothing"]
    assert not any(word in str(refused.value) for word in words)


def test_secrets_do_not_show_in_what_is_printed() -> None:
    assert "ooo" not in repr(ClusterSecrets((OLD,)))
    assert "ooo" not in f"{ClusterSecrets((OLD,))}"
