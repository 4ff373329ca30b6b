"""The command `tensoropt-job`."""
