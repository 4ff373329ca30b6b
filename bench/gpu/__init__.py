"""The parts of `bench/gpu/check.py`: what is run on a GPU machine, and on stand-ins elsewhere."""
