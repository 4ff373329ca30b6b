"""Parts of `bench/gpu/check.py`: checks for a machine with GPUs, or for stand-ins elsewhere."""
