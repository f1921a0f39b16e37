"""A network for whole brokers: channels in memory, and an asyncio loop in virtual time."""
