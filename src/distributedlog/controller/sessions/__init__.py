"""What the active controller hears from brokers and writes down nowhere: soft state, lost with it.

leases      which coordinators may answer reads
log_ends    where logs end of partitions that nobody leads, as brokers tell it
unclean     unclean elections, by what was told
"""
