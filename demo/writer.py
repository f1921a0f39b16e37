"""The process that is killed: appends orders and tells, after each append, what was acknowledged.

Started by the demo as `python -m demo.writer DIR FIRST_ORDER`.  Each line it prints is a promise: these
orders are on the disk.
"""

import json
import random
import sys

from distributedlog import Log, Record

ORDERS_PER_APPEND = 50
CITIES = ("Lisbon", "Kyoto", "Nairobi", "Bergen", "Quito", "Perth")


def order(number: int, chance: random.Random) -> Record:
    body = {"order": number, "city": chance.choice(CITIES), "cents": chance.randint(199, 99_999)}
    return Record(json.dumps(body).encode(), key=f"customer-{chance.randrange(500)}".encode())


def main() -> None:
    directory, number = sys.argv[1], int(sys.argv[2])
    chance = random.Random(number)
    with Log.open(directory, topic="orders") as log:
        while True:
            offsets = log.append_many(order(number + i, chance) for i in range(ORDERS_PER_APPEND))
            print(number, offsets.start, offsets.stop, flush=True)
            number += ORDERS_PER_APPEND


if __name__ == "__main__":
    main()
