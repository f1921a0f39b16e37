"""Clients under load as processes, their journals gathered as they come; and the final read."""

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.reliability.history import History, Outcome, Place, Seen
from tests.reliability.journal import Gathered
from tests.reliability.programs.values import from_bytes

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 90.0


class Load:
    """A context manager.  What the clients tell is taken in by whoever waits for something."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, directory: Path) -> None:
        self.gathered = Gathered()
        self._where = [bootstrap, topic, str(partitions)]
        self._directory = directory
        self.environment: Mapping[str, str] | None = None
        """The environment of clients that are started; None: that of this process."""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._clients: dict[str, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._open = 0

    def start(self, program: str, name: str, topic: str | None = None) -> None:
        """Starts a client, on a topic of its own if there is one."""
        bootstrap, usual, partitions = self._where
        arguments = (bootstrap, topic or usual, partitions, name)
        with (self._directory / f"{name}.err").open("ab") as errors:
            client = subprocess.Popen(
                [sys.executable, "-m", f"tests.reliability.programs.{program}", *arguments],
                cwd=ROOT, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip
        self._clients[name] = client
        self._open += 1
        reader = threading.Thread(target=self._read, args=(client,), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, client: "subprocess.Popen[str]") -> None:
        assert client.stdout is not None
        for line in client.stdout:
            if line.endswith("\n"):
                self._lines.put(line)
        self._lines.put(None)

    def next_told(self, deadline: float) -> dict[str, Any]:
        line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
        assert line is not None, f"a client ended: {self._ended()}"
        return self.gathered.add(line)

    def wait_for(self, acks: int, clients: Iterable[str] = ()) -> int:
        """Until after now so many sends were acknowledged, and each of these clients got on.

        When the first was acknowledged, in nanoseconds."""
        now_ns, acks_ns, waited = time.monotonic_ns(), list[int](), set(clients)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(acks_ns) < acks or waited:
            told = self.next_told(deadline)
            acknowledged = told["did"] == "sent" and told["outcome"] == Outcome.OK
            if (acknowledged or told["did"] == "poll") and told["at"] > now_ns:
                waited.discard(told["process"])
                acks_ns += [told["at"]] if acknowledged else []
        return min(acks_ns)

    def stop(self) -> History:
        """All are told to stop, and end well; what they told."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for client in self._clients.values():
            assert client.stdin is not None
            client.stdin.close()
        while self._open:
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            if line is None:
                self._open -= 1
            else:
                self.gathered.add(line)
        assert self._ended() == dict.fromkeys(self._clients, (0, ""))
        return self.gathered.history()

    def _ended(self) -> dict[str, tuple[int, str]]:
        """Exit codes, and what was said."""
        ended = {}
        for name, client in self._clients.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended[name] = client.wait(1), (self._directory / f"{name}.err").read_text()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            if client.poll() is None:
                client.kill()
                client.wait()
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
        for client in self._clients.values():
            for stream in (client.stdin, client.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def final_read(bootstrap: str, topic: str, partitions: int) -> dict[Place, list[Seen]]:
    """Reads with a fresh client, from the start to the end that the broker reports."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "final",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # no message comes for markers at the end
        }
    )
    places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    ends = {}
    for place in places:
        bounds = consumer.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS, cached=False)
        assert bounds is not None
        ends[place.partition] = bounds[1]
    consumer.assign(places)
    final: dict[Place, list[Seen]] = {Place(topic, partition): [] for partition in range(partitions)}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    reached = dict.fromkeys(range(partitions), 0)
    while any(reached[partition] < end for partition, end in ends.items()):
        assert time.monotonic() < deadline, f"it reads no further than {reached} of {ends}"
        for message in consumer.consume(1000, 1.0):
            error, partition, offset, value = (
                message.error(), message.partition(), message.offset(), message.value()
            )  # fmt: skip
            assert partition is not None
            assert offset is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                reached[partition] = offset
                continue
            reached[partition] = offset + 1
            final[Place(topic, partition)].append(Seen(offset, from_bytes(value or b"")))
    consumer.close()
    return final
