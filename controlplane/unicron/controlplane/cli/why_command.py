"""`unicron why`: the chain of causes of an event, or of what an id stands for."""

import click

from unicron.controlplane.cli import options
from unicron.controlplane.cli.output import duration, emit, hung, table, width


@click.command()
@click.argument("what", metavar="SEQ|ID")
@options.log_options
@options.at_option
@options.json_option
@options.verbose_option
def why(what: str, log: str, cluster: str | None, at: int | None, as_json: bool) -> None:
    """Why is it so? The chain of causes, back to the first evidence.

    SEQ is an event, such as 48211. ID is a node (why is n2 isolated?), a task (why did gpt
    shrink?), a worker (why did n2/1 end?) or an incident, or the beginning of one. T+ counts from
    the oldest event that is told.
    """
    from unicron.controlplane.cli.opened import document, next_lines, open_book
    from unicron.controlplane.cli.story_text import causes

    opened = open_book(log, cluster, at)
    chain = opened.book.why(what)
    if as_json:
        emit(document("unicron.why/1", opened, chain))
        return
    rows = [
        (
            f"#{link.event.seq}",
            duration(link.event.t_plus_ms),
            link.event.who,
            causes(link.event.because) if not link.root else "-",
            link.event.what,
        )
        for link in chain.links
    ]
    lines = [hung(text, 2, width()) for text in chain.answer]
    lines += ["", table(("SEQ ", "T+ ", "WHO", "BECAUSE", "WHAT"), rows, width())]
    if chain.left_out:
        lines.append(f"and {chain.left_out} more events that led to these")
    if chain.others:
        asked = [(f"#{other.seq}", other.what) for other in chain.others]
        lines += ["", "ONE MAY ALSO ASK WHY", table(("", ""), asked, width()).lstrip("\n")]
    emit("\n".join([*lines, "", *next_lines(opened, chain.commands)]))
