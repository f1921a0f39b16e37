"""What we accept as bytes (`collections.abc.Buffer` is Python 3.12's)."""

Buffer = bytes | bytearray | memoryview
MutableBuffer = bytearray | memoryview
