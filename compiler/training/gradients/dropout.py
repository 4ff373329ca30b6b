"""Gradients of dropout from the seed of a step."""
