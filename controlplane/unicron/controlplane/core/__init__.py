"""The pure core: fold, decide, deadlines and orders as functions of the log.

Nothing in here reads a clock, an environment, a file or a socket; same history, same state.
"""
