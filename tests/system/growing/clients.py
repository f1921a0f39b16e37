"""A producer and a consumer beside what is done to a cluster: every record once, in order, and no error."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.system.replication.stage import PATIENCE_SECONDS, PRODUCER_SETTINGS, wait_until

PAUSE_SECONDS = 0.01


class Clients:
    """A context manager: both work on partition 0 of a topic until it is left; `check` judges it."""

    def __init__(self, bootstrap: str, topic: str, value_bytes: int = 100) -> None:
        self._bootstrap, self._topic, self._padding = bootstrap, topic, b"." * value_bytes
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        self.sent = 0
        self.read: list[int] = []
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        self.get_on()
        return self

    def get_on(self) -> None:
        """Waits until records that are sent from now on have been read."""
        now = self.sent
        wait_until(lambda: bool(self.failures) or len(self.read) > now + 10, "records are sent and read")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for each in self._threads:
            each.join()

    def check(self) -> None:
        """Call it when the clients have stopped."""
        assert self.failures == []
        assert self.read == list(range(self.sent)), "each once, in order"

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, **PRODUCER_SETTINGS})
        while not self._stopping.wait(PAUSE_SECONDS):
            value = b"%08d" % self.sent + self._padding
            producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self.sent += 1
            producer.poll(0)
        if producer.flush(PATIENCE_SECONDS) != 0:
            self.failures.append("records were not acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(f"produce: {error}")

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": f"{self._topic}-readers"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        try:
            self._read_until(consumer, self._stopping.is_set)
            producing = self._threads[0]
            producing.join()
            self._read_until(consumer, lambda: len(self.read) >= self.sent)
        finally:
            consumer.close()

    def _read_until(self, consumer: Consumer, is_over: Callable[[], bool]) -> None:
        silent = 0.0
        while not is_over() and silent < PATIENCE_SECONDS:
            message = consumer.poll(0.2)
            silent = silent + 0.2 if message is None else 0.0
            if message is not None and message.error() is None:
                self.read.append(int((message.value() or b"")[:8]))
            elif message is not None:
                self.failures.append(f"consume: {message.error()}")
