"""The source: `spark.read|readStream.format("dlog")` from a broker."""
