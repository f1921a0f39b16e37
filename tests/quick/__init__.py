"""`make quick`: the checks, and the unit tests of what a change touches, within two minutes."""
