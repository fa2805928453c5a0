"""Models, devices and constants for the tests of the cost model."""

from __future__ import annotations

from hypothesis import strategies as st

from unicron.planner.cost import Accelerator, Execution, Training, Transformer
from unicron.planner.cost.constants import Constants

GPT3 = Transformer(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)
GPT7 = Transformer(layers=32, hidden=4096, heads=32, sequence=2048, vocabulary=51200)

#: One small layer with everything: 4 heads in 2 groups, so keys and values of width 4, and a gate.
GATED = Transformer(
    layers=1,
    hidden=8,
    heads=4,
    query_groups=2,
    ffn_hidden=12,
    sequence=4,
    vocabulary=100,
    swiglu=True,
)


def llama(layers, hidden, heads, groups, ffn, vocabulary, sequence=4096):
    return Transformer(
        layers=layers,
        hidden=hidden,
        heads=heads,
        query_groups=groups,
        ffn_hidden=ffn,
        sequence=sequence,
        vocabulary=vocabulary,
        swiglu=True,
        tied_embeddings=False,
        learned_positions=False,
        biases=False,
        rms_norm=True,
    )


LLAMA70 = llama(80, 8192, 64, 8, 28672, 32000)

FIGURES = {
    "peak_gflops": 2_000,
    "achievable_gflops": 1_000,
    "memory_bytes": 80 * 10**9,
    "hbm_bytes_per_s": 10**30,
    "intra_bytes_per_s": 10**12,
    "inter_bytes_per_s": 10**11,
    "node_devices": 8,
}


def device(**figures: int) -> Accelerator:
    """A device of 1 TFLOP/s with memory so fast that only operations and links take time."""
    values = FIGURES | figures
    return Accelerator(name="test", sources=dict.fromkeys(FIGURES, "a test"), **values)


def ideal(**values: float) -> Constants:
    """Constants under which every rate is the device's own."""
    fields = dict.fromkeys(Constants.__struct_fields__, 1.0)
    nothing = dict.fromkeys(("gemm_half", "intra_latency_s", "inter_latency_s"), 1e-30)
    return Constants(**(fields | nothing | values))


@st.composite
def cases(draw):
    """A model, a training and an execution that fit each other."""
    tp = draw(st.sampled_from([1, 2, 4, 8]))
    pp = draw(st.sampled_from([1, 2, 4]))
    dp = draw(st.integers(1, 6))
    virtual = draw(st.sampled_from([1, 1, 2])) if pp > 1 else 1
    micro_batch = draw(st.sampled_from([1, 2, 4]))
    swiglu = draw(st.booleans())
    model = Transformer(
        layers=draw(st.integers(1, 3)) * pp * virtual,
        hidden=draw(st.sampled_from([1024, 2048, 8192])),
        heads=16,
        sequence=draw(st.sampled_from([512, 2048])),
        vocabulary=draw(st.integers(1000, 60_000)),
        query_groups=draw(st.sampled_from([0, 8])),
        swiglu=swiglu,
        tied_embeddings=draw(st.booleans()),
        rms_norm=swiglu,
    )
    shares = draw(st.integers(1, 8)) * (pp if virtual > 1 else 1)
    lacking = 0 if virtual > 1 else draw(st.integers(0, dp - 1))
    training = Training(
        global_batch=max(dp, shares * dp - lacking) * micro_batch,
        exact=draw(st.booleans()),
        fused_attention=draw(st.booleans()),
    )
    execution = Execution(
        tp=tp,
        pp=pp,
        dp=dp,
        virtual=virtual,
        micro_batch=micro_batch,
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        sequence_parallel=draw(st.booleans()),
        distributed_optimizer=draw(st.booleans()),
    )
    return model, training, execution
