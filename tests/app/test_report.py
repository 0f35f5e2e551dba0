"""The report: a page that is well formed, stands alone, trusts no name it is given, and says what is true."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from kernelweave.app.report import ReportContent, pictures_to_show, render_report, write_report
from kernelweave.app.report_charts import Line, heat_map, horizontal_bars, line_chart
from kernelweave.app.report_results import LabelResults
from kernelweave.evaluation import average_precision, mean_average_precision
from kernelweave.solvers.saddle import HISTORY

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
SECTIONS = ["what", "descriptions", "labels", "curves", "pictures", "fit", "problems"]
VOID = {"meta", "img", "br", "hr", "input", "link"}


class Parsed(HTMLParser):
    """A page taken apart; ``problems`` lists tags that are not balanced."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.problems, self.tags, self.texts = [], [], [], []
        self.feed(page)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()} closes something else")

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    def all(self, tag, kind=None):
        """Attributes of all tags of a name and a class."""
        found = [attributes for name, attributes in self.tags if name == tag]
        return [each for each in found if kind is None or kind in (each.get("class") or "").split()]

    @property
    def text(self):
        return " ".join(self.texts)


def history(gaps):
    rows = np.zeros(len(gaps), dtype=HISTORY)
    rows["iteration"], rows["gap"] = np.arange(1, len(gaps) + 1), gaps
    rows["objective"], rows["active"], rows["seconds"] = 3.25, 2, 0.5
    return rows


def tried(**changed):
    """A setting, as the report takes it."""
    return {"method": "ranker", "weights": "l1", "C": 1.0, "mean": 0.5, "std": 0.01, "chosen": False} | changed


def full_content(n=40, m=3, seed=0):
    """Every field filled; each label is known to different degrees."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, m)) < 0.4).astype(float)
    scores = Y * rng.uniform(0.5, 2, m) + rng.normal(0, 1, (n, m))
    Y[rng.random((n, m)) < 0.1] = np.nan
    views = ("colour", "texture")
    return ReportContent(
        title="Flowers & birds",
        facts={"pictures": "80", "gap asked for": "0.001"},
        label_names=tuple(f"label {k}" for k in range(m)),
        kernel_names=("colour:ChiSquared", "colour:Gaussian", "texture:ChiSquared"),
        view_of=("colour", "colour", "texture"),
        weights=rng.dirichlet(np.ones(3), m),
        histories=[history([0.5, 0.02, 0.0058 / (k + 1)]) for k in range(m)],
        scores=scores,
        Y=Y,
        names=[f"folder/picture {i}.jpg" for i in range(n)],
        thumbnails={i: b"\xff\xd8 small picture %03d" % i for i in range(n)},
        views=views,
        contributions=rng.dirichlet(np.ones(2), m).T,
        choice=[
            tried(C=10.0, mean=0.8, chosen=True),
            tried(method="classifier", weights="l2", mean=0.7),
        ],
        problems=[("broken.jpg", "the file ends early")],
        measures={"category_ap": 0.75, "a measure of one's own": 0.5},
    )


def tiny(Y, scores, **fields):
    return ReportContent("Tiny", label_names=("beach",), Y=np.array(Y), scores=np.array(scores), **fields)


def many_labels(m=500, k=200, n=60):
    rng = np.random.default_rng(3)
    Y = (rng.random((n, m)) < 0.05).astype(float)
    return ReportContent(
        "Many",
        label_names=tuple(f"label {i}" for i in range(m)),
        kernel_names=tuple(f"view{i % 7}:Gaussian({i})" for i in range(k)),
        view_of=tuple(f"view{i % 7}" for i in range(k)),
        weights=rng.dirichlet(np.ones(k), m),
        histories=[history([0.5, 0.001])] * m,
        scores=Y + rng.normal(0, 0.5, Y.shape),
        Y=Y,
        contributions=rng.dirichlet(np.ones(7), m).T,
        views=tuple(f"view{i}" for i in range(7)),
        choice=[tried(mean=-i, chosen=i == 90) for i in range(100)],
        problems=[(f"bad {i}.jpg", "no picture") for i in range(900)],
    )


NAN = float("nan")
CONTENTS = {
    "full": full_content(),
    "nothing": ReportContent("Nothing"),
    "labels only": ReportContent("Names", label_names=("a", "b"), contributions=np.zeros((1, 2)), views=("v",)),
    "three pictures": tiny([[1.0], [0.0], [NAN]], [[0.1], [0.2], [0.3]], histories=[history([0.3])]),
    "one picture": tiny([[1.0]], [[0.1]]),
    "no picture": tiny(np.zeros((0, 1)), np.zeros((0, 1))),
    "nobody judged": tiny([[NAN], [NAN]], [[0.1], [0.2]]),
    "nobody has it": tiny([[0.0], [0.0]], [[0.1], [0.2]]),
    "all scores alike": tiny([[1.0], [0.0], [1.0]], [[0.5], [0.5], [0.5]]),
    "no weight at all": replace(full_content(), weights=np.zeros((3, 3)), contributions=np.full((2, 3), NAN)),
    "one weight vector": replace(full_content(), weights=np.array([0.0, 0.7, 0.3]), view_of=()),
    "one weight row": replace(full_content(), weights=np.array([[0.0, 0.7, 0.3]]), histories=[history([0.1, 0.0])]),
    "unknown gaps": replace(full_content(), histories=[history([np.inf, NAN]), history([])]),
    "no thumbnails": replace(full_content(), thumbnails={}, names=()),
    "failed settings": replace(
        full_content(),
        choice=[tried(C=1e-9, mean=NAN, std=NAN)],
    ),
    "many": many_labels(),
}


@pytest.fixture(params=CONTENTS, name="page")
def rendered(request):
    return render_report(CONTENTS[request.param])


def test_every_page_is_well_formed_and_complete(page):
    parsed = Parsed(page)
    assert parsed.problems == []
    assert [attributes["id"] for attributes in parsed.all("section")] == SECTIONS
    assert len(parsed.all("h1")) == 1 and len(parsed.all("h2")) == len(SECTIONS)
    assert {"lang": "en"} in parsed.all("html")


def test_no_page_shows_what_python_says_of_missing_numbers(page):
    assert re.findall(r"\b(nan|inf|None|array|np\.\w+)\b", Parsed(page).text) == []


def test_every_reference_of_a_page_stays_inside_it(page):
    parsed = Parsed(page)
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    references = [attributes["href"] for _, attributes in parsed.tags if "href" in attributes]
    inside = {reference[1:] for reference in references if reference.startswith("#")}
    assert inside <= set(ids)
    assert all(reference[0] == "#" or reference.startswith("data:image/jpeg;base64,") for reference in references)


def test_no_page_fetches_anything(page):
    assert "http://" not in page and "https://" not in page
    assert re.findall(r"@import|url\(|<link|<iframe|\bsrc=|srcset", page) == []


def test_all_charts_have_words_for_those_who_cannot_see_them(page):
    drawings = Parsed(page).all("svg")
    assert all(svg.get("aria-hidden") == "true" or svg.get("aria-label") for svg in drawings)


def test_only_the_own_script_may_run():
    page = render_report(full_content())
    parsed = Parsed(page)
    policy = next(tag["content"] for tag in parsed.all("meta") if "http-equiv" in tag)
    script = page[page.index("<script>") + len("<script>") : page.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_names_are_never_taken_for_markup():
    content = full_content()
    bad = [f"{HOSTILE}{i}" for i in range(40)]
    page = render_report(
        replace(
            content,
            title=HOSTILE,
            facts={HOSTILE: HOSTILE},
            label_names=tuple(bad[:3]),
            kernel_names=tuple(bad[3:6]),
            view_of=(bad[6], bad[6], bad[7]),
            views=(bad[6], bad[7]),
            names=bad,
            choice=[tried(method=HOSTILE, weights=HOSTILE, chosen=True)],
            problems=[(HOSTILE, HOSTILE)],
            measures={HOSTILE: 0.5},
        )
    )
    parsed = Parsed(page)
    assert parsed.problems == []
    assert len(parsed.all("script")) == 1 and parsed.all("img") == []
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert HOSTILE in parsed.text and any(tag.get("title") == bad[0] for tag in parsed.all("span", "name"))


def test_names_that_are_not_text_can_be_written(tmp_path):
    names = ["caf\udce9.jpg", "tab\x00bell\x07.jpg", "שלום.jpg"]
    content = tiny([[1.0], [0.0], [0.0]], [[0.3], [0.2], [0.1]], names=names)
    write_report(tmp_path / "report.html", content)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "caf\ufffd.jpg" in text and "tab\ufffdbell\ufffd.jpg" in text and "שלום.jpg" in text


def test_the_same_content_gives_the_same_page():
    assert render_report(full_content()) == render_report(full_content())


def test_a_report_that_cannot_be_made_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    write_report(path, ReportContent("First"))
    first = path.read_bytes()
    with pytest.raises(ValueError, match="weights"):
        write_report(path, ReportContent("Second", kernel_names=("a",), weights=np.ones(5)))
    assert path.read_bytes() == first and [file.name for file in tmp_path.iterdir()] == ["report.html"]


# What the page says.


def test_the_first_section_says_how_good_it_is_and_what_is_certified():
    content = full_content()
    text = Parsed(render_report(content)).text
    assert "Checked on 40 pictures" in text
    assert "0.58%" in text  # the largest final gap of the three fits
    assert f"{mean_average_precision(content.Y, content.scores):.3f}" in text
    assert "gap asked for" in text and "mean average precision, by label" in text and "a measure of one" in text


def test_a_loose_gap_is_called_loose():
    assert "loose" in render_report(replace(full_content(), histories=[history([0.5, 0.2])]))
    assert "loose" not in render_report(full_content())


def test_the_table_has_the_measures_of_every_label():
    content = full_content()
    rows = re.findall(r'<tr><th scope="row"><a href="#label-\d">.*?</tr>', render_report(content))
    assert len(rows) == 3
    for k, row in enumerate(rows):
        shown = re.findall(r'data-value="[^"]*">([^<]*)<', row)
        known = ~np.isnan(content.Y[:, k])
        expected = average_precision(content.Y[:, k], content.scores[:, k])
        assert shown[:3] == [f"{(content.Y[:, k] == 1).sum()}", f"{(~known).sum()}", f"{expected:.3f}"]


def test_kernels_stand_under_their_view_heaviest_first():
    page = render_report(replace(full_content(), weights=np.array([0.1, 0.3, 0.6])))
    start, end = page.index("Weights of the kernels"), page.index("What each view contributes")
    parts = re.findall(r"<bdi>([^<]*)</bdi>", page[start:end])
    assert parts == ["texture", "ChiSquared", "colour", "Gaussian", "ChiSquared"]
    assert "Weights for each label" not in page


def test_kernels_and_views_without_weight_are_named_not_drawn():
    page = render_report(replace(full_content(), weights=np.array([1.0, 0.0, 0.0])))
    assert len(Parsed(page).all("rect", "fill")) == 1
    assert "without weight: <bdi>Gaussian</bdi>" in page
    assert "Views with little or no weight: <bdi>texture</bdi>" in page


def test_views_with_one_kernel_each_need_no_headings():
    names = ("colour:ChiSquared", "gist:Gaussian", "texture:ChiSquared")
    weights = np.array([0.1, 0.3, 0.6])
    page = render_report(
        replace(full_content(), kernel_names=names, view_of=("colour", "gist", "texture"), weights=weights)
    )
    start, end = page.index("Weights of the kernels"), page.index("What each view contributes")
    assert re.findall(r"<bdi>([^<]*)</bdi>", page[start:end]) == [names[2], names[1], names[0]]
    assert "<h4>" not in page[start:end]


def test_weights_that_differ_by_label_are_a_heat_map():
    page = render_report(replace(full_content(), contributions=None))
    assert len(Parsed(page).all("rect", "cell")) == 9


def test_the_chosen_setting_is_marked_and_the_best_is_first():
    page = render_report(full_content())
    assert page.count("✓ chosen") == 1
    assert page.index("ranker</bdi>") < page.index("classifier</bdi>")


def test_problems_are_listed_with_their_reason():
    text = Parsed(render_report(full_content())).text
    assert "1 picture could not be used" in text and "broken.jpg" in text and "the file ends early" in text


def test_much_is_cut_and_counted():
    page = render_report(CONTENTS["many"])
    parsed = Parsed(page)
    assert page.count('<svg class="spark"') == 500
    assert len(parsed.all("figure", "multiple")) == len(parsed.all("details")) == 24
    assert len(parsed.all("rect", "fill")) == 60
    assert len(parsed.all("path", "plain")) == 23  # and the one that stands out
    assert "and 476 more labels" in page and "and 700 more pictures" in page and "and 476 more fits" in page
    assert page.count("✓ chosen") == 1 and "and 59 more settings" in page
    assert len(page) < 2_000_000


# Pictures.


def test_every_picture_that_is_needed_is_in_the_page_once():
    content = full_content(n=120)
    page = render_report(content)
    needed = pictures_to_show(content)
    assert {tag["id"] for tag in Parsed(page).all("symbol")} == {f"picture-{row}" for row in needed}
    assert all(page.count(base64.b64encode(content.thumbnails[row]).decode()) == 1 for row in needed)
    assert 0 < len(needed) <= 3 * (8 + 4 + 4)


def test_judgements_are_marked_in_words():
    page = render_report(CONTENTS["three pictures"])
    best = page[page.index("Highest scores") : page.index("Scored high without")]
    assert re.findall(r"</span> ([a-z ]+)</span>", best) == ["not judged", "without", "has it"]


def test_a_perfect_label_has_no_mistakes():
    page = render_report(tiny([[1.0], [1.0], [0.0]], [[3.0], [2.0], [1.0]]))
    assert "No mistakes" in page and "Scored high without" not in page


def random_results(seed, n=30):
    """One label with ties and entries that nobody judged."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(float)
    scores = np.round(y + rng.normal(0, 1, n), 1)
    y[rng.random(n) < 0.2] = np.nan
    return y, scores, LabelResults(y[:, None], scores[:, None])


@pytest.mark.parametrize("seed", range(8))
def test_best_f1_is_the_best_over_all_thresholds(seed):
    y, scores, results = random_results(seed)
    found = []
    for threshold in np.unique(scores):
        taken = (scores >= threshold) & ~np.isnan(y)
        hits = np.sum(taken & (y == 1))
        found.append(2 * hits / (taken.sum() + (y == 1).sum()))
    np.testing.assert_allclose(results.f1, [max(found)], rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_curve_points_are_those_of_thresholds(seed):
    y, scores, results = random_results(seed)
    recall, precision = results.curve(0)
    hits = np.sort(scores[y == 1])[::-1]
    for place, threshold in enumerate(hits):
        taken = (scores >= threshold) & ~np.isnan(y)
        right = np.sum(taken & (y == 1))
        assert (recall[place], precision[place]) == (right / len(hits), right / taken.sum())


def test_area_under_the_curves_is_the_average_precision():
    rng = np.random.default_rng(5)
    Y = np.zeros((50, 4))
    for k, n_with in enumerate((1, 4, 10, 25)):  # they divide 100, the number of recall levels
        Y[rng.permutation(50)[:n_with], k] = 1
    scores = rng.normal(0, 1, Y.shape) + Y
    results = LabelResults(Y, scores)
    for k in range(4):
        recall, precision = results.curve(k)
        assert np.sum(np.diff(recall, prepend=0) * precision) == pytest.approx(results.average_precision[k], rel=1e-12)
    assert results.mean_curve()[1].mean() == pytest.approx(mean_average_precision(Y, scores), rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_mistakes_are_pairs_in_the_wrong_order(seed):
    y, scores, results = random_results(seed)
    shown = results.shown(0)
    with_it, without = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    extra = [i for i in without if (scores[i] > scores[with_it]).any()]
    overlooked = [i for i in with_it if (scores[i] < scores[without]).any()]
    assert set(shown.extra) <= set(extra) and set(shown.overlooked) <= set(overlooked)
    assert sorted(scores[shown.extra]) == sorted(sorted(scores[extra])[-4:])
    assert sorted(scores[shown.overlooked]) == sorted(scores[overlooked])[:4]
    np.testing.assert_array_equal(scores[shown.best], np.sort(scores)[::-1][:8])


# Charts.


def test_lines_stay_in_their_frame_and_gaps_of_zero_lie_on_the_floor():
    gaps = np.array([np.inf, 10.0, 1e-3, 0.0, -1e-12, np.nan])
    chart = line_chart([Line("a", np.arange(6.0), gaps)], "iteration", "gap", "A chart.")
    points = re.search(r' d="M([^"]*)"', chart).group(1).split(" L")
    xs, ys = zip(*(map(float, point.split()) for point in points), strict=True)
    assert len(points) == 4 and min(xs) >= 62 and max(xs) <= 462
    assert min(ys) == 12 and max(ys) == ys[2] == ys[3] == 222


def test_a_chart_of_nothing_is_empty():
    assert line_chart([Line("a", np.arange(2.0), np.full(2, np.nan))], "iteration", "gap", "A chart.") == ""
    assert "nan" not in horizontal_bars(["a"], [0.0], largest=0.0)


def test_heat_map_tells_signs_apart_and_scales_to_the_farthest_from_zero():
    chart = Parsed(heat_map(np.array([[1.0, -2.0, np.nan]]), ["row"], ["a", "b", "c"], "A map."))
    cells = [(tag["class"], tag["fill-opacity"]) for tag in chart.all("rect") if "cell" in tag["class"]]
    assert cells == [("cell plus", "0.50"), ("cell minus", "1.00"), ("cell plus", "0.00")]


# Content that does not fit together.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.ones(4)}, r"weights must have the shape \(3,\) or \(3, 3\).*got \(4,\)"),
        ({"weights": np.ones((2, 3))}, r"weights must have the shape.*got \(2, 3\)"),
        ({"weights": np.ones((1, 3, 3))}, "weights must be a vector or a matrix"),
        ({"view_of": ("colour",)}, "view of 3 kernels; got 1"),
        ({"contributions": np.ones((3, 2))}, r"contributions must have the shape \(2, 3\)"),
        ({"Y": None}, "scores and Y belong together"),
        ({"label_names": ("a",), "weights": None, "contributions": None}, "3 columns, but label_names has 1"),
        ({"names": ["a.jpg"]}, "40 rows, but names has 1"),
        ({"scores": np.full((40, 3), np.nan)}, "scores must not hold NaN"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        render_report(replace(full_content(), **change))
