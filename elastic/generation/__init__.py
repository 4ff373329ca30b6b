"""The ranks of one generation: they prepare, take over the state, train, and hand it over."""
