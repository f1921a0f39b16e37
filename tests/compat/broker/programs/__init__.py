"""The client programs: see `lines.py` for what they are asked and what they answer."""
