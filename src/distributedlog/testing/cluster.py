"""A cluster for tests: `dlog dev` as a process of its own, on free ports of 127.0.0.1, with a directory
that is gone afterwards.

    start --(the ready file is there)--> serving --(stop)--> stopped

Faults are real: `kill` is SIGKILL and `pause` is SIGSTOP for one broker's process.  A broker that was
killed is started again by the cluster after a second, with its data, unless `restarts` is false.  With
`cuttable` clients reach the brokers through a proxy, which cuts, delays and breaks their connections.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from distributedlog.model.errors import ConfigError, DlogError

if TYPE_CHECKING:
    from distributedlog.testing.proxy import Proxy

DEV: Final = (sys.executable, "-m", "distributedlog.cli.main", "dev")
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
LOOK_AGAIN_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class BrokerHandle:
    """One broker of a cluster."""

    node_id: int
    address: str
    pid: int

    def kill(self) -> None:
        """Ends the process at once, as a crash would."""
        os.kill(self.pid, signal.SIGKILL)

    def pause(self) -> None:
        """Stands still, with its connections open, until it is resumed."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()


class TestCluster:
    """Brokers on this machine, used with `with`."""

    __test__ = False
    """Nothing for pytest to collect."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        restarts: bool = True,
        cuttable: bool = False,
        settings: dict[str, object] | None = None,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"a cluster has at least one broker, not {brokers}")
        self._arguments = ["--brokers", str(brokers), "--port", "0", "--no-gateway"]
        if not restarts:
            self._arguments.append("--no-restart")
        for name, value in (settings or {}).items():
            self._arguments += ["--set", f"{name}={value}"]
        self._brokers = brokers
        self._is_cuttable = cuttable
        self._proxy: Proxy | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when every broker serves."""
        self._directory = tempfile.TemporaryDirectory(prefix="dlog-test-")
        try:
            arguments = list(self._arguments)
            if self._is_cuttable:
                from distributedlog.testing.proxy import Proxy

                self._proxy = Proxy(self._brokers)
                ports = (f"{told}:{listened}" for told, listened in self._proxy.ports)
                arguments += ["--proxied", ",".join(ports)]
            with open(os.path.join(self._directory.name, "log"), "wb") as log:
                self._process = subprocess.Popen(
                    [*DEV, "--ready-file", self._ready_file, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise

    @property
    def _ready_file(self) -> str:
        assert self._directory is not None, "the cluster is not started"
        return os.path.join(self._directory.name, "ready.json")

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not os.path.exists(self._ready_file):
            if process.poll() is not None or time.monotonic() > deadline:
                raise DlogError(f"the cluster does not serve:\n{self.log}")
            time.sleep(LOOK_AGAIN_S)

    def _facts(self) -> dict[str, Any]:
        with open(self._ready_file, encoding="utf-8") as file:
            facts: dict[str, Any] = json.load(file)
        return facts

    @property
    def log(self) -> str:
        """What the cluster has said so far."""
        assert self._directory is not None, "the cluster is not started"
        with open(os.path.join(self._directory.name, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def bootstrap(self) -> str:
        if self._proxy is not None:
            return ",".join(f"127.0.0.1:{told}" for told, _ in self._proxy.ports)
        return str(self._facts()["bootstrap"])

    @property
    def brokers(self) -> tuple[BrokerHandle, ...]:
        """The brokers with the processes that they have now."""
        return tuple(
            BrokerHandle(each["id"], each["client"], each["pid"]) for each in self._facts()["brokers"]
        )

    def broker(self, node_id: int) -> BrokerHandle:
        for each in self.brokers:
            if each.node_id == node_id:
                return each
        raise ConfigError(
            f"there is no broker {node_id}: there are {[each.node_id for each in self.brokers]}"
        )

    def kill(self, node_id: int) -> None:
        self.broker(node_id).kill()

    def pause(self, node_id: int) -> None:
        self.broker(node_id).pause()

    def resume(self, node_id: int) -> None:
        self.broker(node_id).resume()

    # --- the network, if the cluster is `cuttable` -----------------------------------------------

    def cut(self, *node_ids: int) -> None:
        """Lets nothing pass between clients and these brokers, or all: connections stay open, and silent."""
        for each in self._checked(node_ids):
            self._network.cut(each)

    def mend(self, *node_ids: int) -> None:
        """Ends a cut: what was held back goes on."""
        for each in self._checked(node_ids):
            self._network.mend(each)

    def delay(self, milliseconds: int, *node_ids: int) -> None:
        """Lets everything between clients and these brokers, or all, take so much longer, each way."""
        if milliseconds < 0:
            raise ConfigError(f"a delay is not negative: {milliseconds}")
        for each in self._checked(node_ids):
            self._network.delay(each, milliseconds)

    def disconnect(self, *node_ids: int) -> None:
        """Breaks all connections of clients with these brokers, or with all."""
        for each in self._checked(node_ids):
            self._network.disconnect(each)

    @property
    def _network(self) -> "Proxy":
        if self._proxy is None:
            raise ConfigError("the network of this cluster cannot fail: make it with cuttable=True")
        return self._proxy

    def _checked(self, node_ids: Collection[int]) -> Collection[int]:
        for each in node_ids:
            if not 1 <= each <= self._brokers:
                raise ConfigError(f"there is no broker {each}: there are 1 to {self._brokers}")
        return node_ids or range(1, self._brokers + 1)

    # --- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError, ValueError):  # a paused broker could not stop
                for each in self.brokers:
                    each.resume()
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.close()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None
