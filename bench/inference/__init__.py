"""Speed of sessions, servers and decoders."""
