"""A driver of an exactly-once sink as a process of its own: `python -m … BOOTSTRAP QUERY TOPIC`.

It plays one batch, and before it writes the last row and ends the batch it waits for a line on stdin.  What
became of each step after that goes to stdout as JSON: null, or the name of the error.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable

from distributedlog.client.errors import code_of
from distributedlog.model.errors import DlogError
from tests.system.transactions.sink_driver import driving


async def main(bootstrap: str, query_id: str, topic: str) -> None:
    async with driving(bootstrap, query_id, topic) as driver:
        token = await driver.sink.token()
        lease = await driver.attempt(token, 0, "0-0", {0: ["old"]})
        assert lease is not None
        print("written", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        became = {
            "heartbeat": await _outcome(driver.sink.heartbeat(token, 0)),
            "write": await _outcome(driver.write(lease, {0: ["late"]})),
            "write elsewhere": await _outcome(driver.write(lease, {1: ["late"]})),
            "end": await _outcome(driver.end(token, 0, lease)),
            "join": await _outcome(driver.sink.join(token, 0, "0-1")),
        }
        print(json.dumps(became), flush=True)


async def _outcome(step: Awaitable[object]) -> str | None:
    try:
        await step
    except DlogError as error:
        return code_of(error).name
    return None


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
