"""The process that runs a job: it starts generations, switches between them, answers requests.

Every input (a message of a rank, the end of a process, a request) becomes a call in one queue, and
one thread makes these calls: `Coordinator.run`.
"""
