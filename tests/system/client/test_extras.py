"""Each extra with what it declares and nothing else: a program that installs it can import what it is for.

The machine has everything installed; so whatever the distribution does not declare, and its requirements do
not require in turn, is hidden from an interpreter, and it has to do without.
"""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HIDING = """
import sys

class Hidden:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"hidden: {name}", name=name)
        return None

sys.meta_path.insert(0, Hidden(frozenset(sys.argv[1].split(","))))
exec(sys.argv[2])
"""
CLIENT = """
from distributedlog import Admin, ClientCollector, Consumer, Log, Producer, TopicPartition, aio
from distributedlog.patterns import Outbox, Requester, Runner, TopicTable
from distributedlog.patterns.aio import Runner
import distributedlog.cli.main
"""
WITHOUT_ARROW = """
from distributedlog.client.faces.bulk import as_batches
try:
    as_batches(None)
except ImportError:
    pass
else:
    raise SystemExit("there is a pyarrow")
"""
NEEDS = {
    "": CLIENT + WITHOUT_ARROW,
    "arrow": CLIENT + "import distributedlog.records.arrow, distributedlog.records.arrow_write",
    "testing": "import distributedlog.testing.plugin; from distributedlog.testing import TestCluster; "
    "import distributedlog.testing.proxy",
    "spark": "import distributedlog.records.arrow; from distributedlog.spark import session",
}


def declared(extra: str) -> set[str]:
    """The distributions that `pip install distributedlog[extra]` brings."""
    found: set[str] = set()
    waiting = [("distributedlog", frozenset([extra]))]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        found.add(canonicalize_name(name))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue  # for another platform or version of Python
        for line in lines:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in extras or [""]):
                wanted = (requirement.name, frozenset(requirement.extras) or frozenset([""]))
                if wanted not in seen:
                    seen.add(wanted)
                    waiting.append(wanted)
    return found


@pytest.mark.parametrize("extra", NEEDS)
def test_an_extra_needs_only_what_it_declares(extra: str) -> None:
    there = declared(extra)
    hidden = {
        module
        for module, owners in packages_distributions().items()
        if not there & {canonicalize_name(each) for each in owners}
    }
    assert {"aiokafka", "confluent_kafka", "hypothesis"} <= hidden
    ran = subprocess.run(
        [sys.executable, "-c", HIDING, ",".join(sorted(hidden)), NEEDS[extra]],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
