"""One process that has imported Megatron, for the session; crews of its forks, for each test."""

import msgspec
import pytest

from tests.worker_shim.megatron.crew import Crew, Forker, iterate
from unicron.events.ids import TaskId
from unicron.events.task import GPTSpec, OptimizerSpec, TaskSpec

MICRO_BATCHES = 12


def small_task(**model):
    """A task that builds and trains quickly; its text is the standard library's."""
    sizes = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 32}
    sizes |= {"vocab_size": 256, "micro_batch_size": 1, **model}
    return msgspec.to_builtins(
        TaskSpec(
            task=TaskId("small"),
            iterations=100,
            micro_batches=MICRO_BATCHES,
            model=GPTSpec(**sizes),
            optimizer=OptimizerSpec(lr_ppb=1_000_000, min_lr_ppb=100_000, warmup_iterations=1),
        )
    )


@pytest.fixture(scope="session")
def forker(tmp_path_factory):
    server = Forker(tmp_path_factory.mktemp("forker"))
    yield server
    server.close()


@pytest.fixture
def crew(forker):
    members = Crew(forker)
    yield members
    members.close()


@pytest.fixture(scope="session")
def reference(forker):
    """Called with a task: (digest, loss) after each of eight undisturbed iterations at DP 4."""
    known = {}

    def run(task):
        key = msgspec.json.encode(task)
        if key not in known:
            crew = Crew(forker)
            try:
                members = crew.build(4, task)
                crew.enter(members)
                known[key] = [iterate(members, MICRO_BATCHES) for _ in range(8)]
            finally:
                crew.close()
        return known[key]

    return run
