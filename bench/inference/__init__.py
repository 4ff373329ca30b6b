"""Sessions, servers and decoders."""
