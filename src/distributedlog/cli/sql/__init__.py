"""`dlog sql`: topics and a pipeline's tables, asked with SQL on Spark.

statements   text into statements                                PURE
answers      rows as a table, JSON, CSV or Parquet
asking       a Spark session, and in it views of what a query names
shell        statement after statement, in one session
command      `dlog sql` itself
"""
