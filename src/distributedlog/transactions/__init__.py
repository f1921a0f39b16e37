"""The transaction coordinator: transactional ids, their producers' epochs, and two-phase commit.  Pure.

`transaction` has the states and what may become of them, `machine` is the coordinator of one partition of
`__transaction_state` on the runtime that all machines share.
"""
