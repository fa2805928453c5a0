"""What a replica is made of, as one list of tensors: to digest, to send, to receive.

Order: all model parameters (model order); then for each parameter of the optimizer, in the order of
its groups: the main parameter (only where it isn't the model's own, as with bf16), exp_avg,
exp_avg_sq, step. On the wire: a header, the tensors' bytes in chunks, then their SHA-256.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from unicron.worker_shim.megatron.errors import TransferRefused
from unicron.worker_shim.megatron.model import Built

#: Bytes of one message of a transfer. Between 1 and 16 MB loopback does about 3 GB/s.
CHUNK = 4 << 20

_FORMAT = 1  # of the header and of the order of tensors
_TAG_HEADER, _TAG_CHUNK, _TAG_SEAL = 2001, 2002, 2003


def tensors(built: Built) -> list[torch.Tensor]:
    """The state's tensors, in the documented order. Creates Adam's state where there is none yet,
    as ``torch/optim/adam.py:_init_group`` would before the first step."""
    found = [parameter.data for parameter in built.ddp.module.parameters()]
    own = {parameter.data_ptr() for parameter in found}
    for optimizer in built.optimizer.chained_optimizers:
        for group in optimizer.optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.optimizer.state[parameter]
                if not state:
                    state["step"] = torch.tensor(0.0, dtype=torch.float32)
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                if parameter.data_ptr() not in own:
                    found.append(parameter.data)
                found += [state["exp_avg"], state["exp_avg_sq"], state["step"]]
    return found


def digest(state: Sequence[torch.Tensor], iteration: int) -> str:
    """SHA-256 over the iteration and all tensors' bytes, in hexadecimal."""
    total = hashlib.sha256(iteration.to_bytes(8, "little"))
    for tensor in state:
        total.update(_array(_bytes(tensor)))
    return total.hexdigest()


def send(
    state: Sequence[torch.Tensor], numbers: Sequence[int], peers: Sequence[int], group: Any
) -> int:
    """Send `state` and `numbers` (two: the iteration, the scheduler's position) to `peers`, ranks
    of `group`. Returns the bytes of state sent to each. RuntimeError from gloo when one is gone."""
    length = _length(state)
    header = torch.tensor([_FORMAT, length, CHUNK, *numbers], dtype=torch.int64)
    total = hashlib.sha256(_array(header))
    _wait(_send(header, peers, _TAG_HEADER, group))
    on_the_way: list[Any] = []
    for chunk in _chunks(state, length):
        works = _send(chunk, peers, _TAG_CHUNK, group)
        total.update(_array(chunk))
        _wait(on_the_way)  # then the space the next chunk is packed into is free
        on_the_way = works
    seal = torch.frombuffer(bytearray(total.digest()), dtype=torch.uint8)
    _wait(on_the_way + _send(seal, peers, _TAG_SEAL, group))
    return length


def receive(state: Sequence[torch.Tensor], peer: int, group: Any) -> tuple[int, int, int]:
    """Receive what `send` sends from rank `peer`, and copy it into `state` once all of it has
    arrived as it was sent. Returns the bytes received and the two numbers. RuntimeError from gloo
    when the donor is gone, TransferRefused when it doesn't fit; `state` is unchanged then."""
    length = _length(state)
    header = torch.empty(5, dtype=torch.int64)
    _receive(header, peer, _TAG_HEADER, group).wait()
    layout, announced, chunk_bytes, first, second = header.tolist()
    if (layout, announced) != (_FORMAT, length) or chunk_bytes < 1:
        raise TransferRefused(
            f"rank {peer} offers {announced} bytes of state in format {layout}",
            why=f"this member's state has {length} bytes in format {_FORMAT}",
        )
    total = hashlib.sha256(_array(header))
    scratch = torch.empty(length, dtype=torch.uint8)
    chunks = torch.split(scratch, chunk_bytes)
    # Two receives are posted at any time: one fills while the other is hashed.
    works = [_receive(chunk, peer, _TAG_CHUNK, group) for chunk in chunks[:2]]
    for index, chunk in enumerate(chunks):
        works[index].wait()
        if index + 2 < len(chunks):
            works.append(_receive(chunks[index + 2], peer, _TAG_CHUNK, group))
        total.update(_array(chunk))
    seal = torch.empty(total.digest_size, dtype=torch.uint8)
    _receive(seal, peer, _TAG_SEAL, group).wait()
    if seal.numpy().tobytes() != total.digest():
        raise TransferRefused(f"the state that rank {peer} sent was damaged on the way")
    _adopt(state, scratch)
    return length, first, second


def _adopt(state: Sequence[torch.Tensor], scratch: torch.Tensor) -> None:
    start = 0
    for tensor in state:
        own = _bytes(tensor)
        own.copy_(scratch[start : start + own.numel()])
        start += own.numel()


def _chunks(state: Sequence[torch.Tensor], length: int) -> Iterator[torch.Tensor]:
    """The state's bytes, packed into two spaces in turn: a chunk is good until the next but one."""
    spaces = [torch.empty(min(CHUNK, length), dtype=torch.uint8) for _ in range(2)]
    used = 0
    for tensor in state:
        rest = _bytes(tensor)
        while rest.numel():
            part = rest[: spaces[0].numel() - used]
            spaces[0][used : used + part.numel()] = part
            used += part.numel()
            rest = rest[part.numel() :]
            if used == spaces[0].numel():
                yield spaces[0]
                spaces.reverse()
                used = 0
    if used:
        yield spaces[0][:used]


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as uint8 [bytes]; shares it."""
    return tensor.detach().view(-1).view(torch.uint8)


def _array(tensor: torch.Tensor) -> Any:
    """The tensor as a buffer on the host, for hashing."""
    return tensor.cpu().numpy()


def _length(state: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state)


def _send(tensor: torch.Tensor, peers: Sequence[int], tag: int, group: Any) -> list[Any]:
    return [dist.isend(tensor, group=group, tag=tag, group_dst=peer) for peer in peers]


def _receive(tensor: torch.Tensor, peer: int, tag: int, group: Any) -> Any:
    return dist.irecv(tensor, group=group, tag=tag, group_src=peer)


def _wait(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()
