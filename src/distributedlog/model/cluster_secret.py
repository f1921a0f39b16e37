"""The cluster secret, and how a node proves that it holds it without ever sending it.  Pure.

A file of secrets has one to a line, 32 bytes in base64; empty lines and those that begin with # are nothing.
The first is what a node proves with.  All are accepted, so that one is rotated without a stop: the new one is
added behind the old one on every node, then moved before it on every node, then the old one is removed.

A proof is HMAC-SHA256 over everything that it is to be good for, each part with its length before it:

    "dlog proof 1" | purpose | cluster id | prover | prover's roles | prover's epoch | verifier | nonces

The *purpose* says which kind of connection is meant and which side proves, so that no proof is good for
another kind or is sent back to where it came from.  The *nonces* are drawn for the one connection, by the
verifier at least, so that a proof which was overheard is worth nothing on another.  The *epoch* is a
broker's, where the purpose has one: a broker that was fenced proves nothing with its old one.

From the nonces of a connection both sides make the same *session key*; with it a call on that connection is
signed: HMAC-SHA256 over its method, its number in the session and its bytes.  A number is good once.

What this does not do: hide anything, or keep whoever sits between two nodes from passing on what they say and
changing answers.  That takes TLS.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from distributedlog.model.errors import ConfigError

SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
SECRETS_MAX: Final = 8
SECRET_FILE_BYTES_MAX: Final = 16 * 1024
NO_EPOCH: Final = -1

CONTROL_CLIENT: Final = "control client"
"""Who opened a connection to the control port."""
CONTROL_SERVER: Final = "control server"
"""Who answers on it."""
REPLICA_CLIENT: Final = "replica client"
"""A broker that connects to the port for clients of another one, to fetch as a follower."""
REPLICA_SERVER: Final = "replica server"
"""The broker that it connected to."""

_PROOF: Final = b"dlog proof 1"
_SESSION: Final = b"dlog session 1"
_SIGNATURE: Final = b"dlog call 1"


class ClusterSecrets(NamedTuple):
    """What a file of secrets holds: the first proves, all are accepted."""

    accepted: tuple[bytes, ...]

    @property
    def proving(self) -> bytes:
        return self.accepted[0]

    def __repr__(self) -> str:
        return f"ClusterSecrets({len(self.accepted)} of them)"  # never in a log line


class Claim(NamedTuple):
    """Who proves what to whom."""

    purpose: str
    cluster_id: str
    prover_id: int
    prover_roles: str
    verifier_id: int
    epoch: int = NO_EPOCH


# --- the file ----------------------------------------------------------------------------------


def parse_secrets(text: str, where: str) -> ClusterSecrets:
    """The secrets of a file; ConfigError says what is wrong and never what it read."""
    if len(text) > SECRET_FILE_BYTES_MAX:
        raise ConfigError(f"{where} is too large for a file of cluster secrets")
    lines = [line.strip() for line in text.splitlines()]
    secrets = [_parse(line, where) for line in lines if line and not line.startswith("#")]
    if not secrets:
        raise ConfigError(f"{where} holds no cluster secret")
    if len(secrets) > SECRETS_MAX:
        raise ConfigError(f"{where} holds {len(secrets)} cluster secrets; at most {SECRETS_MAX}")
    return ClusterSecrets(tuple(secrets))


def _parse(line: str, where: str) -> bytes:
    from base64 import b64decode

    try:
        secret = b64decode(line, validate=True)
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise ConfigError(
            f"{where} has a line that is no cluster secret: {SECRET_BYTES} random bytes in base64 are, as "
            "`openssl rand -base64 32` makes them"
        )
    return secret


def spell_secret(secret: bytes) -> str:
    """Spells the secret as a line of the file, with its end."""
    from base64 import b64encode

    return b64encode(secret).decode("ascii") + "\n"


# --- proofs ------------------------------------------------------------------------------------


def prove(secret: bytes, claim: Claim, nonces: Sequence[bytes]) -> bytes:
    return _mac(secret, _PROOF, *_parts(claim), *nonces)


def proving_secret(
    secrets: ClusterSecrets, claim: Claim, nonces: Sequence[bytes], proof: bytes
) -> bytes | None:
    """The secret with which the claim was proved; None: with none that is accepted."""
    from hmac import compare_digest

    found = None
    for secret in secrets.accepted:  # all of them, so that the time tells nothing
        if compare_digest(prove(secret, claim, nonces), proof):
            found = secret
    return found


def session_key(secret: bytes, claim: Claim, nonces: Sequence[bytes]) -> bytes:
    return _mac(secret, _SESSION, *_parts(claim), *nonces)


def sign(key: bytes, method: str, number: int, body: bytes) -> bytes:
    """Signs the call with this number in the session that the key belongs to."""
    return _mac(key, _SIGNATURE, method.encode(), number.to_bytes(8, "big"), body)


def is_signed(key: bytes, method: str, number: int, body: bytes, given: bytes) -> bool:
    from hmac import compare_digest

    return compare_digest(sign(key, method, number, body), given)


def _parts(claim: Claim) -> tuple[bytes, ...]:
    return (
        claim.purpose.encode(),
        claim.cluster_id.encode(),
        str(claim.prover_id).encode(),
        claim.prover_roles.encode(),
        str(claim.epoch).encode(),
        str(claim.verifier_id).encode(),
    )


def _mac(key: bytes, *parts: bytes) -> bytes:
    from hmac import digest

    return digest(key, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256")
