"""Policies that allocate devices to jobs."""
