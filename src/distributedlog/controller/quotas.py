"""Quotas of clients: whose they are, and which changes are allowed.

An entity is whom a quota is for: a user, a client id, or both.  Each part has a name, or is the default of
all that have none of their own (the name is None then).  Which entity counts for a client is for brokers to
find out (`broker/quotas/client_quotas`); here they are only kept.

| key                      | a number of                                                        |
|--------------------------|--------------------------------------------------------------------|
| producer_byte_rate       | bytes in a second that it may produce; whole                       |
| consumer_byte_rate       | bytes in a second that it may fetch; whole                         |
| request_percentage       | hundredths of one thread's time that its requests may take         |
| controller_mutation_rate | partitions in a second that it may have created or deleted         |

Each is above 0.  Entities of a request stand for themselves: what is wrong with one refuses that one, whole.
Quotas of addresses (`ip`) are not kept: nothing here would enforce them.  There are at most ENTITIES_MAX
entities, of which the machine takes care.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Final, NamedTuple

from distributedlog.controller.features import LEVEL_QUOTAS, has_quotas
from distributedlog.controller.image import MetadataImage, QuotaEntity
from distributedlog.controller.records import ClientQuotaChanged, QuotaEntityPart
from distributedlog.model.errors import InvalidRequestError, UnsupportedVersionError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
WHOLE_KEYS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE})

NAME_LENGTH_MAX: Final = 500
"""The longest name, so that a bundle of a snapshot holds a thousand of the longest."""
ENTITIES_MAX: Final = 10_000
"""The entities with quotas: every node keeps all of them in memory."""
LIMIT_MAX: Final = float(2**63 - 1)


class QuotaEdit(NamedTuple):
    """A key gets a limit, or loses it (None)."""

    key: str
    limit: float | None


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Makes an entity of parts in any order.  Raises what is wrong with them."""
    found: dict[str, str | None] = {}
    for kind, name in parts:
        if kind == IP:
            raise InvalidRequestError("quotas of addresses are not kept here: name a user or a client id")
        if kind not in (USER, CLIENT_ID):
            raise InvalidRequestError(f"{kind[:80]!r} is no type of entity: {USER} and {CLIENT_ID} are")
        if kind in found:
            raise InvalidRequestError(f"an entity has two parts of the type {kind}")
        if name is not None and not 0 < len(name) <= NAME_LENGTH_MAX:
            raise InvalidRequestError(f"a {kind} has 1 to {NAME_LENGTH_MAX} characters, not {len(name)}")
        found[kind] = name
    if not found:
        raise InvalidRequestError("an entity has no part: name a user, a client id, or both")
    return tuple(sorted(found.items()))


def edit_quotas(
    image: MetadataImage, entity: QuotaEntity, edits: Iterable[QuotaEdit]
) -> list[ClientQuotaChanged]:
    """The records that change what is different; raises if one of the edits cannot be."""
    if not has_quotas(image.level):
        raise UnsupportedVersionError(
            f"the cluster is at level {image.level}, quotas need {LEVEL_QUOTAS}: raise it first"
        )
    before = image.quotas.get(entity)
    given: set[str] = set()
    records = []
    for key, limit in edits:
        if key in given:
            raise InvalidRequestError(f"the quota {key!r} is changed twice")
        given.add(key)
        known = None if before is None else before.get(key)
        if limit is not None:
            _check(key, limit)
        elif key not in KEYS:
            raise InvalidRequestError(f"there is no quota {key[:80]!r}")
        if known != limit:
            records.append(_record(entity, key, limit))
    return records


def _check(key: str, limit: float) -> None:
    if key not in KEYS:
        raise InvalidRequestError(f"there is no quota {key[:80]!r}: there are {', '.join(KEYS)}")
    if not isfinite(limit) or not 0 < limit <= LIMIT_MAX:
        raise InvalidRequestError(f"the quota {key} cannot be {limit}: it is a number above 0")
    if key in WHOLE_KEYS and not limit.is_integer():
        raise InvalidRequestError(f"the quota {key} cannot be {limit}: it is a whole number of bytes")


def _record(entity: QuotaEntity, key: str, limit: float | None) -> ClientQuotaChanged:
    parts = [QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaChanged(entity=parts, key=key, value=limit or 0.0, remove=limit is None)


def quota_records(quotas: Iterable[tuple[QuotaEntity, Mapping[str, float]]]) -> Iterator[ClientQuotaChanged]:
    """The records that make these quotas, always in the same order."""
    for entity, limits in sorted(quotas, key=lambda each: sorting_key(each[0])):
        for key, limit in sorted(limits.items()):
            yield _record(entity, key, limit)


def sorting_key(entity: QuotaEntity) -> tuple[tuple[str, bool, str], ...]:
    return tuple((kind, name is not None, name or "") for kind, name in entity)
