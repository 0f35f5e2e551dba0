"""Examples are looked for in all modules, except in those that need a package that is not installed here."""

import importlib.util

import pytest

NEEDS = {
    "torch": ["device_kernels.py", "triton_kernels.py", "triton_shift.py"],
    "triton": ["triton_kernels.py", "triton_shift.py"],
}
missing = [package for package in NEEDS if importlib.util.find_spec(package) is None]
collect_ignore = [f"src/kernelweave/kernels/{name}" for package in missing for name in NEEDS[package]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An example runs as a reader would paste it: what it needs it imports, nothing comes from the module around it."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.dtest.globs.clear()
