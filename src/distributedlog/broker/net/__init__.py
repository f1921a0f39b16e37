"""From sockets to requests and back: server, connections, frames, turns, dispatch to handlers."""
