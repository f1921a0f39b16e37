"""Tests of `distributedlog.patterns`."""
