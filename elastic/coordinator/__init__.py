"""The process that runs a job: it starts generations, switches between them, answers."""
