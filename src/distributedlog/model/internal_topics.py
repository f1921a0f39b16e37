"""Which topics are internal, by Kafka's names."""

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
"""Kept by coordinators.  They are made by these alone, since nobody else knows how they must be set up."""
METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name for the metadata log, which is no topic: nobody may create one of that name."""
