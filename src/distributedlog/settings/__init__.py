"""The settings of a node: names, types, bounds, where their values come from."""
