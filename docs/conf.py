"""Sphinx configuration: plain reStructuredText, a gallery that is run, and an API reference taken from __all__."""

from __future__ import annotations

from pathlib import Path

import kernelweave

HERE = Path(__file__).parent

project = "kernelweave"
author = "The kernelweave developers"
copyright = "The kernelweave developers"
release = kernelweave.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "generated/*.inc"]
default_role = "literal"  # `name` in docstrings is code

autosummary_generate = True
autosummary_ignore_module_all = False  # the reference lists exactly what __all__ lists
autosummary_imported_members = True
autosummary_context = {"top_level": kernelweave.__all__}  # these have a page of their own, which modules do not repeat
autodoc_typehints = "none"  # numpydoc sections say it with shapes
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]  # "shape" and "n_samples" in the type of a parameter are words, not links

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "abort_on_example_error": True,
}

html_theme = "furo"
html_title = f"kernelweave {release}"
html_static_path = ["_static"]


def write_pairings(app: object) -> None:
    """Write the table of solvers and weight sets that go together, from the check that the solvers themselves use."""
    from kernelweave import weights
    from kernelweave.solvers import choose, pairings

    partners = pairings()
    weight_sets = list(dict.fromkeys(name for names in partners.values() for name in names))
    rows = [["weight set", "``auto`` means", *(f"``{solver}``" for solver in partners)]]
    for name in weight_sets:
        automatic = choose(eval(name, vars(weights) | {"inf": float("inf")}))  # weight sets print as they are made
        rows.append([f"``{name}``", automatic, *("yes" if name in names else "" for names in partners.values())])
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        lines += [f"   {'* -' if position == 0 else '  -'} {cell}".rstrip() for position, cell in enumerate(row)]
    folder = HERE / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "pairings.inc").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app) -> None:
    app.connect("builder-inited", write_pairings)
