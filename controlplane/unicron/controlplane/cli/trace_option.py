"""`unicron audit … --trace FILE`: the traces of incidents for a tracing tool, from an old log."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from unicron.controlplane.cli.target import STDOUT, named, write_whole
from unicron.events import ConfigError

if TYPE_CHECKING:
    from unicron.controlplane.cli.log_source import Log

trace_option = click.option(
    "--trace",
    "trace_file",
    callback=named,
    metavar="FILE",
    help="Write the incident's OpenTelemetry trace (OTLP JSON), without an id those of all. - is "
    "stdout.",
)


def write_traces(path: str, log: "Log", wanted: Iterable[str] | None) -> str:
    """Write the traces of the incidents `wanted` (None: all) to the file; a line that says what was
    written, "" if that went to stdout. The same log gives the same bytes. ConfigError if the file
    can't be written."""
    from unicron.controlplane.replay.casefile import cases_of
    from unicron.controlplane.replay.otlp import otlp_json
    from unicron.controlplane.replay.phrases import one_line
    from unicron.controlplane.replay.spans import spans_of

    traces = [
        spans_of(case, cluster=log.cluster, birth=log.birth)
        for case in cases_of(log.events, wanted)
    ]
    spans = [span for trace in traces for span in trace]
    try:
        write_whole(path, otlp_json(spans))
    except OSError as error:
        raise ConfigError(
            f"can't write the traces to {path}",
            why=error.strerror or str(error),
            fix="give a file in a folder that you may write to",
            code="E-TRACE-FILE",
        ) from error
    if path == STDOUT:
        return ""
    plural = "" if len(traces) == 1 else "s"
    return one_line(f"{len(traces)} trace{plural} with {len(spans)} spans written to {path}")
