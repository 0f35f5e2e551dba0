"""The presets: what they are made of, that they work, and that they survive being written down."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kernelweave._spec import from_spec, to_spec
from kernelweave.datasets import make_scenes
from kernelweave.images import PRESETS, RECIPES, BoxWords, Feature, ImageFeatures, KMeans, ProductOf, preset
from kernelweave.images.bag import LocalWords
from kernelweave.kernels import Mean, Product

KERNELS = {"quick": 10, "voc15": 15, "imagenet10": 10, "flowers": 7, "caltech48": 48}


def test_all_presets_are_listed():
    assert set(PRESETS) == set(KERNELS)


@pytest.mark.parametrize("name", PRESETS)
def test_number_of_kernels(name):
    assert len(ImageFeatures(name).kernel_bank().kernels) == KERNELS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_list_of_its_own(name):
    lines = preset(name)
    assert all(isinstance(line, Feature) for line in lines)
    lines.clear()
    assert preset(name)


@pytest.mark.parametrize("name", PRESETS)
def test_written_down_and_read_again(name):
    specs = json.loads(json.dumps([to_spec(line) for line in preset(name)]))
    assert [from_spec(spec, RECIPES) for spec in specs] == preset(name)


def test_unknown_preset():
    with pytest.raises(ValueError, match="no preset is called 'fast'; there are 'quick', 'voc15'"):
        preset("fast")


def test_the_joined_kernels_of_the_caltech_study():
    kernels = ImageFeatures("caltech48").kernel_bank().kernels
    windows = [kernel for kernel in kernels.values() if isinstance(kernel, Mean)]
    products = [kernel for kernel in kernels.values() if isinstance(kernel, Product)]
    assert [len(kernel.factors) for kernel in windows] == [100, 100]
    assert [len(kernel.factors) for kernel in products] == [4, 4, 4, 4, 4]


def smaller(feature):
    """The same with few words and boxes, which few pictures suffice for."""
    if isinstance(feature, ProductOf):
        return replace(feature, features=tuple(map(smaller, feature.features)))
    if isinstance(feature, BoxWords):
        feature = replace(feature, boxes=3)
    return replace(feature, words=KMeans(8)) if isinstance(feature, LocalWords) else feature


@pytest.mark.filterwarnings("ignore:all training samples are equal")  # small boxes of small pictures are empty
@pytest.mark.parametrize("name", PRESETS)
def test_every_line_describes_pictures(name):
    scenes = make_scenes(5, size=48, random_state=0)
    images = ImageFeatures([smaller(line) for line in preset(name)])
    views = images.fit_transform(scenes.pictures)
    bank = images.kernel_bank().build(views)
    assert bank.n_kernels == KERNELS[name]
    combined = bank.combine(np.full(bank.n_kernels, 1 / bank.n_kernels))
    assert np.linalg.eigvalsh(combined.astype(float))[0] > -1e-5
    np.testing.assert_allclose(combined.diagonal(), 1.0, atol=0.05)
