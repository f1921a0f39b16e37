"""Balancing a cluster: its load is measured, moves are planned from it, and made.

loads       what partitions weigh, and what that makes of each broker
planner     the fewest moves after which no broker is far from the mean; pure
measuring   the load of a running cluster, through any Kafka-compatible client API
moving      the moves of a plan, made and watched
showing     loads and plans, as tables and as JSON
steady      again and again, within a throttle, and only while nothing else is wrong
"""
