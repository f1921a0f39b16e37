"""The questions, one module for each area."""
