"""Our own consumer with a fixed assignment, from the start: BOOTSTRAP TOPIC PARTITIONS NAME.

After every few polls it asks for the latest offset of each partition.  An offset out of range is what it may
never meet: it exits with 1 then.
"""

import sys
import time
from collections import defaultdict

from distributedlog import Consumer, DlogError, OffsetOutOfRangeError, TopicPartition
from tests.reliability.history import LATEST, Place, Seen
from tests.reliability.journal import Journal
from tests.reliability.programs.calm import note_error
from tests.reliability.programs.stopping import stopping
from tests.reliability.programs.values import from_bytes

POLL_MS = 200
POLLS_PER_QUESTION = 3


def main() -> None:
    bootstrap, topic, partitions, name = sys.argv[1:]
    places = [TopicPartition(topic, partition) for partition in range(int(partitions))]
    journal, stop, polls = Journal(name), stopping(), 0
    with Consumer(bootstrap, auto_offset_reset="none", request_timeout_ms=5_000) as consumer:
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        while not stop.is_set():
            invoked_ns = time.monotonic_ns()
            try:
                polled = consumer.poll(POLL_MS)
            except OffsetOutOfRangeError as error:
                sys.exit(str(error))
            except DlogError as error:  # nobody to ask just now
                journal.met_exception("poll", error)
                note_error(error)
                continue
            records: dict[Place, list[Seen]] = defaultdict(list)
            for record in polled:
                seen = Seen(record.offset, from_bytes(record.value or b""))
                records[Place(record.topic, record.partition)].append(seen)
            for at, found in records.items():
                journal.poll(at, 1, found, invoked_ns)
            polls += 1
            if polls % POLLS_PER_QUESTION == 0:
                invoked_ns = time.monotonic_ns()
                try:
                    ends = consumer.end_offsets(places)
                except DlogError as error:
                    journal.met_exception("latest offset", error)
                    note_error(error)
                    continue
                for asked, end in ends.items():
                    journal.told(Place(asked.topic, asked.partition), LATEST, end, invoked_ns)


if __name__ == "__main__":
    main()
