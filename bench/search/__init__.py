"""Search methods, and the plans that they find."""
