"""Quotas of clients: told and altered.

A quota belongs to an entity: a user, a client id, or both, or an address.  Each part names one, or is the
default of all that have none of their own.  The keys are Kafka's: `producer_byte_rate`, `consumer_byte_rate`,
`request_percentage`, `controller_mutation_rate`; of an address `connection_creation_rate`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from distributedlog.client.admin.changes import ask_controller, outcome
from distributedlog.client.errors import check_response
from distributedlog.client.metadata import Cluster
from distributedlog.model.errors import DlogError
from distributedlog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from distributedlog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class QuotaMatch(IntEnum):
    """How a component of a filter is met, as Kafka numbers it."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaComponent(NamedTuple):
    """A condition: the entity has this type, and the name, or is the default, or has any name."""

    entity_type: str
    match: QuotaMatch = QuotaMatch.ANY
    name: str | None = None


class QuotaEntity(NamedTuple):
    """Whom a quota is for.  In each part None: nobody is named; "": all that have no quota of their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> dict[str, str | None]:
        """Returns the parts by type; the name None is the default, as on the wire."""
        named = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {kind: name or None for kind, name in named.items() if name is not None}

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> "QuotaEntity":
        return cls(*(parts[each] or "" if each in parts else None for each in (USER, CLIENT_ID, IP)))

    def __str__(self) -> str:
        return " ".join(f"{kind}={name or '<default>'}" for kind, name in self.parts().items()) or "nobody"


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What is to become of one entity's quotas: limits by key, None to remove one."""

    entity: QuotaEntity
    limits: Mapping[str, float | None] = field(default_factory=dict)


async def describe_quotas(
    cluster: Cluster, components: Sequence[QuotaComponent] = (), *, strict: bool = False
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of those that meet all components; if `strict`, of those that have no other parts."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=each.entity_type, match_type=each.match, match=each.name)
            for each in components
        ],
        strict=strict,
    )

    async def attempt() -> dict[QuotaEntity, dict[str, float]]:
        connection = await cluster.any_connection()
        response = await cluster.call(connection, request, DescribeClientQuotasResponse)
        check_response(response.error_code, "the quotas", response.error_message)
        return {
            QuotaEntity.of({each.entity_type: each.entity_name for each in entry.entity}): {
                each.key: each.value for each in entry.values
            }
            for entry in response.entries or ()
        }

    return await cluster.retrying(attempt)


async def alter_quotas(
    cluster: Cluster, changes: Sequence[QuotaChange], *, validate_only: bool = False
) -> dict[QuotaEntity, DlogError | None]:
    """Returns what became of each entity: None if all of its change was made, or the reason why none was."""
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=k, entity_name=v) for k, v in each.entity.parts().items()],
                ops=[
                    OpData(key=key, value=limit or 0.0, remove=limit is None)
                    for key, limit in each.limits.items()
                ],
            )
            for each in changes
        ],
        validate_only=validate_only,
    )
    response = await ask_controller(
        cluster,
        request,
        AlterClientQuotasResponse,
        lambda response: (each.error_code for each in response.entries),
    )
    outcomes = {}
    for entry in response.entries:
        entity = QuotaEntity.of({each.entity_type: each.entity_name for each in entry.entity})
        outcomes[entity] = outcome(entry.error_code, f"the quotas of {entity}", entry.error_message)
    return outcomes
