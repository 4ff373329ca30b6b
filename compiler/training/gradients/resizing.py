"""Gradients of resizing."""
