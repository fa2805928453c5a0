"""docs/api.md lists what the packages export, no more and no less; what README promises runs."""

import importlib
import re
import subprocess
import sys

import pytest

from tests.architecture.sources import REPO, ROOTS

API = (REPO / "docs" / "api.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (\S.*\S) \|$", re.MULTILINE)


def _section(package):
    _, _, rest = API.partition(f"## `unicron.{package}`\n")
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("package", ROOTS)
def test_every_public_name_is_listed_with_what_it_is(package):
    listed = [name for name, _ in ROW.findall(_section(package))]
    exported = importlib.import_module(f"unicron.{package}").__all__
    assert len(listed) == len(set(listed))
    assert set(listed) == set(exported)
    assert len(listed) == _section(package).count("\n| `")


def test_there_is_no_other_section():
    assert re.findall(r"^## `unicron\.(\w+)`$", API, re.MULTILINE) == list(ROOTS)


def test_the_snippet_in_readme_runs_and_is_as_short_as_it_says(tmp_path):
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    _, _, section = readme.partition("## Embed it in 12 lines\n")
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) == 12
    file = tmp_path / "snippet.py"
    file.write_text(code + "\nprint('done')\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "completed iteration 20\ndone\n"
