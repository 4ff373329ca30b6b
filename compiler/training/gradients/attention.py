"""Gradients of attention in one operator."""
