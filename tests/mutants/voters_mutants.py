"""Bugs of voters that come and go: who votes that must not, and who is forgotten that must not be."""

from tests.mutants.harness import Mutant

CLUSTER = "tests/unit/broker/cluster"
CHANGES = f"{CLUSTER}/test_voter_changes.py"
ADDRESSES = f"{CLUSTER}/test_quorum_addresses.py"
IDENTITY = "tests/unit/data_directory/test_identity.py"

MUTANTS = [
    Mutant(
        "a second change of the voters is begun while one is under way",
        "broker/cluster/voter_changes.py",
        "        self._check_idle()\n        return registration\n",
        "        return registration\n",
        CHANGES,
    ),
    Mutant(
        "a node is made a voter by another directory than the one that was meant",
        "broker/cluster/voter_changes.py",
        "        _check_directory(registration, request.directory_id)\n        incarnation =",
        "        incarnation =",
        CHANGES,
    ),
    Mutant(
        "a leader that is removed does not hand over",
        "broker/cluster/voter_changes.py",
        "                self._hand_over()\n",
        "                pass\n",
        CHANGES,
    ),
    Mutant(
        "a voter that lost its disk is forgotten with the registration of its new one",
        "broker/cluster/voter_changes.py",
        "registration is not None and registration.incarnation == incarnation:\n                self._forget",
        "registration is not None:\n                self._forget",
        CHANGES,
    ),
    Mutant(
        "a snapshot of the metadata holds what its log has yet to bring",
        "broker/coordination/controller_driver.py",
        "return None if is_ahead else encode_snapshot(image)",
        "return encode_snapshot(image)",
        CHANGES,
    ),
    Mutant(
        "where voters are that came later is not noted",
        "broker/cluster/quorum_addresses.py",
        "            self._note(noted)\n",
        "",
        ADDRESSES,
    ),
    Mutant(
        "the only founder votes on a new disk as if it had promised nothing",
        "data_directory/identity.py",
        "founding_incarnation(directory_id) if _is_only_voter(settings) else 0",
        "0",
        IDENTITY,
    ),
    Mutant(
        "a node that joins is made a founder, because its settings name it",
        "data_directory/identity.py",
        "not settings.is_standby and not is_joining\n",
        "not settings.is_standby\n",
        IDENTITY,
    ),
    Mutant(
        "a founder that lost its disk founds a second cluster under the same name",
        "data_directory/identity.py",
        "    return _is_only_voter(settings) and (settings.cluster_id is None or is_new_cluster)\n",
        "    return _is_only_voter(settings)\n",
        "tests/unit/data_directory/test_identity.py -k told_that_it_is_new",
    ),
]
