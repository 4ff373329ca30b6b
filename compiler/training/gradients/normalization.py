"""Gradients of normalization by statistics of the batch, of channels or of groups."""
