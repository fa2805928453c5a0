"""What a training thread can meet in a collective."""

from unicron.events.errors import UnicronError


class CollectiveBroken(UnicronError):
    """A collective, or the way into it, failed: a peer went away, somebody shut the generation, a
    limit passed. The trainer keeps all it holds; leave the generation and enter the next."""

    default_code = "E-COLLECTIVE-BROKEN"


class DivergenceError(UnicronError):
    """The members' gradients, iterations or states aren't equal although they must be. Nobody has
    stepped. Going on would train several models under one name."""

    default_code = "E-DIVERGENCE"


class LossNotFinite(UnicronError):
    """The loss of a micro-batch is NaN or infinite; nothing of it was kept. A sick device if it is
    this member's alone, the training itself if every member meets it."""

    default_code = "E-LOSS-NOT-FINITE"


class TransferRefused(UnicronError):
    """The state that arrived is not what its donor sent, or not of this task's shape. Nothing of
    it was adopted."""

    default_code = "E-TRANSFER"
