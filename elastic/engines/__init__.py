"""Engines that run the processes of a generation: on this machine, or on a Ray cluster."""
