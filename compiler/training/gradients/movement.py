"""Gradients of operators that move elements without computing."""
