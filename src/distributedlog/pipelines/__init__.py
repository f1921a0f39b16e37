"""Pipelines from topics to tables and to other topics: Spark Declarative Pipelines, set up, run and watched.

    template   the files of a new project                                                PURE
    project    a project on disk: its specification, its directory for what runs leave
    progress   what Spark says of a micro-batch, in our words                            PURE
    history    what happened in runs, line by line, for whoever asks later
    status     the history folded: rows, lag, batch time and last error of each flow      PURE
    lag        how far the flows are behind their topics, measured while they run
    runner     one session, run after run
    plot       the history as a picture

Each imports only from above it.  The projects are Spark's (`spark-pipeline.yml`, `pyspark.pipelines`);
nothing in them is a format of ours, and a project of anybody's runs here.
"""
