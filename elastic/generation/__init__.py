"""What the ranks of one generation do: prepare, take the state over, train, hand it on."""
