"""Transactions of a producer: where one stands (`state`), and what coordinators are asked (`manager`)."""
