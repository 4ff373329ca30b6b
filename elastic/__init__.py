"""Training jobs that change their devices while they run: `tensoropt-job`."""
