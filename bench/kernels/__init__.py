"""Kernels of training steps, alone."""
