"""A dense GPT-like model: how many parameters it has and how many operations a sample takes.

Sources: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", 2021 (arXiv 2104.04473): eq. 2 for parameters, eq. 3 and its appendix for operations.
Grouped-query attention, gated MLPs, RMS norms and separate output embeddings follow from the same
counting of matrices; with them switched off both equations come out again.
"""

from __future__ import annotations

import msgspec

from unicron.planner.cost.validity import (
    require_flags,
    require_positive,
    require_split,
    require_whole,
)
from unicron.planner.errors import BadProblem

#: Megatron pads the vocabulary to a multiple of this times the tensor parallel size.
VOCABULARY_MULTIPLE = 128

#: All divisors of the number of layers are tried as pipeline sizes.
LAYERS_MAX = 100_000


class Transformer(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder of `layers` equal layers. Lengths in tokens, sizes in elements.

    `ffn_hidden` 0 stands for 4 x hidden, `query_groups` 0 for one group a head (no grouping).
    `swiglu`: the MLP's first matrix is doubled by a gate. `tied_embeddings`: the output layer
    shares the input's weights. `learned_positions`: one vector a position. `biases`: on linear
    layers. `rms_norm`: norms have no offset.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    ffn_hidden: int = 0
    query_groups: int = 0
    swiglu: bool = False
    tied_embeddings: bool = True
    learned_positions: bool = True
    biases: bool = True
    rms_norm: bool = False

    @property
    def ffn(self) -> int:
        """Width of the MLP."""
        return self.ffn_hidden or 4 * self.hidden

    @property
    def groups(self) -> int:
        """Key and value heads."""
        return self.query_groups or self.heads

    @property
    def key_value(self) -> int:
        """Width of the keys, and of the values."""
        return self.hidden // self.heads * self.groups


def check_model(model: Transformer) -> None:
    """Raise `BadProblem` naming the first field that makes no sense."""
    require_positive(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        sequence=model.sequence,
        vocabulary=model.vocabulary,
    )
    if model.layers > LAYERS_MAX:
        raise BadProblem("layers", f"is {model.layers}", f"give at most {LAYERS_MAX}")
    require_whole(ffn_hidden=model.ffn_hidden, query_groups=model.query_groups)
    for name in ("swiglu", "tied_embeddings", "learned_positions", "biases", "rms_norm"):
        require_flags(**{name: getattr(model, name)})
    require_split("heads", model.heads, "hidden units", model.hidden)
    if model.heads % model.groups:
        raise BadProblem(
            "query_groups",
            f"{model.heads} heads don't form {model.groups} groups",
            "choose a divisor of heads, or 0 for no grouping",
        )


def padded_vocabulary(model: Transformer, tp: int = 1) -> int:
    """Rows of the embedding as Megatron allocates it: a multiple of 128 x `tp`."""
    multiple = VOCABULARY_MULTIPLE * tp
    return -(-model.vocabulary // multiple) * multiple


def norm_parameters(model: Transformer) -> int:
    """Parameters of one norm."""
    return model.hidden if model.rms_norm else 2 * model.hidden


def layer_parameters(model: Transformer) -> int:
    """Parameters of one layer; 12 h^2 + 13 h for the plain GPT layer."""
    hidden, ffn, key_value = model.hidden, model.ffn, model.key_value
    up = (2 if model.swiglu else 1) * ffn
    matrices = hidden * (2 * hidden + 2 * key_value) + hidden * (up + ffn)
    biases = 2 * hidden + 2 * key_value + up + hidden if model.biases else 0
    return matrices + biases + 2 * norm_parameters(model)


def embedding_parameters(model: Transformer, tp: int = 0) -> int:
    """Parameters of one word embedding; with `tp` those of one device, padded as Megatron does."""
    if tp:
        return padded_vocabulary(model, tp) // tp * model.hidden
    return model.vocabulary * model.hidden


def parameter_count(model: Transformer) -> int:
    """All parameters, vocabulary as given (unpadded).

    For the plain GPT model this is eq. 2, `12 l h^2 (1 + 13/12h + (V + s)/12lh)`, and the final
    norm, which the equation leaves out.
    """
    words = (1 if model.tied_embeddings else 2) * embedding_parameters(model)
    positions = model.sequence * model.hidden if model.learned_positions else 0
    return model.layers * layer_parameters(model) + norm_parameters(model) + words + positions


def linear_flops(model: Transformer) -> int:
    """Operations of one layer's matrices for one token, forward: 24 h^2 for the plain layer."""
    hidden, ffn = model.hidden, model.ffn
    up = (2 if model.swiglu else 1) * ffn
    return 2 * hidden * (2 * hidden + 2 * model.key_value) + 2 * hidden * (up + ffn)


def attention_flops(model: Transformer) -> int:
    """Operations of one layer's scores and weighted values for one token, forward: 4 s h.

    All s keys of every query are counted, as in eq. 3, though a causal mask needs half of them.
    """
    return 4 * model.sequence * model.hidden


def flops_per_sample(model: Transformer, *, recompute: bool = False) -> int:
    """Operations of one forward and backward pass over one sample of `sequence` tokens.

    Eq. 3 for one sample, with `recompute`: `96 s l h^2 (1 + s/6h + V/16lh)`, where every layer
    runs forward twice. Without it 96 becomes 72 and the logits' 6 s h V stays.
    """
    passes = 4 if recompute else 3
    layers = model.layers * (linear_flops(model) + attention_flops(model))
    return model.sequence * (passes * layers + 6 * model.hidden * model.vocabulary)
