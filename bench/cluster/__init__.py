"""Simulation of a GPU cluster, and policies that share it among training jobs."""
