"""Accuracy of predictions, by measurements."""
