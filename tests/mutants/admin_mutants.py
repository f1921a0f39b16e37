"""Bugs of administration: quotas that do not bind, a quorum told wrongly, settings without effect."""

from tests.mutants.harness import Mutant

B = "tests/unit/broker"

MUTANTS = [
    Mutant(
        "what a client owes is forgiven",
        "broker/quotas.py",
        "self._used = max(0.0, self._used - (now_ms - self._since_ms) * limit / 1000) + amount",
        "self._used = 0.0 + amount",
        f"{B}/test_quotas.py -k not_forgotten",
    ),
    Mutant(
        "the default comes before a user's own quota",
        "broker/quotas.py",
        "    for of_user in (user, None):\n",
        "    for of_user in (None, user):\n",
        f"{B}/test_quotas.py",
    ),
    Mutant(
        "who used too much is told and goes on",
        "broker/connection.py",
        "            or self._muted is not None\n",
        "",
        f"{B}/test_throttling.py",
    ),
    Mutant(
        "followers pay like consumers",
        "broker/tolls.py",
        "        if api_key != ApiKey.FETCH or self._is_follower:\n",
        "        if api_key != ApiKey.FETCH:\n",
        f"{B}/test_quotas.py",
    ),
    Mutant(
        "quotas are written into a log whose readers do not know them",
        "controller/quotas.py",
        "    if not has_quotas(image.level):\n",
        "    if image.level < 0:\n",
        "tests/unit/controller/test_quotas.py",
    ),
    Mutant(
        "a leader that was overtaken describes the quorum",
        "broker/controller_driver.py",
        "            self._driver.read(confirmed)\n        except DlogError:\n"
        '            done(Outcome(error=self._not_leader("this node does not lead any more")))\n\n'
        "    def _not_leader",
        "            confirmed(Outcome(None))\n        except DlogError:\n"
        '            done(Outcome(error=self._not_leader("this node does not lead any more")))\n\n'
        "    def _not_leader",
        f"{B}/test_quorum.py",
    ),
    Mutant(
        "a topic's compression is ignored",
        "storage/log.py",
        "data = data if rules.codec is None else rules.recompressed(data, origin)",
        "data = data if rules.codec is not None else rules.recompressed(data, origin)",
        f"{B}/test_config_effects.py",
    ),
]
