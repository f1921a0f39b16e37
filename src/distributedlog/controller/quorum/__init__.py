"""The nodes that vote on the metadata, or could: how they are known."""
