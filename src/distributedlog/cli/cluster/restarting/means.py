"""How one broker is restarted.

    a ready file   of `dlog dev`: the broker's process is told to stop (SIGTERM), which hands its leaderships
                   over, and the supervisor starts it again
    a command      run by the shell for each broker, with {id} and {host} filled in; exit code 0 is success

Filled-in values are quoted for the shell: a host is what the cluster says it is, and may say anything.
"""

import asyncio
import json
import os
import shlex
import signal
from typing import Any, Final, Protocol

from distributedlog.client.view import BrokerView
from distributedlog.model.errors import InvalidRequestError

READY_FILE_BYTES_MAX: Final = 1024 * 1024
PLACEHOLDERS: Final = ("{id}", "{host}")


class RestartFailedError(Exception):
    """The broker could not be restarted; the message says why."""


class Means(Protocol):
    def check(self, brokers: list[BrokerView]) -> None:
        """Raises InvalidRequestError if these brokers cannot be restarted so."""
        ...

    async def restart(self, broker: BrokerView) -> None:
        """Has a broker restarted, or begins to; raises RestartFailedError."""
        ...


class BySupervisor:
    """The means for a cluster of `dlog dev --ready-file`."""

    def __init__(self, ready_file: str) -> None:
        self._ready_file = ready_file

    def check(self, brokers: list[BrokerView]) -> None:
        found = {each["id"]: each["client"] for each in self._brokers()}
        for broker in brokers:
            if found.get(broker.node_id) != str(broker.address):
                raise InvalidRequestError(
                    f"{self._ready_file} is of another cluster: broker {broker.node_id} at {broker.address} "
                    "is not in it"
                )

    async def restart(self, broker: BrokerView) -> None:
        try:
            pid = next(each["pid"] for each in self._brokers() if each["id"] == broker.node_id)
            os.kill(pid, signal.SIGTERM)
        except (StopIteration, ProcessLookupError, PermissionError) as error:
            raise RestartFailedError(f"its process cannot be told to stop: {error}") from error

    def _brokers(self) -> list[dict[str, Any]]:
        try:
            with open(self._ready_file, encoding="utf-8") as file:
                brokers = json.loads(file.read(READY_FILE_BYTES_MAX))["brokers"]
            for each in brokers:
                if not (type(each["id"]) is int and type(each["pid"]) is int and each["pid"] > 1):
                    raise ValueError("a broker without an id or a pid")
                each["client"] = str(each["client"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidRequestError(f"{self._ready_file} is no ready file of dlog dev: {error}") from error
        return list(brokers)


class ByCommand:
    """The means for anything else: `systemctl restart dlog@{id}`, `ssh {host} …`."""

    def __init__(self, command: str, seconds_max: float) -> None:
        self._command = command
        self._seconds_max = seconds_max

    def check(self, brokers: list[BrokerView]) -> None:
        if len(brokers) > 1 and not any(each in self._command for each in PLACEHOLDERS):
            raise InvalidRequestError(
                "the command would be the same for every broker: say which one with {id} or {host}"
            )

    def spell(self, broker: BrokerView) -> str:
        filled = self._command.replace("{id}", str(broker.node_id))
        return filled.replace("{host}", shlex.quote(broker.address.host))

    async def restart(self, broker: BrokerView) -> None:
        process = await asyncio.create_subprocess_shell(self.spell(broker), stdin=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(self._seconds_max):
                code = await process.wait()
        except TimeoutError:
            raise RestartFailedError(f"the command did not end within {self._seconds_max:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code != 0:
            raise RestartFailedError(f"the command ended with exit code {code}")
