"""A GPU cluster in simulation, and policies that share it among training jobs."""
