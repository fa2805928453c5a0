import logging

from unicron.controlplane.cli.stderr_log import logged_on_stderr


def test_a_warning_is_a_line_and_tries_of_the_exporter_are_none(capsys):
    with logged_on_stderr():
        logging.getLogger("unicron.x").warning("two\nlines of %s", "\x1b[2J")
        logging.getLogger("unicron.x").info("detail")
        logging.getLogger("opentelemetry.exporter.otlp").warning("Transient error")
        logging.getLogger("opentelemetry.sdk").error("nothing is collected")
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("warning: two")
    assert "\x1b" not in first
    assert second == "error: nothing is collected"
    before = list(logging.getLogger().handlers)
    with logged_on_stderr():
        assert len(logging.getLogger().handlers) == len(before) + 1
    assert logging.getLogger().handlers == before
