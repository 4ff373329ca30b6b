"""Who gets how many devices."""
