"""Latency, fusion and overlap of collectives in graphs."""
