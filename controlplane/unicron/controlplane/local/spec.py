"""The demo's tasks: a real GPT, small enough for two cores, on the standard library's own text, and
a much smaller one that weighs less."""

import msgspec

from unicron.events import GPTSpec, OptimizerSpec, TaskId, TaskSpec

#: 1.9 M parameters; an iteration of 12 micro-batches takes 200 to 300 ms on two cores.
MODEL = GPTSpec(
    num_layers=4,
    hidden_size=192,
    num_attention_heads=4,
    seq_length=128,
    vocab_size=256,
    micro_batch_size=1,
)
#: 0.07 M parameters; a micro-batch takes a few milliseconds.
LIGHT_MODEL = GPTSpec(
    num_layers=1,
    hidden_size=64,
    num_attention_heads=4,
    seq_length=32,
    vocab_size=256,
    micro_batch_size=1,
)


def demo_task(iterations: int, seed: int, *, model: GPTSpec = MODEL) -> TaskSpec:
    """Task "gpt", for at most six devices."""
    return TaskSpec(
        task=TaskId("gpt"),
        iterations=iterations,
        micro_batches=12,
        model=model,
        optimizer=OptimizerSpec(
            lr_ppb=1_000_000, min_lr_ppb=100_000, warmup_iterations=4, decay_iterations=200
        ),
        seed=seed,
        min_devices=1,
        max_devices=6,
    )


def two_tasks(iterations: int, seed: int, *, model: GPTSpec = MODEL) -> tuple[TaskSpec, TaskSpec]:
    """Task "gpt", for at most four devices, and "light", which weighs a quarter of it and has at
    least one: of eight devices each gets four, of four the heavier one gets three."""
    heavy = msgspec.structs.replace(demo_task(iterations, seed, model=model), max_devices=4)
    light = msgspec.structs.replace(
        demo_task(iterations, seed, model=LIGHT_MODEL),
        task=TaskId("light"),
        weight_milli=250,
    )
    return heavy, light
