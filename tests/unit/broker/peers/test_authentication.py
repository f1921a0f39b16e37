"""A broker is believed with the secret of this cluster, in its present epoch, and on one connection."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributedlog.broker.peers.authentication import BrokerIdentity, Prover, SecretHolder, Verifier
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.model.errors import SaslAuthenticationError

SECRET, OTHER_SECRET = bytes(range(32)), bytes(range(1, 33))
FOLLOWER, LEADER, EPOCH = 2, 1, 40


def holder(broker_id: int, *secrets: bytes, cluster: str = "cluster") -> SecretHolder:
    return SecretHolder(cluster, broker_id, lambda: ClusterSecrets(secrets or (SECRET,)), os.urandom)


def verifier(*secrets: bytes, epoch: int | None = EPOCH) -> Verifier:
    registered = {} if epoch is None else {FOLLOWER: epoch}
    return Verifier(holder(LEADER, *secrets), registered.get)


def prover(
    *secrets: bytes, cluster: str = "cluster", epoch: int = EPOCH, verifier_id: int = LEADER
) -> Prover:
    return Prover(holder(FOLLOWER, *secrets, cluster=cluster), epoch, verifier_id)


def exchange(one: Prover, other: Verifier) -> BrokerIdentity | None:
    assert other.authenticate(one.answer(other.authenticate(one.begin()))) == b""
    return other.identity


def test_the_secret_proves_who_it_is() -> None:
    assert exchange(prover(), verifier()) == (FOLLOWER, EPOCH)


def test_both_of_two_secrets_are_accepted_while_one_is_rotated() -> None:
    with pytest.raises(
        SaslAuthenticationError
    ):  # the follower does not know the one that the leader proves with
        exchange(prover(SECRET), verifier(OTHER_SECRET, SECRET))
    assert exchange(prover(SECRET, OTHER_SECRET), verifier(OTHER_SECRET, SECRET)) == (FOLLOWER, EPOCH)


def test_another_secret_another_cluster_or_another_leader_proves_nothing() -> None:
    for one in (prover(OTHER_SECRET), prover(cluster="other"), prover(verifier_id=3)):
        with pytest.raises(SaslAuthenticationError):
            exchange(one, verifier())


@pytest.mark.parametrize("registered", [None, EPOCH - 1, EPOCH + 1])
def test_an_epoch_that_is_not_the_present_one_is_refused(registered: int | None) -> None:
    with pytest.raises(SaslAuthenticationError, match="registered"):
        exchange(prover(), verifier(epoch=registered))


def test_who_registers_anew_during_the_exchange_is_refused() -> None:
    epochs = {FOLLOWER: EPOCH}
    other = Verifier(holder(LEADER), epochs.get)
    one = prover()
    challenge = other.authenticate(one.begin())
    epochs[FOLLOWER] += 1
    with pytest.raises(SaslAuthenticationError, match="registered"):
        other.authenticate(one.answer(challenge))
    assert other.identity is None


def test_what_was_overheard_is_good_for_no_other_connection() -> None:
    one, first = prover(), verifier()
    proof = one.answer(first.authenticate(one.begin()))
    second = verifier()
    second.authenticate(one.begin())
    with pytest.raises(SaslAuthenticationError):
        second.authenticate(proof)


def test_a_proof_is_not_good_for_the_other_direction() -> None:
    """A leader's own proof, sent back to it."""
    other = verifier()
    challenge = other.authenticate(prover().begin())
    with pytest.raises(SaslAuthenticationError):
        other.authenticate(challenge[-32:])


def test_an_exchange_that_failed_or_ended_takes_no_more_tokens() -> None:
    failed, ended, one = verifier(), verifier(), prover()
    with pytest.raises(SaslAuthenticationError):
        failed.authenticate(b"nonsense")
    with pytest.raises(SaslAuthenticationError, match="over"):
        failed.authenticate(one.begin())
    assert exchange(one, ended) is not None
    with pytest.raises(SaslAuthenticationError, match="over"):
        ended.authenticate(one.begin())


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else_happens(token: bytes) -> None:
    other = verifier()
    with pytest.raises(SaslAuthenticationError):
        other.authenticate(token)
    assert other.identity is None
    with pytest.raises(SaslAuthenticationError):
        prover().answer(token)
