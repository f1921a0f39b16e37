"""A Spark session in which topics are DataFrames, and what it needs: Java, a class archive, workers."""
