"""Gradients of the softmax family."""
