"""PyTorch modules of models in ``graphs``, with their weights, that training is held against."""
