"""SimpleMKL by itself."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import KernelStack, MKLClassifier


@pytest.mark.parametrize("n_others", [1, 3, 12])
def test_all_weight_to_one_kernel(n_others: int) -> None:
    """Steps that empty all weights but one leave a direction of rounding, which must not empty that one as well."""
    rng = np.random.default_rng(n_others)
    y = np.where(np.arange(40) % 2, 1.0, -1.0)
    knows = 0.3 * np.outer(y, y) + 0.7 * np.eye(40)
    noise = [B @ B.T / 60 for B in rng.standard_normal((n_others, 40, 60))]
    model = MKLClassifier(kernels="precomputed", solver="reduced-gradient").fit(KernelStack([knows, *noise]), y)
    assert model.weights_.tolist() == [1.0] + n_others * [0.0]
    assert model.gap_ <= 1e-3
