"""The training thread's library: one replica that computes, reduces, votes, steps and moves state.

Synchronous and single-threaded; only `Trainer.connections.shut` may be called from elsewhere. What
fails in a collective raises CollectiveBroken and loses nothing: leave, regroup, go on. `phase` is
called at each change of phase, before anything of that phase happens, and may raise: then nothing
of it has happened. (Between the calls `step` and `committed` nothing interrupts.)

    trainer = Trainer(spec, phase)               # builds apart from everybody
    trainer.start()                              # or receive_state: then it has a state
    trainer.regroup(generation, rank, dp, address, port, timeout_s)
    trainer.compute(ids); trainer.reduce(assignment)
    trainer.vote(newest_order); trainer.step()
"""

import hashlib
import math
import platform
from collections.abc import Callable, Sequence

import megatron.core
import msgspec
import torch
import torch.distributed as dist
from megatron.core.distributed import finalize_model_grads

from unicron.events.errors import ConfigError
from unicron.events.task import TaskSpec
from unicron.worker_shim.megatron import cpu_compat, state
from unicron.worker_shim.megatron.compute import Compute
from unicron.worker_shim.megatron.errors import DivergenceError, LossNotFinite
from unicron.worker_shim.megatron.exchange import Exchange, gather_exactly
from unicron.worker_shim.megatron.groups import Groups, broken
from unicron.worker_shim.megatron.held import Held
from unicron.worker_shim.megatron.model import build
from unicron.worker_shim.megatron.norm import use_local_norm
from unicron.worker_shim.megatron.text import Text
from unicron.worker_shim.unblock import Connections

#: Called with the phase and the micro-batch it is about, or -1.
OnPhase = Callable[[str, int], None]


def _ignore(phase: str, micro_batch: int = -1) -> None:
    pass


class Trainer:
    """One member's replica of `spec`, built on construction, apart from any real process group.

    Raises ValueError for a task this adapter can't train, OSError if its text can't be read,
    ConfigError where there is a CUDA device.
    """

    def __init__(
        self, spec: TaskSpec, phase: OnPhase = _ignore, connections: Connections | None = None
    ) -> None:
        torch.set_num_threads(1)  # kernels split sums by thread, so the count is part of the result
        if not cpu_compat.apply():
            raise ConfigError(
                "this adapter trains on CPUs with gloo, and here is a CUDA device",
                why="what hasn't been run on GPUs with NCCL isn't pretended to work",
                fix="start the worker with CUDA_VISIBLE_DEVICES= (empty)",
                code="E-WORKER-CUDA",
            )
        phase("build", -1)
        self.spec = spec
        self.connections = connections or Connections()
        #: Committed iterations.
        self.iteration = 0
        #: Whether `step` needs no other member any more: the reduced gradient is in the buffers.
        self.reduced = False
        #: Whether the vote on it came back: every member has the same reduced gradient.
        self.voted = False
        self.has_state = False
        #: For the fault injector: the next micro-batch's loss is NaN.
        self.spoil = False
        self._phase = phase
        self._groups = Groups(spec.task, self.connections)
        self._held = Held(spec.micro_batches)
        self._losses: dict[int, float] = {}  # sums over tokens, of the micro-batches held
        #: Mean loss per token of the iteration reduced last.
        self.loss = 0.0
        self._exchange = Exchange(self._held.tree)
        size = spec.model
        self._text = Text(spec.data, spec.seed, size.seq_length, size.micro_batch_size)
        with self._groups.apart():
            self._built = build(spec)
            self._groups.remember(self._built.ddp, self._built.optimizer, self._built.config)
            use_local_norm(self._built.optimizer)
        self._built.ddp.finish_grad_sync = self._sync_gradients
        self._state = state.tensors(self._built)
        self._compute = Compute(spec, self._built, self._text, phase)
        self._assignment: tuple[tuple[int, ...], ...] = ()
        self.spec_digest = _digest(spec, self._text.digest)

    @property
    def parameters(self) -> int:
        """Number of the model's parameters."""
        return self._built.parameters

    @property
    def generation(self) -> int | None:
        """The generation this member stands in, None between two."""
        return self._groups.generation

    @property
    def kept(self) -> tuple[int, ...]:
        """Micro-batches of the current iteration whose gradients are held, ascending."""
        return self._held.leaves

    # --- Membership ---

    def regroup(
        self,
        generation: int,
        rank: int,
        dp: int,
        store_address: str,
        store_port: int,
        timeout_s: float,
    ) -> None:
        """Enter `generation` as `rank` of `dp`; blocks until all members have come. What is held
        and reduced stays. CollectiveBroken if the others don't come within `timeout_s` (which
        limits each later collective too) or if the generation is shut."""
        self._phase("regroup", -1)
        self._groups.enter(generation, rank, dp, (store_address, store_port), timeout_s)

    def farewell(self, timeout_s: float) -> None:
        """Before a planned `leave`: wait until every member has finished its last collective of
        this generation. Runs over the store alone, which no member hosts."""
        self._groups.farewell(timeout_s)

    def leave(self) -> None:
        """Leave the generation at once, broken or not; no other member is waited for."""
        self._groups.leave()

    # --- State ---

    def start(self) -> None:
        """Take the initial state, which follows from the seed, as this member's own."""
        if self.iteration:
            raise RuntimeError(f"iteration {self.iteration} is committed: too late to start")
        self.has_state = True

    def send_state(self, ranks: Sequence[int]) -> int:
        """Send parameters, optimizer state and iteration to other ranks; returns bytes sent to
        each. CollectiveBroken when one is gone."""
        self._require()
        self._phase("transfer", -1)
        numbers = (self.iteration, self._built.scheduler.num_steps)
        with broken("sending the state"):
            return state.send(self._state, numbers, ranks, self._groups.data_parallel)

    def receive_state(self, rank: int) -> int:
        """Take over the state of `rank`; returns bytes received. CollectiveBroken when it is gone,
        TransferRefused when it doesn't fit; then nothing has changed."""
        self._phase("transfer", -1)
        with broken("receiving the state"):
            count, iteration, position = state.receive(
                self._state, rank, self._groups.data_parallel
            )
        self.iteration = iteration
        self._built.scheduler.num_steps = position
        self._built.scheduler.step(0)
        self._forget()
        self.has_state = True
        return count

    def state_digest(self) -> str:
        """SHA-256 of the iteration and the whole state, in hexadecimal."""
        return state.digest(self._state, self.iteration)

    # --- An iteration ---

    def compute(self, micro_batches: Sequence[int]) -> None:
        """Forward and backward of these micro-batches of the current iteration, one after the
        other. Each is kept as soon as its backward pass is done; those held are skipped. A
        reduced gradient, if there is one, is given up when there is something to compute.
        LossNotFinite when a loss is NaN or infinite."""
        self._require()
        for micro_batch in micro_batches:
            if micro_batch not in self._losses:
                self.reduced = self.voted = False  # the buffers are about to be used
                loss = self._compute.run(self.iteration, micro_batch)
                if self.spoil:
                    self.spoil, loss = False, math.nan
                if not math.isfinite(loss):
                    raise LossNotFinite(
                        f"the loss of micro-batch {micro_batch} in iteration {self.iteration} is"
                        f" {loss}"
                    )
                self._held.add(micro_batch, self._built.buffers)
                self._losses[micro_batch] = loss

    def reduce(self, assignment: Sequence[Sequence[int]]) -> None:
        """Sum the gradients of all members. `assignment`: per rank the micro-batches it holds.

        Afterwards the buffers have the whole iteration's gradient, scaled by 1 / tokens, on every
        member. CollectiveBroken leaves what is held as it was: call it again in another
        generation. ValueError if this member doesn't hold what the assignment says.
        """
        self._require()
        if self.kept != tuple(sorted(assignment[self._groups.rank])):
            raise ValueError(
                f"rank {self._groups.rank} holds {self.kept},"
                f" the assignment says {tuple(assignment[self._groups.rank])}"
            )
        self._phase("reduction", -1)
        self.reduced = self.voted = False
        self._assignment = tuple(tuple(leaves) for leaves in assignment)
        size = self.spec.model
        tokens = len(self.kept) * size.micro_batch_size * size.seq_length
        with broken("the reduction"):
            self.connections.check()
            finalize_model_grads([self._built.ddp], torch.tensor(tokens, dtype=torch.int))
            self.loss = self._gather_loss()
        self.reduced = True

    def withdraw(self) -> None:
        """Forget the reduced gradient, not what is held: the iteration is to be reduced again, by
        other members, since not all of the old ones got so far."""
        self.reduced = self.voted = False

    def vote(self, newest_order: int) -> int:
        """Agree with all members on the iteration and the reduced gradient, so that each may step.
        Returns the largest `newest_order` of all. CollectiveBroken; DivergenceError, and then
        nobody has stepped."""
        self._require()
        if not self.reduced:
            raise RuntimeError("there is no reduced gradient to vote on")
        self._phase("vote", -1)
        mine = [self.iteration, sum(_checksum(buffer) for buffer in self._built.buffers)]
        # MAX over integers is exact; a maximum of x and one of -x show whether all x are equal.
        ballot = torch.tensor([newest_order, *mine, *(-x for x in mine)], dtype=torch.int64)
        with broken("the vote"):
            self.connections.check()
            dist.all_reduce(ballot, op=dist.ReduceOp.MAX, group=self._groups.data_parallel)
        newest, *highest = ballot.tolist()
        if highest != [*mine, *(-x for x in mine)]:
            raise DivergenceError(
                f"members disagree in the vote of iteration {self.iteration}",
                why=f"iteration and gradient checksum here {mine}, highest {highest[:2]},"
                f" lowest {[-x for x in highest[2:]]}",
                fix="compare thread counts, versions and text of the members' hosts",
            )
        self.voted = True
        self._phase("voted", -1)
        return int(newest)

    def step(self) -> float:
        """Clip, step, move the schedule: the iteration is committed. Returns its mean loss per
        token. Involves no other member and needs no generation."""
        if not self.reduced:
            raise RuntimeError("there is no reduced gradient to step with")
        self._phase("step", -1)
        self._built.optimizer.step()
        # Gradients are views of the buffers here; left behind, autograd would add into them.
        self._built.optimizer.zero_grad()
        self.iteration += 1
        self._built.scheduler.step(1)
        self._forget()
        self._phase("committed", -1)
        return self.loss

    # --- Parts ---

    def _require(self) -> None:
        if not self.has_state:
            raise RuntimeError("this member has no state yet: start it or receive one")
        if self._groups.generation is None:
            raise RuntimeError("this member stands in no generation")

    def _forget(self) -> None:
        self._held.clear()
        self._losses.clear()
        self.reduced = self.voted = False

    def _sync_gradients(self, force_all_reduce: bool = False) -> None:
        """In place of DistributedDataParallel.finish_grad_sync; finalize_model_grads calls it."""
        tree, group = self._held.tree, self._groups.data_parallel
        roots = [tree.decompose(leaves) for leaves in self._assignment]
        for index, buffer in enumerate(self._built.buffers):
            mine = {node: sums[index] for node, sums in self._held.sums.items()}
            self._exchange.all_reduce(roots, mine, buffer, group)

    def _gather_loss(self) -> float:
        """Mean loss per token of the iteration: all micro-batches' sums, added in their order."""
        sums = torch.zeros(self.spec.micro_batches, dtype=torch.float64)
        for micro_batch, loss in self._losses.items():
            sums[micro_batch] = loss
        gather_exactly(sums, self._groups.data_parallel)
        size = self.spec.model
        tokens = self.spec.micro_batches * size.micro_batch_size * size.seq_length
        return float(sum(sums.tolist()) / tokens)


def _checksum(buffer: torch.Tensor) -> int:
    """A number that changes with any bit of a float32 buffer: the sum of its words as integers."""
    return int(buffer.view(torch.int32).sum(dtype=torch.int64).item())


def _digest(spec: TaskSpec, text: str) -> str:
    """SHA-256 of all that must be equal on every member for their gradients to be: the task, its
    text, the versions of what computes, the number of threads."""
    parts = (
        msgspec.json.encode(spec, order="deterministic").decode(),
        text,
        torch.__version__,
        megatron.core.__version__,
        platform.machine(),
        str(torch.get_num_threads()),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
