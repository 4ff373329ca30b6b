"""Pools: ranks that are started once, answer requests, and sleep between them."""
