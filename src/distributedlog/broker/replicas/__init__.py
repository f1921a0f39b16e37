"""The partitions this broker holds, what waits on them, what reads them, and their maintenance."""
