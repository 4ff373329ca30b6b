"""Collectives inside graphs: latency, fusion, overlap."""
