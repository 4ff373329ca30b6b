"""Gradients of gathering and scattering."""
