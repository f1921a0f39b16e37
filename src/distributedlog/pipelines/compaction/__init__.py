"""Compaction of what pipelines write: many small files of a streaming table become few, with the same rows.

    metadata_log   the log with which Spark says which files count, as it lies on disk
    streams        what the streams that read a table have read of it, by their checkpoints
    plan           which files are merged with which                                       PURE
    replacement    merged files put in the place of others, step by step; what is left of it, removed
    compactor      the tables of a project, with Spark

Each imports only from above it.  Why it is done so, and for whom it is not safe: decision 21.
"""
