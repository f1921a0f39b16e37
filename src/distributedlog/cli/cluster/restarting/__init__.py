"""Restarting brokers one at a time.

means       how one broker is restarted: by its supervisor, or by a command
rolling     in which order, what is waited for, and when it stops
"""
