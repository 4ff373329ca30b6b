"""Benchmarks of elastic jobs: switches, the overhead of a coordinator, and loss curves."""
