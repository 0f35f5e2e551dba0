"""Kernels: how to write them (`Gaussian`, `ChiSquared`, ...), and banks of them (`KernelBank`, `Bank`)."""

from .bank import Bank
from .expansion import Expansion
from .functions import (
    AdditiveChiSquared,
    ChiSquared,
    FromFunction,
    Gaussian,
    HistogramIntersection,
    InverseDistance,
    InverseSquaredDistance,
    Kernel,
    Laplacian,
    Linear,
    Mean,
    Polynomial,
    Precomputed,
    Product,
)
from .kernel_bank import KernelBank
from .matching import Matching
from .steps import Normalised, Repaired

__all__ = [
    "AdditiveChiSquared",
    "Bank",
    "ChiSquared",
    "Expansion",
    "FromFunction",
    "Gaussian",
    "HistogramIntersection",
    "InverseDistance",
    "InverseSquaredDistance",
    "Kernel",
    "KernelBank",
    "Laplacian",
    "Linear",
    "Matching",
    "Mean",
    "Normalised",
    "Polynomial",
    "Precomputed",
    "Product",
    "Repaired",
]
