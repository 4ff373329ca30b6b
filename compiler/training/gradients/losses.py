"""Gradients of losses."""
