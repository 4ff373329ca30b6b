"""Single kernels of training steps."""
