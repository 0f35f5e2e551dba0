"""Codebooks, and the search for the nearest words against all distances in double precision."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from kernelweave._spec import from_spec, to_spec
from kernelweave.images.words import (
    BLOCK,
    GROUPS,
    VARIANCE,
    KMeans,
    Prototypes,
    nearest_words,
    principal_directions,
    soft_weights,
    spacing,
)

RECIPES = [KMeans, Prototypes]


def all_squared(descriptors, words):
    """Squared distances between all descriptors and words in double precision: (n_descriptors, n_words)."""
    differences = descriptors[:, None].astype(np.float64) - words[None].astype(np.float64)
    return np.einsum("ijk,ijk->ij", differences, differences)


def assert_nearest(descriptors, words, nearest, directions=None):
    """The words found are those of a search in double precision, but where single precision cannot tell them apart."""
    descriptors, words = descriptors.astype(np.float32), words.astype(np.float32)
    numbers, squared = nearest_words(descriptors, words, nearest, directions)
    truth = all_squared(descriptors, words)
    order = np.argsort(truth, axis=1, kind="stable")[:, : nearest + 1]
    found, best = (np.take_along_axis(truth, which, axis=1) for which in (numbers, order[:, :nearest]))
    # A sum of d squares of differences is rounded 2 d times, by half an epsilon each.
    rounding = (words.shape[1] + 2) * np.finfo(np.float32).eps
    assert_allclose(squared, found, rtol=rounding, atol=1e-30)
    assert_allclose(found, best, rtol=2 * rounding, atol=1e-30)
    assert all(len(set(row)) == nearest for row in numbers.tolist())
    gaps = np.diff(np.take_along_axis(truth, order, axis=1), axis=1, append=np.inf)[:, :nearest]
    clear = gaps > 4 * rounding * best
    clear[:, 1:] &= clear[:, :-1]
    assert_array_equal(numbers[clear], order[:, :nearest][clear])
    return clear.mean()


# The search -----------------------------------------------------------------------------------------------------------

#: Distances of these are exact in single precision, and often equal.
quarters = st.integers(-8, 8).map(lambda number: number / 4)


@st.composite
def exact_problems(draw):
    length = draw(st.integers(1, 6))
    words = draw(arrays(np.float32, (draw(st.integers(1, 80)), length), elements=quarters))
    descriptors = draw(arrays(np.float32, (draw(st.integers(1, 8)), length), elements=quarters))
    return descriptors, words, draw(st.integers(1, min(len(words), 7)))


@given(exact_problems())
def test_where_distances_are_exact_the_words_are_those_of_a_sort_and_ties_go_to_the_first(problem):
    descriptors, words, nearest = problem
    truth = all_squared(descriptors, words)
    numbers, squared = nearest_words(descriptors, words, nearest)
    assert_array_equal(numbers, np.argsort(truth, axis=1, kind="stable")[:, :nearest])
    assert_array_equal(squared, np.sort(truth, axis=1)[:, :nearest])


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(1, 70),
    n_words=st.integers(1, 300),
    nearest=st.integers(1, 9),
    spread=st.sampled_from([1e-4, 1.0, 300.0]),
    offset=st.sampled_from([0.0, 1.0, 1000.0]),
    decay=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_the_words_are_those_of_a_search_in_double_precision(seed, length, n_words, nearest, spread, offset, decay):
    rng = np.random.default_rng(seed)
    scales = spread * decay ** np.arange(length)
    words, descriptors = (offset + scales * rng.normal(size=(n, length)) for n in (n_words, 30))
    assert_nearest(descriptors, words, min(nearest, n_words))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_any_orthonormal_directions_give_the_same_words(seed, n_directions):
    rng = np.random.default_rng(seed)
    words, descriptors = rng.normal(size=(150, 20)), rng.normal(size=(40, 20))
    directions = np.linalg.qr(rng.normal(size=(20, n_directions)))[0].astype(np.float32)
    assert_nearest(descriptors, words, 3, directions)


@pytest.mark.parametrize("n_words", [1, GROUPS - 1, GROUPS, GROUPS + 1, 1000])
def test_codebooks_of_all_sizes_around_those_of_groups(n_words):
    rng = np.random.default_rng(n_words)
    words = rng.gamma(0.5, size=(n_words, 128))
    clear = assert_nearest(rng.gamma(0.5, size=(200, 128)), words, 1)
    assert clear > 0.99  # so the exact comparison did take place


def test_more_descriptors_than_a_block_holds():
    rng = np.random.default_rng(0)
    n_words = 500
    descriptors, words = rng.normal(size=(2 * BLOCK // n_words + 7, 3)), rng.normal(size=(n_words, 3))
    assert_nearest(descriptors, words, 2)


def test_words_among_the_descriptors_are_found_at_distance_zero():
    words = np.random.default_rng(0).normal(size=(300, 128)).astype(np.float32)
    numbers, squared = nearest_words(words, words)
    assert_array_equal(numbers[:, 0], np.arange(300))
    assert_array_equal(squared, 0)


def test_descriptors_far_from_all_words():
    rng = np.random.default_rng(0)
    assert_nearest(1e4 + rng.normal(size=(50, 16)), rng.normal(size=(200, 16)), 3)


def test_all_words_asked_for_are_all_words_sorted():
    rng = np.random.default_rng(0)
    numbers, _ = nearest_words(rng.normal(size=(5, 4)), rng.normal(size=(130, 4)), nearest=130)
    assert_array_equal(np.sort(numbers, axis=1), np.tile(np.arange(130), (5, 1)))


def test_no_descriptors_have_no_words():
    numbers, squared = nearest_words(np.empty((0, 4)), np.ones((5, 4)), nearest=2)
    assert numbers.shape == squared.shape == (0, 2)


def test_arrays_of_any_kind_and_order_give_the_same_words():
    rng = np.random.default_rng(0)
    descriptors, words = rng.integers(0, 256, (30, 10)), rng.integers(0, 256, (40, 10))
    expected = nearest_words(descriptors, words)[0]
    assert_array_equal(
        nearest_words(np.asfortranarray(descriptors, dtype=np.float64), words.astype(np.uint8))[0], expected
    )
    assert_array_equal(nearest_words(descriptors.astype(np.float32)[::-1], words)[0], expected[::-1])


def test_what_is_given_is_not_changed():
    rng = np.random.default_rng(0)
    descriptors, words = (rng.normal(size=(n, 6)).astype(np.float32) for n in (20, 30))
    descriptors.flags.writeable = words.flags.writeable = False
    directions = principal_directions(words)
    directions.flags.writeable = False
    assert nearest_words(descriptors, words, 2, directions)[0].shape == (20, 2)


@pytest.mark.parametrize("nearest", [0, -1, 6])
def test_numbers_of_words_that_cannot_be_had_are_refused(nearest):
    with pytest.raises(ValueError, match="nearest is 1 to the number of words, 5"):
        nearest_words(np.ones((3, 2)), np.ones((5, 2)), nearest)


def test_descriptors_and_words_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"same length, got \(3, 2\) and \(5, 4\)"):
        nearest_words(np.ones((3, 2)), np.ones((5, 4)))


def test_directions_are_orthonormal_and_hold_most_of_the_variance():
    rng = np.random.default_rng(0)
    words = 5 + rng.normal(size=(200, 30)) * 0.8 ** np.arange(30)
    directions = principal_directions(words)
    n_directions = directions.shape[1]
    assert_allclose(directions.T @ directions, np.eye(n_directions), atol=1e-5)
    centred = words - words.mean(axis=0)
    share = ((centred @ directions) ** 2).sum() / (centred**2).sum()
    assert share >= VARIANCE - 1e-6
    assert n_directions < 15  # 0.8 ** (2 * 6) is 7 % already


def test_equal_words_have_one_direction():
    assert principal_directions(np.ones((4, 3))).shape == (3, 1)


# Soft weights ---------------------------------------------------------------------------------------------------------


def test_soft_weights_are_gaussians_of_the_distance_that_sum_to_one():
    squared = np.sort(np.random.default_rng(0).gamma(2.0, size=(50, 4)), axis=1).astype(np.float32)
    gaussians = np.exp(-squared.astype(np.float64) / (2 * 0.7**2))
    assert_allclose(soft_weights(squared, 0.7), gaussians / gaussians.sum(axis=1, keepdims=True), rtol=1e-5)


def test_soft_weights_of_one_word_are_one():
    assert_array_equal(soft_weights(np.array([[0.0], [3.0], [1e30]], dtype=np.float32), 0.1), 1)


def test_soft_weights_of_far_descriptors_do_not_vanish():
    assert_allclose(soft_weights(np.full((1, 3), 1e6, dtype=np.float32), 1e-3), 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_bandwidths_that_are_not_positive_are_refused(bandwidth):
    with pytest.raises(ValueError, match="bandwidth"):
        soft_weights(np.ones((1, 2), dtype=np.float32), bandwidth)


def test_spacing_is_the_mean_distance_to_the_nearest_other_word():
    words = np.random.default_rng(0).normal(size=(120, 7)).astype(np.float32)
    squared = all_squared(words, words)
    np.fill_diagonal(squared, np.inf)
    assert_allclose(spacing(words), np.sqrt(squared.min(axis=1)).mean(), rtol=1e-5)


def test_repeated_words_do_not_count_in_the_spacing():
    words = np.array([[0.0], [0.0], [1.0], [4.0], [4.0]])
    assert_allclose(spacing(words), (1 + 1 + 3) / 3, rtol=1e-6)
    assert spacing(np.ones((5, 2))) == spacing(np.ones((1, 2))) == 1.0


# Codebooks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_equal_generators_give_equal_words_and_others_do_not(recipe):
    samples = np.random.default_rng(0).normal(size=(500, 6))
    first, again, other = (recipe(20).learn(samples, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.shape == (20, 6)
    assert first.dtype == np.float32
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_prototypes_are_different_samples():
    samples = np.repeat(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), 5, axis=0)
    words = Prototypes(30).learn(samples, np.random.default_rng(0))
    assert len(np.unique(words, axis=0)) == 30
    assert all((samples == word).all(axis=1).any() for word in words)


def test_prototypes_are_drawn_as_often_as_they_occur():
    samples = np.concatenate([np.zeros((900, 1)), 1 + np.arange(100.0)[:, None]])
    drawn = [Prototypes(5).learn(samples, np.random.default_rng(seed)) for seed in range(50)]
    assert sum((words == 0).any() for words in drawn) == 50  # one seed in a hundred thousand would miss it
    assert sum((words == 1).any() for words in drawn) < 15  # 1 of 100, four times


def test_k_means_words_are_the_means_of_the_descriptors_nearest_to_them():
    samples = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    words = KMeans(10, n_iter=300).learn(samples, np.random.default_rng(0))
    numbers = nearest_words(samples, words)[0][:, 0]
    means = np.stack([samples[numbers == word].mean(axis=0) for word in range(10)])
    assert_allclose(words, means, atol=0.02)  # it stops where centres hardly move any more


def test_k_means_fits_the_descriptors_better_than_prototypes():
    samples = np.random.default_rng(0).normal(size=(2000, 4))
    errors = [
        nearest_words(samples, recipe(30).learn(samples, np.random.default_rng(0)))[1].mean() for recipe in RECIPES
    ]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("recipe", RECIPES)
def test_too_few_different_descriptors_are_repeated_with_a_warning(recipe):
    samples = np.repeat(np.arange(6.0).reshape(3, 2), 50, axis=0)
    with pytest.warns(UserWarning, match="only 3 different descriptors for 8 words.*more pictures"):
        words = recipe(8).learn(samples, np.random.default_rng(0))
    assert words.shape == (8, 2)
    assert len(np.unique(words, axis=0)) == 3
    assert nearest_words(samples, words)[0].max() < 3  # repetitions stay unused


@pytest.mark.parametrize("recipe", RECIPES)
def test_just_enough_different_descriptors_are_the_words(recipe):
    samples = np.arange(6.0).reshape(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = recipe(3).learn(samples, np.random.default_rng(0))
    assert_array_equal(np.sort(words, axis=0), samples)


@pytest.mark.parametrize("samples", [np.empty((0, 4)), np.ones(4), np.ones((2, 2, 2))])
def test_what_is_no_table_of_descriptors_is_refused(samples):
    with pytest.raises(ValueError, match="n_samples, length"):
        KMeans(2).learn(samples, np.random.default_rng(0))


def test_descriptors_that_are_not_finite_are_refused_by_number():
    samples = np.ones((5, 2))
    samples[3, 1] = np.nan
    with pytest.raises(ValueError, match="descriptor 3 "):
        Prototypes(2).learn(samples, np.random.default_rng(0))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("n_words", [0, -3, 2.5, "20", True])
def test_numbers_of_words_that_are_none_are_refused(recipe, n_words):
    with pytest.raises(ValueError, match=f"n_words of {recipe.__name__}"):
        recipe(n_words)


def test_passes_of_k_means_are_at_least_one():
    with pytest.raises(ValueError, match="n_iter of KMeans"):
        KMeans(10, n_iter=0)


@pytest.mark.parametrize("recipe", [KMeans(17, n_iter=3), Prototypes(5)])
def test_recipes_survive_being_written_as_json(recipe):
    assert from_spec(json.loads(json.dumps(to_spec(recipe))), RECIPES) == recipe
