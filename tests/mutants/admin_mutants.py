"""Bugs of administration: quotas that do not bind, a quorum told wrongly, settings without effect."""

from tests.mutants.harness import Mutant

B = "tests/unit/broker"

MUTANTS = [
    Mutant(
        "what a client owes is forgiven",
        "broker/quotas/client_quotas.py",
        "self._used = max(0.0, self._used - (now_ms - self._since_ms) * limit / 1000) + amount",
        "self._used = 0.0 + amount",
        f"{B}/quotas/test_client_quotas.py -k not_forgotten",
    ),
    Mutant(
        "the default comes before a user's own quota",
        "broker/quotas/client_quotas.py",
        "    for of_user in (user, None):\n",
        "    for of_user in (None, user):\n",
        f"{B}/quotas/test_client_quotas.py",
    ),
    Mutant(
        "who used too much is told and goes on",
        "broker/net/connection.py",
        "            or self._muted is not None\n",
        "",
        f"{B}/quotas/test_throttling.py",
    ),
    Mutant(
        "whoever says that it is a replica is believed",
        "broker/handlers/_replica_ids.py",
        "    if proved is None or proved.broker_id != replica_id:\n",
        "    if proved is not None and proved.broker_id != replica_id:\n",
        f"{B}/handlers/test_fetch.py",
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
        "broker/coordination/controller_driver.py",
        "        self._confirm_read(confirmed)\n",
        "        confirmed(None)\n",
        f"{B}/cluster/test_quorum.py",
    ),
    Mutant(
        "a topic's compression is ignored",
        "storage/log.py",
        "data = data if rules.codec is None else rules.recompress(data, origin)",
        "data = data if rules.codec is not None else rules.recompress(data, origin)",
        f"{B}/replicas/test_config_effects.py",
    ),
]
