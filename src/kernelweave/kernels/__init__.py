"""Kernels: how to write them (`Gaussian`, `ChiSquared`, ...), banks of them (`KernelBank`, `Bank`), and families."""

from .aligned import alignment, polarisation
from .bank import Bank
from .blends import ChiSquaredGaussian, ChiSquaredGaussianFamily
from .combined import geometric_mean
from .expansion import Expansion
from .families import DistanceProductFamily, Family, GaussianFamily, ParametricFamily, PolynomialFamily
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
from .linear_maps import LinearMapFamily
from .matching import Matching
from .pools import FiniteFamily, SampledFamily
from .scaled import Scaled
from .steps import Normalised, Repaired

__all__ = [
    "AdditiveChiSquared",
    "Bank",
    "ChiSquared",
    "ChiSquaredGaussian",
    "ChiSquaredGaussianFamily",
    "DistanceProductFamily",
    "Expansion",
    "Family",
    "FiniteFamily",
    "FromFunction",
    "Gaussian",
    "GaussianFamily",
    "HistogramIntersection",
    "InverseDistance",
    "InverseSquaredDistance",
    "Kernel",
    "KernelBank",
    "Laplacian",
    "Linear",
    "LinearMapFamily",
    "Matching",
    "Mean",
    "Normalised",
    "ParametricFamily",
    "Polynomial",
    "PolynomialFamily",
    "Precomputed",
    "Product",
    "Repaired",
    "SampledFamily",
    "Scaled",
    "alignment",
    "geometric_mean",
    "polarisation",
]
