"""Tests of `pipelines/compaction`, on files as Spark writes them; with Spark itself: `tests/spark`."""
