"""Whether the log that a reader stands in is still the one that it has read (KIP-320).

epochs       the leader epochs of what was read, and what an answer says of a position   PURE
validation   asks leaders where epochs ended
"""
