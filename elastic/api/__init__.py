"""A job over HTTP: its server, its page and its client."""
