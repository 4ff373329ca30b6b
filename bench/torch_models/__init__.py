"""PyTorch modules of models in ``graphs``, with their weights, as references of training."""
