"""What a worker tells the log, said once: who speaks is the same in every fact."""

import os
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from unicron.events.ids import Generation
from unicron.events.member import MemberCommitted, MemberFinished, MemberQuiesced, MemberReady
from unicron.events.union import AnyFact
from unicron.events.worker import ExceptionReported, PeerErrorReported, WorkerPrepared
from unicron.worker_shim import longtext
from unicron.worker_shim.evidence import cut
from unicron.worker_shim.launch import WorkerLaunch

if TYPE_CHECKING:
    from unicron.worker_shim.megatron.trainer import Trainer

_TEXT_MAX = 500
#: Of a traceback that the log holds. Of longer ones it holds the beginning and the end.
TRACEBACK_MAX = 4000


class Facts:
    """Facts of the worker that `launch` describes, about its `trainer`. `publish` doesn't block."""

    def __init__(
        self, launch: WorkerLaunch, trainer: "Trainer", publish: Callable[[AnyFact], object]
    ) -> None:
        self._task = launch.spec.task
        self._worker = launch.worker
        self._incarnation = launch.incarnation
        self._folder = os.path.dirname(launch.log_path)
        self._trainer = trainer
        self._publish = publish

    def prepared(self) -> None:
        """The model is built, and with what."""
        import megatron.core
        import torch

        self._publish(
            WorkerPrepared(
                task=self._task,
                worker=self._worker,
                incarnation=self._incarnation,
                parameters=self._trainer.parameters,
                threads=torch.get_num_threads(),
                torch=str(torch.__version__),
                megatron=str(megatron.core.__version__),
                spec_digest=self._trainer.spec_digest,
            )
        )

    def quiesced(self, closed: Generation, phase: str) -> None:
        """Out of all collectives up to `closed`; what is held. `phase`: where it was stopped."""
        trainer = self._trainer
        self._publish(
            MemberQuiesced(
                task=self._task,
                worker=self._worker,
                incarnation=self._incarnation,
                generation=closed,
                iteration=trainer.iteration if trainer.has_state else -1,
                phase=phase,
                kept=trainer.kept,
                reduced=trainer.reduced,
                voted=trainer.voted,
            )
        )

    def ready(
        self,
        generation: Generation,
        *,
        received_bytes: int,
        unblock_ms: int,
        regroup_ms: int,
        transfer_ms: int,
    ) -> None:
        """In the generation, with its state."""
        self._publish(
            MemberReady(
                task=self._task,
                worker=self._worker,
                incarnation=self._incarnation,
                generation=generation,
                iteration=self._trainer.iteration,
                received_bytes=received_bytes,
                unblock_ms=unblock_ms,
                regroup_ms=regroup_ms,
                transfer_ms=transfer_ms,
            )
        )

    def committed(self, generation: Generation) -> None:
        """The first iteration in the generation is done."""
        self._publish(
            MemberCommitted(
                task=self._task,
                worker=self._worker,
                incarnation=self._incarnation,
                generation=generation,
                iteration=self._trainer.iteration,
            )
        )

    def finished(self, generation: Generation) -> None:
        """The last iteration is done."""
        self._publish(
            MemberFinished(
                task=self._task,
                worker=self._worker,
                incarnation=self._incarnation,
                generation=generation,
                iteration=self._trainer.iteration,
                state_digest=self._trainer.state_digest(),
            )
        )

    def peer_error(self, generation: Generation, phase: str, error: str) -> None:
        """A collective broke."""
        self._publish(
            PeerErrorReported(
                task=self._task,
                worker=self._worker,
                incarnation=self._incarnation,
                generation=generation,
                iteration=self._trainer.iteration,
                phase=phase,
                error=cut(error, _TEXT_MAX),
            )
        )

    def exception(self, generation: Generation, phase: str, error: BaseException) -> None:
        """The training step raised."""
        text = "".join(traceback.format_exception(error))
        whole = longtext.keep(self._folder, text) if len(text) > TRACEBACK_MAX else None
        self._publish(
            ExceptionReported(
                task=self._task,
                worker=self._worker,
                incarnation=self._incarnation,
                generation=generation,
                iteration=self._trainer.iteration,
                phase=phase,
                kind=kind_of(error),
                message=cut(f"{type(error).__name__}: {error}", _TEXT_MAX),
                traceback=cut(text, TRACEBACK_MAX),
                whole=whole,
            )
        )


def kind_of(error: BaseException) -> str:
    """Key of the severity table for what training raised."""
    from unicron.worker_shim.megatron.errors import LossNotFinite

    if isinstance(error, MemoryError):
        return "out_of_memory"
    return "loss.not_finite" if isinstance(error, LossNotFinite) else "software"
