"""Predictions compared with measurements."""
