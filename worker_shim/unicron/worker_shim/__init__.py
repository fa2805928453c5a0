"""What runs beside and inside training: agent, fork server, shim, and the Megatron adapter.

Importing this package imports neither torch nor Megatron; only `unicron.worker_shim.megatron`'s
modules do.
"""

from unicron.worker_shim.launch import WorkerLaunch

__all__ = ["WorkerLaunch"]
