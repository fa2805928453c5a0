"""The Megatron side of the shim: builds the task's model, computes, reduces, steps, moves state.

A synchronous library for a worker's training thread; `trainer.Trainer` is the door. This package
itself imports nothing heavy, its modules do.
"""
