"""Reads logs and says whether they are sound.  Changes nothing."""
