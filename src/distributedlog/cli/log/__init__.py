"""`dlog log`: the files of logs, without a server.  Only the names of the commands are here."""

from distributedlog.cli.lazy import LazyGroup

HELP = """\
Look into the files of logs, check them, mend them.  Needs no server.

DIR is a data directory (one that holds TOPIC-NUMBER directories) or one partition's directory in it, written
by distributedlog or by Apache Kafka.  `dump` and `verify` change nothing and may be used on a directory
that is in use; `index`, `repair` and `compact` need it for themselves.

\b
dlog log verify /var/lib/dlog
dlog log dump /var/lib/dlog --topic orders --records --limit 10
"""

group = LazyGroup(
    name="log",
    help=HELP,
    commands_at={
        "dump": ("distributedlog.cli.log.dump:dump", "Show batches, records, indexes, snapshots, epochs."),
        "verify": ("distributedlog.cli.log.verify:verify", "Read everything and say whether it is sound."),
        "index": ("distributedlog.cli.log.index:index", "Rebuild indexes from the log."),
        "repair": ("distributedlog.cli.log.repair:repair", "Drop records that nobody can read."),
        "compact": ("distributedlog.cli.log.compact:compact", "Keep the last value of each key, now."),
    },
)
