"""A client program's side of the conversation: a request is one JSON line on stdin, its answer one on stdout.

    request   {"op": NAME, …}
    answer    {"ok": {…}}, or {"error": {"code": the Kafka error code or null, "text": what the client said}}

Bytes travel as base64, null as null.  A record is

    {"key": bytes|null, "value": bytes|null, "headers": [[name, bytes|null], …], "timestamp": ms|null}

with its "offset" too where it was read.  The operations, of which a program offers those its client has:

    produce   topic, partition, records, codec, acks ("all" | "1" | "0"), idempotent, bytes_max -> offsets
    consume   topic, partition, from, count -> records        by assignment; waits until there are so many
    seek      topic, partition, offsets -> records            one consumer, one record after each seek
    times     topic, partition, timestamps -> offsets         null where no record is so late
    bounds    topic, partition -> start, end
    create    topic, partitions, configs         delete     topic           list       -> topics
    describe  topic -> partitions (a count)      grow       topic, partitions
    set_config  topic, name, value               config     topic, name -> value
    brokers   -> ids                             trial      topic: validated and not made
    trim      topic, partition, before -> start  unset_config  topic, name
    broker_config  id, name -> value             set_broker_config  id, name, value
    offsets   topic, partition -> start, end     asked by the administrator, not by a consumer
    elect     topic, partition -> code           the protocol's outcome of electing its preferred leader
    log_dirs  topic -> sizes, by partition       producers  topic, partition -> count
    quorum    -> leader, voters                  features   -> levels, by name
    raise_feature  name, level                   resources  -> topics
    topic_partitions  topic -> partitions (a count)
    transact  id, topic, partition, transactions, group      one producer; each of them has "values", and
                                                             "commit", else it is aborted; with a group also
                                                             "offset", which is sent for that topic
    committed topic, partition, count -> records             read committed, from the start

A program ends when its stdin does.
"""

import base64
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Request = Mapping[str, Any]
Answer = dict[str, Any]
Operation = Callable[[Request], Answer]

TIMEOUT_SECONDS = 30.0


class RefusedError(Exception):
    """The client said no; with the error code of the protocol if it told it."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code


def to_text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def headers_of(record: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    return [(name, to_bytes(value)) for name, value in record["headers"]]


def as_record(
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> Answer:
    return {
        "offset": offset,
        "timestamp": timestamp,
        "key": to_text(key),
        "value": to_text(value),
        "headers": [[name, to_text(content)] for name, content in headers],
    }


def serve(operations: Mapping[str, Operation]) -> None:
    """Answers until stdin ends.  Whatever else is printed goes to stderr, away from the answers."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": operations[request["op"]](request)}
        except RefusedError as refused:
            answer = {"error": {"code": refused.code, "text": str(refused)}}
        except Exception as failed:
            answer = {"error": {"code": None, "text": f"{type(failed).__name__}: {failed}"}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
