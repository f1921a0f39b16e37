"""The sink: `df.write|writeStream.format("dlog")`."""
