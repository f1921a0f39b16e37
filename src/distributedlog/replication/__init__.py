"""One partition on one broker: who leads it, what is committed, and what may be read and written."""
