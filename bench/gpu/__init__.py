"""The parts of `gpu_check.py`: what is run on a GPU machine, and on stand-ins elsewhere."""
