"""Examples are looked for in all modules, except in those that need a package that is not installed here."""

import importlib.util

NEEDS = {
    "torch": ["device_kernels.py", "triton_kernels.py", "triton_shift.py"],
    "triton": ["triton_kernels.py", "triton_shift.py"],
}
missing = [package for package in NEEDS if importlib.util.find_spec(package) is None]
collect_ignore = [f"src/kernelweave/kernels/{name}" for package in missing for name in NEEDS[package]]
