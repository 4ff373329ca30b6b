"""Text from a decoder's plan: caches of keys and values stay on the ranks from token to token."""
