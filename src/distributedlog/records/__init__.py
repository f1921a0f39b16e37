"""Record batches: header, records, compression, Arrow.  Bytes in, bytes out; pure."""
