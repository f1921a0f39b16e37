"""aiokafka's idempotent producer with acks=all: BOOTSTRAP TOPIC PARTITIONS NAME.

With DLOG_LOAD_ACKS=1 in the environment it is neither: it believes the leader alone.
As many senders as may be under way; each sends one record after the other, to a partition of its own turn.
"""

import asyncio
import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from tests.reliability.history import Outcome, Place
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import PAUSE_SECONDS, stopping
from tests.reliability.programs.values import as_bytes, values_of

UNDER_WAY_MAX = 10
TIMEOUT_MS = 60_000


class Sender:
    """A producer that several send with.  aiokafka's fails each send for good once its own task has ended:
    then there is another, as if the process had been started anew."""

    def __init__(self, bootstrap: str, journal: Journal) -> None:
        self.bootstrap = bootstrap
        self.journal = journal
        self.producer = self.new_producer()
        self.beginning_again = asyncio.Lock()

    def new_producer(self) -> AIOKafkaProducer:
        is_safe = os.environ.get("DLOG_LOAD_ACKS", "all") == "all"
        return AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=is_safe,
            acks="all" if is_safe else 1,
            linger_ms=2,
            request_timeout_ms=TIMEOUT_MS,
            retry_backoff_ms=50,
        )

    async def send_one(self, place: Place, value: str) -> None:
        producer = self.producer
        self.journal.send(place, value)
        try:
            answer = await producer.send_and_wait(place.topic, as_bytes(value), partition=place.partition)
        except MessageSizeTooLargeError:
            self.journal.sent(value, Outcome.FAIL)
        except KafkaError as error:
            self.journal.sent(value, Outcome.UNKNOWN)
            self.journal.met_exception("send", error)
            await self.begin_again_after(producer)
        else:
            self.journal.sent(value, Outcome.OK, answer.offset)

    async def begin_again_after(self, ended: AIOKafkaProducer) -> None:
        async with self.beginning_again:
            task = ended._sender.sender_task
            if self.producer is not ended or task is None or not task.done():
                return
            if not task.cancelled() and (error := task.exception()) is not None:
                traceback.print_exception(error)
                self.journal.met("the sender's task", type(error.__cause__ or error).__name__, None)
            with contextlib.suppress(KafkaError):
                await ended.stop()
            while self.producer is ended:
                another = self.new_producer()
                try:
                    await another.start()
                except KafkaError:  # nobody to ask just now
                    await another.stop()
                    await asyncio.sleep(PAUSE_SECONDS * UNDER_WAY_MAX)
                else:
                    self.producer = another


async def produce(bootstrap: str, values: Iterator[tuple[Place, str]], journal: Journal) -> None:
    stop = stopping()
    sender = Sender(bootstrap, journal)

    async def send_on() -> None:
        while not stop.is_set():
            place, value = next(values)
            await sender.send_one(place, value)
            await asyncio.sleep(PAUSE_SECONDS * UNDER_WAY_MAX)

    await sender.producer.start()
    try:
        async with asyncio.TaskGroup() as senders:
            for _ in range(UNDER_WAY_MAX):
                senders.create_task(send_on())
    finally:
        await sender.producer.stop()


def main() -> None:
    logging.disable(logging.CRITICAL)  # that the broker is gone now and then is why this program is run
    bootstrap, topic, partitions, name = sys.argv[1:]
    asyncio.run(produce(bootstrap, values_of(name, topic, int(partitions)), Journal(name)))


if __name__ == "__main__":
    main()
