"""The run that nothing happens to: the same trainer with a fixed world and no control plane.

What a task's parameters and optimizer state must be, bit for bit, however it got there.
"""

import json
import os
from pathlib import Path

import msgspec
from setproctitle import setproctitle

from unicron.events.gradient_tree import assign
from unicron.events.task import TaskSpec
from unicron.worker_shim.journal import Journal

_COLLECTIVE_LIMIT_S = 120.0


def run(spec: str, rank: int, ranks: int, store_port: int, folder: str) -> None:
    """One rank of the reference run, to be called in a process of its own by a fork server.

    `spec`: a TaskSpec as JSON. Writes ``<folder>/<rank>.journal`` and, once done, the state's
    digest to ``<folder>/<rank>.json``.
    """
    from unicron.worker_shim.megatron.trainer import Trainer

    task = msgspec.json.decode(spec, type=TaskSpec)
    setproctitle(f"unicron: reference worker {task.task} rank {rank}")
    journal = Journal(os.path.join(folder, f"{rank}.journal"))

    def on_phase(phase: str, micro_batch: int = -1) -> None:
        if phase == "forward":
            journal.forward(trainer.iteration, micro_batch, 1)

    trainer = Trainer(task, on_phase)
    trainer.start()
    trainer.regroup(1, rank, ranks, "127.0.0.1", store_port, _COLLECTIVE_LIMIT_S)
    shares = assign(task.micro_batches, ranks)
    while trainer.iteration < task.iterations:
        trainer.compute(shares[rank])
        trainer.reduce(shares)
        trainer.vote(1)
        iteration, contributed = trainer.iteration, trainer.kept
        loss = trainer.step()
        journal.commit(iteration, 1, loss=loss, contributed=contributed)
    result = {"iteration": trainer.iteration, "state_digest": trainer.state_digest()}
    target = Path(folder) / f"{rank}.json"
    temporary = target.with_suffix(".new")
    temporary.write_text(json.dumps(result))
    temporary.rename(target)
    trainer.farewell(_COLLECTIVE_LIMIT_S)
    trainer.leave()
