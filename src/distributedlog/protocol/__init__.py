"""Kafka's wire protocol: messages declared once, codecs compiled per version, framing without I/O.

    kinds       what a field can hold, and its bytes
    schema      classes out of declared fields; one class spans all versions of a message
    messages/   the declarations, one file per API, and the records of the coordinators
    encoder     a message of one version -> the source of a function that writes it
    decoder     the same for reading
    source      what both write into
    primitives  what the compiled functions call, and the limits
    codec       encode, decode
    versioned   messages with their version in front
    registry    api key -> request and response
    framing     headers, frames, and a stream into frames

Each imports only from above it, but for `source` and `primitives`, which need none.  Nothing here does I/O or
keeps state between calls, but for the compiled codecs and the frame that a `FrameReader` is in the middle of.
"""
