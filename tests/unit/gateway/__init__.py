"""Tests of the gateway's BrokerService."""
