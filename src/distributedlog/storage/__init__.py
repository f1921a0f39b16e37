"""The partition log on disk: segments, indexes, recovery, cleaning.  files.py alone reaches the disk."""
