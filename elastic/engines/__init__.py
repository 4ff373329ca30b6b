"""Where the processes of a generation come from: this machine, or a Ray cluster."""
