"""The package's front door: importing is cheap, every public name resolves, a mistyped one gets help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import kernelweave as kw

SOURCE = Path(kw.__file__).parents[1]


def run_python(code: str) -> str:
    """Run `code` in a fresh interpreter that finds the same kernelweave as this one; return what it printed."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    loaded = run_python("import sys, kernelweave; print(' '.join(sys.modules))").split()
    assert "kernelweave" in loaded
    assert not {"numba", "sklearn", "scipy", "numpy", "joblib", "rich", "highspy"} & set(loaded)


def test_datasets_and_views_do_not_load_the_compiler():
    code = "import sys, kernelweave as kw; kw.datasets.make_views(20, random_state=0); print('numba' in sys.modules)"
    assert run_python(code) == "False"


@pytest.mark.parametrize("name", kw.__all__)
def test_every_public_name_resolves(name):
    value = getattr(kw, name)
    if isinstance(value, (type, types.FunctionType)):
        assert value.__name__ == name
        assert value.__doc__, f"{name} has no docstring"
    elif isinstance(value, types.ModuleType):
        assert value.__name__ == f"kernelweave.{name}"
    else:
        assert name == "__version__"


def test_dir_lists_public_names_before_they_are_loaded():
    listed = run_python("import kernelweave; print(' '.join(dir(kernelweave)))").split()
    assert set(kw.__all__) <= set(listed)


def test_version_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?(dev|a|b|rc)\d+)?", kw.__version__)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(AttributeError, match=r"no attribute 'MKLClasifier'; did you mean 'MKLClassifier'\?"):
        _ = kw.MKLClasifier


def test_unknown_name_far_from_all_lists_what_exists():
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'; it has: .*MKLRegressor.*weights"):
        _ = kw.zzz


def test_star_import():
    code = "from kernelweave import *; print(MKLClassifier.__name__, weights.__name__)"
    assert run_python(code) == "MKLClassifier kernelweave.weights"


def python_blocks(document: Path) -> str:
    """All Python code of a Markdown file, in order; later blocks may use what earlier ones defined."""
    return "\n".join(re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), flags=re.DOTALL))


def test_readme_code_runs():
    readme = SOURCE.parent / "README.md"
    if not readme.exists():
        pytest.skip("not a checkout: there is no README beside the sources")
    code = python_blocks(readme)
    assert "MKLClassifier" in code
    printed = run_python(code)
    assert re.search(r"accuracy: 0\.[6-9]\d*", printed)
    assert re.search(r"^useful0\S* +█", printed, flags=re.MULTILINE)


def test_demo_prints_its_table_and_writes_its_pictures(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from kernelweave import demo

    demo.main(["--output", str(tmp_path / "pictures"), "--samples", "150"])
    printed = capsys.readouterr().out
    for method in ("average", "best", "l1", "l2"):
        assert re.search(rf"^\W*{method}\W+\d+\.\d%", printed, flags=re.MULTILINE), f"no row for {method}"
    assert re.search(r"^pixels\S* +[█▏▎▍▌▋▊▉]", printed, flags=re.MULTILINE)
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {"weights.png", "gap.png"}


def test_demo_refuses_to_leave_nothing_to_test_on(capsys):
    from kernelweave import demo

    with pytest.raises(SystemExit):
        demo.main(["--samples", "1797"])
    assert "between 100 and 1500" in capsys.readouterr().err
