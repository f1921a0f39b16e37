"""How a broker proves to another one, on a connection to its port for clients, which broker it is.  Pure.

Kafka's own way to authenticate a connection is SASL, and this is one more mechanism of it:

    SaslHandshake      mechanism DLOG-CLUSTER-SECRET
    SaslAuthenticate   ──►  version, broker id, broker epoch, nonce
                       ◄──  broker id, nonce, proof               the verifier proves first
    SaslAuthenticate   ──►  proof
                       ◄──  nothing: the connection is that broker's, for as long as it stands

A proof is an HMAC of the cluster secret over both ids, the epoch and both nonces (`model/cluster_secret`).
The secret is never sent, and what was overheard is good for no other connection.

The epoch must be the one that the verifier's metadata has for that broker: a process that was replaced proves
nothing.  Where the metadata is behind (a broker that registered a moment ago), or the claim is stale, is not
told apart: the broker connects again.

Only one exchange is made on a connection.  Whatever is wrong ends it: SASL_AUTHENTICATION_FAILED, and the
next token is refused too.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.model.cluster_secret import (
    NONCE_BYTES,
    PROOF_BYTES,
    REPLICA_CLIENT,
    REPLICA_SERVER,
    Claim,
    ClusterSecrets,
    prove,
    proving_secret,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import SaslAuthenticationError

MECHANISM: Final = "DLOG-CLUSTER-SECRET"
VERSION: Final = 1
ROLES: Final = "broker"
PROVE_ANEW: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""The responses of a broker that believes the proof of a connection no more: another one is made."""

_HELLO: Final = struct.Struct(f">Biq{NONCE_BYTES}s")
_CHALLENGE: Final = struct.Struct(f">i{NONCE_BYTES}s{PROOF_BYTES}s")


class BrokerIdentity(NamedTuple):
    """A broker in one of its lives."""

    broker_id: int
    epoch: int


class SecretHolder(NamedTuple):
    """A broker that can prove, and verify."""

    cluster_id: str
    broker_id: int
    secrets: Callable[[], ClusterSecrets]
    draw: Callable[[int], bytes]
    """Draws that many bytes which nobody can guess."""


class Prover:
    """The side that connects."""

    def __init__(self, holder: SecretHolder, epoch: int, verifier_id: int) -> None:
        self._holder = holder
        self._identity = BrokerIdentity(holder.broker_id, epoch)
        self._verifier_id = verifier_id
        self._nonce = holder.draw(NONCE_BYTES)

    def begin(self) -> bytes:
        return _HELLO.pack(VERSION, *self._identity, self._nonce)

    def answer(self, challenge: bytes) -> bytes:
        """Makes the proof, once the other side has proved that it is the broker that was meant."""
        if len(challenge) != _CHALLENGE.size:
            raise SaslAuthenticationError("what the broker answered is no challenge")
        verifier_id, nonce, proof = _CHALLENGE.unpack(challenge)
        nonces = (self._nonce, nonce)
        claim = _claim_of_verifier(self._holder.cluster_id, self._identity, self._verifier_id)
        if verifier_id != self._verifier_id or not proving_secret(
            self._holder.secrets(), claim, nonces, proof
        ):
            raise SaslAuthenticationError(
                f"the one that answers there did not prove that it is broker {self._verifier_id}"
            )
        own = _claim_of_prover(self._holder.cluster_id, self._identity, self._verifier_id)
        return prove(self._holder.secrets().proving, own, nonces)


class Verifier:
    """The side that is connected to.  `authenticate` is called with each token."""

    def __init__(self, holder: SecretHolder, current_epoch: Callable[[int], int | None]) -> None:
        """`current_epoch` finds the epoch of a broker in the metadata; None: it is not registered."""
        self._holder = holder
        self._current_epoch = current_epoch
        self._nonce = holder.draw(NONCE_BYTES)
        self._hello: tuple[BrokerIdentity, bytes] | None = None
        self._is_over = False
        self.identity: BrokerIdentity | None = None
        """The broker at the other end, once it is proved."""

    def authenticate(self, token: bytes) -> bytes:
        """Returns what to answer; SaslAuthenticationError ends the exchange."""
        if self._is_over:
            raise SaslAuthenticationError("the exchange on this connection is over")
        try:
            if self._hello is None:
                return self._challenge(token)
            self._verify(*self._hello, token)
        except SaslAuthenticationError:
            self._is_over = True
            raise
        self._is_over = True
        return b""

    def _challenge(self, token: bytes) -> bytes:
        if len(token) != _HELLO.size or token[0] != VERSION:
            raise SaslAuthenticationError(f"this is no first token of {MECHANISM}, version {VERSION}")
        _, broker_id, epoch, nonce = _HELLO.unpack(token)
        identity = BrokerIdentity(broker_id, epoch)
        own_id = self._holder.broker_id
        if broker_id == own_id:
            raise SaslAuthenticationError(f"broker {own_id} is here")
        self._hello = identity, nonce
        claim = _claim_of_verifier(self._holder.cluster_id, identity, own_id)
        proof = prove(self._holder.secrets().proving, claim, (nonce, self._nonce))
        return _CHALLENGE.pack(own_id, self._nonce, proof)

    def _verify(self, identity: BrokerIdentity, nonce: bytes, proof: bytes) -> None:
        claim = _claim_of_prover(self._holder.cluster_id, identity, self._holder.broker_id)
        if not proving_secret(self._holder.secrets(), claim, (nonce, self._nonce), proof):
            raise SaslAuthenticationError(f"nothing proves that this is broker {identity.broker_id}")
        if self._current_epoch(identity.broker_id) != identity.epoch:
            raise SaslAuthenticationError(
                f"no broker {identity.broker_id} of epoch {identity.epoch} is registered"
            )
        self.identity = identity


def _claim_of_prover(cluster_id: str, prover: BrokerIdentity, verifier_id: int) -> Claim:
    return Claim(REPLICA_CLIENT, cluster_id, prover.broker_id, ROLES, verifier_id, prover.epoch)


def _claim_of_verifier(cluster_id: str, prover: BrokerIdentity, verifier_id: int) -> Claim:
    return Claim(REPLICA_SERVER, cluster_id, verifier_id, ROLES, prover.broker_id, prover.epoch)
