"""`unicron traceback`: what a worker raised, with its traceback, whole."""

from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.output import emit, json_text
from unicron.events import ConfigError, ExceptionReported, LongText, NodeId, Recorded, node_of

if TYPE_CHECKING:
    from unicron.controlplane.cli.log_source import Address


@click.command()
@click.argument("seq", metavar="SEQ", callback=options.sequence)
@options.log_options
@options.json_option
@options.verbose_option
@click.pass_context
def traceback(ctx: click.Context, seq: int, log: str, cluster: str | None, as_json: bool) -> None:
    """The traceback of an exception that a worker reported with event SEQ.

    The log holds the beginning and the end of a long one; the whole is beside it, on its NATS
    server, for a while. Exit code 1: this isn't the whole (any more).
    """
    from unicron.controlplane.cli.failure import NO, YES
    from unicron.controlplane.cli.log_source import address_of, read_log

    address = address_of(log, cluster)
    found = read_log(log, cluster)
    body = _exception(found.events, seq)
    text = body.traceback or body.message
    missing = "" if body.traceback else "the worker's version told the log the message only"
    if body.whole is not None:
        whole = _whole(address, node_of(body.worker), body.whole) if address else None
        text = text if whole is None else whole
        missing = _missing(body.whole, address) if whole is None else ""
    if as_json:
        fields = {
            "schema": "unicron.traceback/1",
            "cluster": found.cluster,
            "log": found.shown,
            "seq": seq,
            "worker": body.worker,
            "kind": body.kind,
            "is_whole": not missing,
            "missing": missing or None,
            "text": text,
        }
        emit(json_text(fields))
    else:
        emit(_safe(text))
        if missing:
            click.echo(f"not the whole: {missing}", err=True)
    ctx.exit(NO if missing else YES)


def _exception(events: tuple[Recorded, ...], seq: int) -> ExceptionReported:
    entry = events[seq - 1] if 1 <= seq <= len(events) else None
    body = entry.envelope.body if entry is not None and entry.envelope is not None else None
    if isinstance(body, ExceptionReported):
        return body
    raised = [
        f"#{r.seq}"
        for r in events
        if r.envelope is not None and isinstance(r.envelope.body, ExceptionReported)
    ]
    raise ConfigError(
        f"event #{seq} is no exception" if entry is not None else f"the log has no event #{seq}",
        why=f"workers raised in {', '.join(raised[-5:])}" if raised else "no worker raised",
        fix="give the sequence of one of these" if raised else "see unicron events",
        code="E-ID-SEQUENCE",
    )


def _missing(text: LongText, address: "Address | None") -> str:
    size = f"{text.size:,} bytes, sha256 {text.sha256}"
    if address is None:
        return f"{size}, were kept beside the log on its server; LOG is a file"
    return (
        f"{size}, aren't beside the log: not yet, or no more. The worker's log file on its node "
        "may have them"
    )


def _whole(address: "Address", node: NodeId, text: LongText) -> str | None:
    import functools

    from anyio.from_thread import start_blocking_portal

    from unicron.controlplane.runtime.jetstream import JetStreamLog

    with start_blocking_portal() as portal:
        connect = functools.partial(JetStreamLog.connect, name="cli/reader", create=False)
        log = portal.call(connect, address.url, address.cluster)
        try:
            return portal.call(log.text, node, text)
        finally:
            portal.call(log.close)


def _safe(text: str) -> str:
    """Without what would command a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
