"""Quotas of clients and what each request is charged against them; quotas of replication."""
