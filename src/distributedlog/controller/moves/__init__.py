"""Moves that the controller begins by itself: more replicas for internal topics when brokers join."""
