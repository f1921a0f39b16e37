"""Mending the logs of a stopped node: indexes made anew, records taken out that nobody can read."""
