from unicron.events import LogBroken, LogError, LogMismatch, UnicronError


def test_an_error_says_what_why_and_what_to_do():
    error = LogMismatch("it is another log", why="born later", fix="restore it", code="E-X")
    assert str(error) == "it is another log (E-X)\n  why: born later\n  fix: restore it"
    assert (error.what, error.why, error.fix, error.code) == (
        "it is another log",
        "born later",
        "restore it",
        "E-X",
    )
    assert isinstance(error, LogError)
    assert isinstance(error, UnicronError)


def test_parts_may_be_missing_and_the_code_has_a_default():
    assert str(LogBroken("cut", first_wrong=3)) == "cut (E-LOG-BROKEN)"
    assert LogBroken("cut", first_wrong=3).first_wrong == 3
