"""The control plane between nodes, over gRPC: consensus, requests to the controller, committed metadata.

contract.py     what a broker gives and gets, in terms that know no gRPC
protos/         the messages on the wire; _generated/ is made of them by generate.py
conversion/     the controller's requests, answers and errors as messages, and back
credentials.py  who a node is, and what it proves that with
sessions.py     who calls, proved         authentication.py   proving it to others
transport.py    messages of consensus to other nodes      services.py   what comes in from them
channels.py     requests to a controller elsewhere        server.py     the port for all of that
watcher.py      committed metadata for a node that is no voter
"""

import os

# Without it gRPC's core writes a line to stderr, past every logger, each time a peer stops.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
