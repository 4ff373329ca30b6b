"""Generations on a Ray cluster: actors launch the ranks, state moves through the object store.

`cluster` imports Ray only when a job requests it; the other modules are imported after that.
"""
