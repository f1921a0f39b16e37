"""Taking over what a stopped Apache Kafka broker left on its disks.

    kafka_records    Kafka's metadata records: which there are, and what each is here          PURE
    kafka_image      their replay: topics, partitions, settings, and what else was kept        PURE
    metadata_log     the directory `__cluster_metadata-0`: the newest snapshot, and the log behind it
    settings_taken   which settings and quotas come along                                      PURE
    survey           Kafka's directories, looked at: what can be taken, what cannot, and why
    founding         the metadata of the cluster of one node that the topics go to
    taking           the work itself: into a new directory, or in place

The logs have the same form on both sides, so they are taken as they are; only the metadata is another.
"""
