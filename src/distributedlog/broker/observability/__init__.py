"""What a node reports of itself: metrics, the operations port, log lines with a limit."""
