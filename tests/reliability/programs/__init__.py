"""Clients under load.  Each is told where to go by its arguments, tells its journal on stdout, and stops when
its stdin ends; it exits with 1 for what no client may meet.
"""
