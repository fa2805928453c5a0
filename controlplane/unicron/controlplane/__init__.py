"""The control plane: a pure core, the runtime that carries it, replay, and its faces."""
