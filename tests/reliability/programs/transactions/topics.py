"""The topics of transactional clients: mixers write to the input, transformers to what belongs to it."""


def output_of(topic: str) -> str:
    return f"{topic}-booked"


def group_of(topic: str) -> str:
    """The group in whose name transformers commit."""
    return f"{topic}-bookers"


def made_of(value: str) -> str:
    """The record of the input that one of the output is the function of."""
    return value.partition(":")[2]
