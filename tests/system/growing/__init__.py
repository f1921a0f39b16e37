"""Clusters that are balanced, restarted broker by broker, and grow and shrink, while clients work."""
