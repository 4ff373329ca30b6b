"""Elastic jobs, measured: switches, what a coordinator costs, and the curve of the loss."""
