"""Every page of the gallery runs from beginning to end, and shows something."""

import runpy
import warnings
from pathlib import Path

import matplotlib
import pytest

PAGES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs(page, tmp_path, monkeypatch, capsys):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)  # whatever a page writes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a page may show what a warning is about
        runpy.run_path(str(page))
    figures = plt.get_fignums()
    plt.close("all")
    assert figures or capsys.readouterr().out
