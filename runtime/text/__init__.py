"""Text generation with a decoder's plan; its key/value caches stay on the ranks between tokens."""
