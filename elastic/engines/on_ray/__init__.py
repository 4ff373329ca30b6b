"""Generations on a Ray cluster: ranks are actors, state goes through the object store.

Ray is imported when a job asks for it, in `cluster`; the other modules here after that.
"""
