"""Connections from broker to broker, over the port for clients, on the data loop."""
