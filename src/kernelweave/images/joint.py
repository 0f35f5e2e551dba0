"""Kernels over the views of several features, as lines of a list of features."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernels import Kernel, Product
from .base import Array, Feature, Learned, Picture
from .checks import check_whole


@dataclass(frozen=True)
class ProductOf(Feature):
    """The product of the kernels of other features in the same list: one more kernel, and no view of its own.

    Parameters
    ----------
    features : tuple of Feature
        They are in the list as well.
    name : str
        Name of the kernel.
    most : int, optional
        Take only the first so many kernels.

    Examples
    --------
    >>> from kernelweave.images import PHOG, ProductOf
    >>> ProductOf((PHOG(layouts=("1x1", "2x2")),), "phog-levels").kernels
    {'phog-levels': Product({'phog360/1x1': ChiSquared()}, {'phog360/2x2': ChiSquared()})}
    """

    features: tuple[Feature, ...]
    name: str
    most: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.features, tuple) or not all(isinstance(feature, Feature) for feature in self.features):
            raise TypeError(f"features of ProductOf is a tuple of features, got {self.features!r}")
        if not self.features or not isinstance(self.name, str) or not self.name:
            raise ValueError(f"ProductOf needs features and a name, got {self.features!r} and {self.name!r}")
        if self.most is not None:
            check_whole(self, "most")

    @property
    def views(self) -> tuple[str, ...]:
        return ()

    @property
    def kernels(self) -> dict[str, Kernel]:
        factors = [kernel for feature in self.features for kernel in feature.kernels.items()]
        return {self.name: Product(dict(factors[: self.most]))}

    def describe(self, picture: Picture, learned: Learned) -> list[Array]:
        return []
