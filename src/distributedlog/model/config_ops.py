"""What may be done to one setting of a resource."""

from enum import IntEnum


class ConfigOp(IntEnum):
    """The operations on a setting, as Kafka numbers them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
