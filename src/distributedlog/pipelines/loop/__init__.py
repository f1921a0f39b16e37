"""A pipeline that is run again and again, without runs that would find nothing.

    news       whether a run may find anything that the last one did not                 PURE
    texts      definitions that depend on nothing but the project's files                PURE
    looking    the files and the ends of topics, as they are now
    watch      what is remembered from run to run
    loop       run after run

Each imports only from above it.
"""
