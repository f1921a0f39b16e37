"""The segment source: segment files read without a broker."""
