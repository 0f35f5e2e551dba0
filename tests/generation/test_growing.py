"""A bank that grows holds what a bank that is built at once holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from kernelweave.generation import GrowingBank
from kernelweave.kernels import Gaussian, KernelBank, Linear, Normalised, Product
from kernelweave.kernels.fitting import Item
from kernelweave.views import Views


@dataclass
class Column:
    item: Item


KERNELS = [
    ("x", Gaussian(0.5)),
    ("x", Gaussian(2.0)),
    ("z", Linear()),
    ("z", Normalised(Gaussian(), "center")),
    ("x", Linear()),
    ("z", Gaussian(3.0)),
]


def features():
    rng = np.random.default_rng(0)
    return Views({"x": rng.standard_normal((20, 3)), "z": rng.standard_normal((20, 2))})


def columns(*which):
    return [Column(Item(f"{KERNELS[j][0]}:{KERNELS[j][1].label}", *KERNELS[j])) for j in which]


def expected(which, views):
    banks = [KernelBank({KERNELS[j][0]: KERNELS[j][1]}, dtype="float64").build(views) for j in which]
    return np.array([bank.gram(0) for bank in banks])


def test_values_after_adding_and_removing():
    views = features()
    growing = GrowingBank(views, "float64")
    held = []
    for new, kept in (
        ((0, 1), [True, False]),
        ((2, 3), [True, True, False]),
        ((4, 5, 1), [False, True, True, True, True]),
    ):
        growing.add(columns(*new))
        held += new
        bank = growing.bank
        np.testing.assert_allclose([bank.gram(j) for j in range(len(held))], expected(held, views), atol=1e-12)
        growing.keep(np.array(kept))
        held = [j for j, keep in zip(held, kept, strict=True) if keep]
    bank = growing.bank
    np.testing.assert_allclose([bank.gram(j) for j in range(len(held))], expected(held, views), atol=1e-12)
    assert [item.kernel for item in growing.items] == [KERNELS[j][1] for j in held]
    assert len(growing.nodes) == bank.n_kernels == len(held)


def test_places_are_used_again():
    growing = GrowingBank(features(), "float64")
    growing.add(columns(0, 1, 2, 3))
    rows = len(growing._data)
    for _ in range(20):
        growing.keep(np.array([True, True, False, False]))
        growing.add(columns(4, 5))
    assert len(growing._data) == rows


def test_products_and_nothing():
    views = features()
    growing = GrowingBank(views, "float64")
    growing.add([])
    product = Product({"x": Gaussian(), "z": Gaussian()})
    growing.add([Column(Item("both", None, product))])
    np.testing.assert_allclose(
        growing.bank.gram(0), KernelBank({"both": product}, dtype="float64").build(views).gram(0)
    )


def test_kernels_that_are_not_positive_are_refused():
    from kernelweave.kernels import FromFunction

    growing = GrowingBank(features())
    with pytest.raises(ValueError, match="not positive semi-definite"):
        growing.add([Column(Item("x:odd", "x", FromFunction(lambda A, B: -(A @ B.T))))])
