"""What a broker has in its files, so that a test need not believe a client about what it sent."""

from pathlib import Path

from distributedlog.records.batch import read_header
from distributedlog.records.layout import BatchHeader


def batches(data_dir: str, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The headers of a partition's batches, in order."""
    headers = []
    for path in sorted((Path(data_dir) / f"{topic}-{partition}").glob("*.log")):
        content = path.read_bytes()
        at = 0
        while at < len(content):
            header = read_header(content, at)
            headers.append(header)
            at += header.size
    return headers
