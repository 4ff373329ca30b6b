"""The process that runs a job: it starts generations, switches between them, and answers.

All that happens to a job (a word of a rank, the end of a process, a request) becomes a call in one
queue, and one thread makes these calls: `Coordinator.run`.
"""
