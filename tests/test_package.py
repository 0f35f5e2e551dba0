"""The package's front door: importing is cheap, every public name resolves, a mistyped one gets help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest

import kernelweave as kw

SOURCE = Path(kw.__file__).parents[1]


def run_python(code: str) -> str:
    """Run `code` in a fresh interpreter that finds the same kernelweave as this one, in an empty folder; return what it
    printed."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120, cwd=folder
        )
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


def test_demo_goes_the_whole_way(tmp_path, capsys):
    from kernelweave import demo

    demo.main(["--output", str(tmp_path / "out"), "--pictures", "60"])
    printed = capsys.readouterr().out
    for label in ("circle", "red", "night"):
        assert re.search(rf"{label} +\| \S+ \d+%", printed), f"no row for {label}"
    assert re.search(r"Mean average precision: 0\.[5-9]", printed)
    assert "% are right" in printed
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert made == {"pictures", "new", "model.kw", "report.html"}
    assert kw.PictureTagger.load(tmp_path / "out" / "model.kw").tag([tmp_path / "out/new/scene-0001.png"], top=1)


def test_demo_refuses_too_few_pictures(capsys):
    from kernelweave import demo

    with pytest.raises(SystemExit):
        demo.main(["--pictures", "10"])
    assert "between 60 and 5000" in capsys.readouterr().err
