"""A test of the tests: bugs are seeded into a copy of the source, and the suite must catch each."""
