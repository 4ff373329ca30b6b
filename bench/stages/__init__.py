"""Pipelines: predictions next to published runs."""
