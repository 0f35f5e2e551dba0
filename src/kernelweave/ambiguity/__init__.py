"""Labels that are not fully known: bags of instances with one label, and few labels among many samples.

``bags.py`` has the container of bags and its splitter; ``multiple_instance.py`` the classifier of bags by their
instances, with ``annealing.py`` for what is hidden; ``set_kernels.py`` classifiers of bags as wholes, to compare with.
"""

from .bag_estimator import median_gaussian
from .bags import BagKFold, Bags, as_bags, bag_labels, whole_bags
from .multiple_instance import MIClassifier
from .set_kernels import BagKernelClassifier, bag_statistics, set_kernel

__all__ = [
    "BagKFold",
    "BagKernelClassifier",
    "Bags",
    "MIClassifier",
    "as_bags",
    "bag_labels",
    "bag_statistics",
    "median_gaussian",
    "set_kernel",
    "whole_bags",
]
