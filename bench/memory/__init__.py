"""Memory of compilation, sessions and ranks."""
