"""What becomes of a record whose handler failed.  Pure.

    topic --(fails)--> in place, after each of `in_place_ms`
          --(fails)--> delay topic 1 --(fails)--> … --(fails)--> dead-letter topic

A delay topic has one delay for all its records, so that they are due in their order.  In place, the records
of the same key wait, and stay in order; a record in a delay topic is overtaken by later ones of its key.

What happened travels in headers, named as Kafka Streams names those of its dead letters (KIP-1034):

| header                    | value                                                                  |
|---------------------------|------------------------------------------------------------------------|
| `__dlog.errors.topic`     | where the record was first; so are `.partition`, `.offset`, `.timestamp` |
| `__dlog.errors.attempts`  | how often it was handled, in delay topics included                     |
| `__dlog.errors.group`     | the group that failed to                                               |
| `__dlog.errors.exception` | the class of the last error                                            |
| `__dlog.errors.message`   | what that said, cut off after `MESSAGE_CHARACTERS_MAX`                 |
| `__dlog.errors.due`       | in a delay topic: not before this time, in ms since 1970               |

The record's own headers, key and value stay as they were.  Its timestamp is that of the failure: retention
goes by timestamps, and with its first one an old record would be deleted as soon as it is there.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from distributedlog.client.faces.records import ConsumerRecord
from distributedlog.model.errors import ConfigError
from distributedlog.records.record import Header

PREFIX: Final = "__dlog.errors."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
TIMESTAMP: Final = PREFIX + "timestamp"
ATTEMPTS: Final = PREFIX + "attempts"
GROUP: Final = PREFIX + "group"
EXCEPTION: Final = PREFIX + "exception"
MESSAGE: Final = PREFIX + "message"
DUE: Final = PREFIX + "due"
MESSAGE_CHARACTERS_MAX: Final = 1000
NUMBER_DIGITS_MAX: Final = 19
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class DeadLetterError(Exception):
    """Raised by a handler: there is no use in trying again, the record is a dead letter."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    in_place_ms: Sequence[int] = ()
    """The pauses before attempts in place."""
    delays_ms: Sequence[int] = (1_000, 10_000, 60_000)
    """The delay of each delay topic."""
    retry_topic: str = "{topic}.{group}.retry-{number}"
    dead_letter_topic: str = "{topic}.{group}.dead-letters"
    give_up_on: tuple[type[BaseException], ...] = (DeadLetterError,)
    """Errors that no other attempt would change."""

    def __post_init__(self) -> None:
        if any(each < 0 for each in (*self.in_place_ms, *self.delays_ms)):
            raise ConfigError("a delay is not negative")
        if len(self.delays_ms) > 1 and "{number}" not in self.retry_topic:
            raise ConfigError("retry_topic has no {number}: each delay needs a topic of its own")


class Attempts(NamedTuple):
    """What has been tried with a record before it came here."""

    topic: str
    """Where it was first."""
    made: int
    due_ms: int


class Topics(NamedTuple):
    """Where the records of one topic go when their handler fails."""

    delays: tuple[str, ...]
    dead_letters: str


def topics_for(topic: str, group: str, policy: RetryPolicy) -> Topics:
    """Raises ConfigError if a name would be none."""
    delays = tuple(
        policy.retry_topic.format(topic=topic, group=group, number=number)
        for number in range(1, len(policy.delays_ms) + 1)
    )
    found = Topics(delays, policy.dead_letter_topic.format(topic=topic, group=group))
    for each in (*delays, found.dead_letters):
        if not TOPIC_NAME.fullmatch(each):
            raise ConfigError(
                f"{each!r} is no name for a topic: name others by retry_topic and dead_letter_topic"
            )
    return found


def attempts_of(record: ConsumerRecord) -> Attempts:
    """What the headers say; what cannot be read counts as not said."""
    told = {each.key: each.value for each in record.headers if each.key.startswith(PREFIX)}
    topic = told.get(TOPIC) or b""
    return Attempts(
        topic.decode(errors="replace") or record.topic, _number(told.get(ATTEMPTS)), _number(told.get(DUE))
    )


def _number(value: bytes | None) -> int:
    is_number = value is not None and value.isdigit() and len(value) <= NUMBER_DIGITS_MAX
    return int(value) if is_number and value is not None else 0


class Next(NamedTuple):
    """Where a record goes that failed."""

    topic: str
    headers: tuple[Header, ...]
    is_dead: bool


def after_failure(
    record: ConsumerRecord,
    error: BaseException,
    *,
    tries: int,
    group: str,
    topics: Topics,
    policy: RetryPolicy,
    now_ms: int,
) -> Next:
    """`tries` are those that were made here, one after the other."""
    before = attempts_of(record)
    at = topics.delays.index(record.topic) + 1 if record.topic in topics.delays else 0
    is_dead = at >= len(topics.delays) or isinstance(error, policy.give_up_on)
    told = _told_before(record, before) | {
        ATTEMPTS: str(before.made + tries),
        GROUP: group,
        EXCEPTION: class_name(error),
        MESSAGE: str(error)[:MESSAGE_CHARACTERS_MAX],
    }
    if not is_dead:
        told[DUE] = str(now_ms + policy.delays_ms[at])
    headers = (*own_headers(record.headers), *(Header(name, value.encode()) for name, value in told.items()))
    return Next(topics.dead_letters if is_dead else topics.delays[at], headers, is_dead)


def own_headers(headers: Iterable[Header]) -> tuple[Header, ...]:
    """The record's own, without what is told of its attempts."""
    return tuple(each for each in headers if not each.key.startswith(PREFIX))


def _told_before(record: ConsumerRecord, before: Attempts) -> dict[str, str]:
    """Where it was first."""
    names = (PARTITION, OFFSET, TIMESTAMP)
    if before.made:
        told = {each.key: (each.value or b"").decode(errors="replace") for each in record.headers}
        return {TOPIC: before.topic, **{name: told.get(name, "") for name in names}}
    here = (record.partition, record.offset, record.timestamp_ms)
    return {TOPIC: record.topic, **dict(zip(names, map(str, here), strict=True))}


def class_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
