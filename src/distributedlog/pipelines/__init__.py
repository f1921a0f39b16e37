"""Pipelines from topics to tables and to other topics: Spark Declarative Pipelines, set up, run and watched.

    template   the files of a new project                                                PURE
    project    a project on disk: its specification, its directory for what runs leave
    progress   what Spark says of a micro-batch, in our words                            PURE
    history    what happened in runs, line by line, for whoever asks later
    status     the history folded: rows, lag, batch time and last error of each flow      PURE
    health     what is wrong with a pipeline, by its status                              PURE
    lag        how far the flows are behind their topics, measured while they run
    failures   what is told of a run that failed: the cause, and where it stands          PURE
    graph      tables, views, sinks, and the flows between them                           PURE
    graph_reader  the graph as Spark has it
    definitions   the definitions registered with Spark; the topics that they name
    checks     topics that are not there, clusters that nobody answers for
    groups     what the pipeline has told consumer groups, forgotten again
    durable_files  small files that are replaced as a whole
    tables     which tables there are, for those who read them while it runs
    compaction/   small files of tables merged
    table_maintenance  what a runner does beside its runs
    runner     one session, run after run
    loop/      run after run, without those that would find nothing new
    plot       the history as a picture

Each imports only from above it.  The projects are Spark's (`spark-pipeline.yml`, `pyspark.pipelines`);
nothing in them is a format of ours, and a project of anybody's runs here.
"""
