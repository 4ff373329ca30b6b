"""Gradients of convolutions and their transposes."""
