"""Ranks that are started once, stay, sleep while nothing is asked of them, and answer requests."""
