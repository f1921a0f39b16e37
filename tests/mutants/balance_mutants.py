"""Bugs of balancing: replicas that come too near to each other, and what moves that must not."""

from tests.mutants.harness import Mutant

PLANNER = "tests/unit/cli/cluster/balancing/test_planner.py"
STEADY = "tests/unit/cli/cluster/balancing/test_steady.py"
THROTTLES = "tests/unit/cli/cluster/test_throttles.py"
MEASURING = "tests/unit/cli/cluster/balancing/test_measuring.py"
PLANNED = "cli/cluster/balancing/planner.py"

MUTANTS = [
    Mutant(
        "balancing takes a rack away from a partition",
        PLANNED,
        "        return self._spread(moved) >= self._spread(replicas)\n",
        "        return True\n",
        f"{PLANNER} -k keeps_its_racks",
    ),
    Mutant(
        "balancing moves a partition that is pinned",
        PLANNED,
        "            if not self._partitions[number].is_pinned:\n",
        "            if replicas:\n",
        PLANNER,
    ),
    Mutant(
        "a partition that lacks replicas may be moved",
        "cli/cluster/balancing/measuring.py",
        "    is_complete = partition.has_leader and not partition.is_under_replicated\n",
        "    is_complete = partition.has_leader\n",
        MEASURING,
    ),
    Mutant(
        "balancing goes on though it was told to end: an error came instead of its cancellation",
        "cli/cluster/balancing/steady.py",
        "        while not task.done():\n            task.cancel()\n",
        "        if not task.done():\n            task.cancel()\n",
        f"{STEADY} -k goes_on_is_ended",
    ),
    Mutant(
        "balancing plans on though nobody wants the plan any more",
        PLANNED,
        "            if self._is_over() or not self._move_once(left):\n",
        "            if not self._move_once(left):\n",
        f"{PLANNER} -k nobody_wants",
    ),
    Mutant(
        "what was refused stays throttled",
        "cli/cluster/throttles.py",
        "    ended = before.keys() - after.keys()\n",
        "    ended = before.keys() & set()\n",
        f"{THROTTLES} -k refused",
    ),
    Mutant(
        "a broker that was killed is taken for back before it has registered again",
        "cli/cluster/restarting/own_view.py",
        " or now.epoch > before.epoch\n",
        " or now.epoch >= before.epoch\n",
        "tests/unit/cli/cluster/restarting/test_rolling.py -k another_epoch",
    ),
]
