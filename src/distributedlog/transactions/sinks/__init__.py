"""Transactions of many producers that one record decides: what an exactly-once sink of Spark commits with.

`query` has the states and what may become of them, `machine` is the part of the transaction coordinator that
keeps them, `records` is how they stand in `__transaction_state`.
"""
