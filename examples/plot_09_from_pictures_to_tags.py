"""
From pictures to tags
=====================

A label may show in colours, in outlines, in textures or in the layout of the whole picture, and it is not known in
advance in which. So each picture is described in all these ways, and the weights of the descriptions are learned.
"""

# %%
# Scenes drawn by code
# --------------------
# Small pictures with one to four objects. Nine labels: outlines (circle, triangle, star), colours (red, blue), patterns
# (striped, dotted) and what the whole picture is (night, horizon). With a folder of your own pictures, start from
# ``kw.datasets.read_pictures(folder)``.

import matplotlib.pyplot as plt
import numpy as np

import kernelweave as kw
from kernelweave import evaluation
from kernelweave.images import PHOG, SIFT, BagOfWords, ColourHistogram, DenseGrid, ImageFeatures, KMeans, LBPHistogram

scenes = kw.datasets.make_scenes(n_scenes=360, random_state=0)
names = np.array(scenes.label_names)
train, test = np.arange(240), np.arange(240, 360)

figure, axes = plt.subplots(2, 5, figsize=(9, 4.2), layout="constrained")
for ax, picture, row in zip(axes.ravel(), scenes.pictures, scenes.Y, strict=False):
    ax.imshow(picture)
    ax.set_title(", ".join(names[row > 0]), fontsize="x-small")
    ax.axis("off")

# %%
# Where to look, what to measure, which words
# -------------------------------------------
# A feature of the literature is a sentence: *where* (a dense grid), *what* (SIFT), *words* (a codebook), over which
# *layout* of cells. Others describe the picture as a whole. Each feature gives one or more views.

features = [
    ColourHistogram("hsv", bins=8, layouts=("1x1", "2x2")),
    LBPHistogram(layouts=("1x1", "2x2")),
    PHOG(bins=20, signed=False, layouts=("1x1", "2x2")),
    BagOfWords(DenseGrid(step=6, radii=(6.0, 10.0)), SIFT(), KMeans(150), layouts=("1x1", "2x2"), name="sift"),
]
images = ImageFeatures(features, random_state=0)
views_train = images.fit_transform([scenes.pictures[i] for i in train])  # learns the codebook from training pictures
views_test = images.transform([scenes.pictures[i] for i in test])
print(views_train)

# %%
# No single view knows every label
# --------------------------------
# Average precision of each label with the kernel of one view alone, with their average, and with learned weights.

bank = images.kernel_bank()
models = {name: kw.MKLClassifier(kernels={name: kernel}, C=10.0) for name, kernel in bank.kernels.items()}
models["all, average"] = kw.MKLClassifier(kernels=bank, weights="average", C=10.0)
models["all, l1"] = kw.MKLClassifier(kernels=bank, weights="l1", C=10.0)
table = []
for model in models.values():
    scores = model.fit(views_train, scenes.Y[train]).decision_function(views_test)
    table.append([evaluation.average_precision(scenes.Y[test, k], scores[:, k]) for k in range(len(names))])
table = np.array(table)

figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
ax.imshow(table, cmap="viridis", vmin=0.2, vmax=1.0, aspect="auto")
ax.set_xticks(range(len(names)), names)
ax.set_yticks(range(len(models)), models)
for (row, column), value in np.ndenumerate(table):
    ax.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value < 0.7 else "black")
ax.set_title("average precision on new pictures")

for name, value in zip(models, table.mean(axis=1), strict=True):
    print(f"{name:28} mean over labels {value:.3f}")

# %%
# Which description each label listens to
# ---------------------------------------
# l1 weights select: colours for red, blue and night, texture for patterns, words and edges for outlines.

evaluation.plot_weights(models["all, l1"])
plt.show()

# %%
# All of it in one object
# -----------------------
# :class:`kernelweave.PictureTagger` does this from a list of files or arrays: features, kernels, the choice of method,
# weights and cost by cross-validation, and the model. It tags new pictures, finds labels that seem to be missing, and
# is kept in one file. Labels can be given as lists of tags.

tags = [names[row > 0].tolist() for row in scenes.Y]
tagger = kw.PictureTagger(features, random_state=0).fit([scenes.pictures[i] for i in train], [tags[i] for i in train])
print("chosen:", tagger.setting_.label)
new = [scenes.pictures[i] for i in test[:4]]
for number, best in zip(test, tagger.tag(new, top=3), strict=False):
    print(f"{', '.join(tags[number]):38} best tags: {', '.join(tag.label for tag in best)}")
