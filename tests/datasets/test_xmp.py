"""Sidecars: keywords in and out, all else untouched, and nothing dangerous is parsed."""

from __future__ import annotations

import os

import pytest

from kernelweave.datasets import read_keywords, write_keywords
from kernelweave.datasets.xmp import DEEPEST, MOST_BYTES, find_sidecar, read_sidecar

LIGHTROOM = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Adobe XMP Core 5.6">
 <!-- made by hand -->
 <r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <r:Description r:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/"
    xmp:Rating="4" crs:Exposure2012="+0.35">
   <dc:subject xmlns:dc="http://purl.org/dc/elements/1.1/">
    <r:Bag>
     <r:li>Möwe</r:li>
     <r:li>sea &amp; sky</r:li>
    </r:Bag>
   </dc:subject>
   <crs:ToneCurve><r:Seq><r:li>0, 0</r:li><r:li>255, 255</r:li></r:Seq></crs:ToneCurve>
  </r:Description>
 </r:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""

HIERARCHY = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about=""><lr:hierarchicalSubject xmlns:lr="http://ns.adobe.com/lightroom/1.0/"><rdf:Bag>
<rdf:li>animal|bird|gull</rdf:li><rdf:li>sea</rdf:li></rdf:Bag></lr:hierarchicalSubject></rdf:Description></rdf:RDF>
</x:xmpmeta>"""


@pytest.fixture
def sidecar(tmp_path):
    path = tmp_path / "photo.xmp"
    path.write_text(LIGHTROOM, encoding="utf-8")
    return path


def test_reads_keywords_of_other_programs(sidecar):
    assert read_keywords(sidecar) == ["Möwe", "sea & sky"]
    assert read_sidecar(sidecar).absent is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_reads_other_encodings(tmp_path, encoding):
    path = tmp_path / "photo.xmp"
    text = f'<?xml version="1.0" encoding="{encoding[:6]}"?>' + LIGHTROOM[LIGHTROOM.index("<x:") :]
    path.write_bytes(text.encode(encoding))
    assert read_keywords(path) == ["Möwe", "sea & sky"]


def test_hierarchical_keywords_count_only_without_plain_ones(tmp_path):
    path = tmp_path / "photo.xmp"
    path.write_text(HIERARCHY)
    assert read_keywords(path) == ["gull", "sea"]
    write_keywords(path, [], absent=["gull"])
    assert read_keywords(path) == ["sea"]
    assert "animal|bird|gull" in path.read_text()


def test_adding_keeps_all_else(sidecar):
    write_keywords(sidecar, ["boat", "Möwe"])
    assert read_keywords(sidecar) == ["Möwe", "sea & sky", "boat"]
    text = sidecar.read_text(encoding="utf-8")
    for kept in ('xmp:Rating="4"', 'crs:Exposure2012="+0.35"', "<!-- made by hand -->", "<r:li>255, 255</r:li>"):
        assert kept in text
    assert '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>' in text and '<?xpacket end="w"?>' in text
    assert "absent" not in text


def test_replacing_and_taking_away(sidecar):
    write_keywords(sidecar, ["boat"], keep_others=False)
    assert read_keywords(sidecar) == ["boat"]
    write_keywords(sidecar, ["sea"], absent=["boat", "car"])
    assert read_sidecar(sidecar).keywords == ("sea",)
    assert read_sidecar(sidecar).absent == ("boat", "car")
    write_keywords(sidecar, ["car"])  # what applies is no longer absent
    assert read_sidecar(sidecar).keywords == ("sea", "car")
    assert read_sidecar(sidecar).absent == ("boat",)


def test_new_sidecar_with_any_characters(tmp_path):
    path = tmp_path / "photo.jpg.xmp"
    words = ["<b>&amp;", "日本", 'say "hi"', "a;b|c,d", "]]>", "🦆", "two  spaces"]
    write_keywords(path, words)
    assert read_keywords(path) == words
    assert os.listdir(tmp_path) == ["photo.jpg.xmp"]


@pytest.mark.parametrize("word", ["", " sea", "sea\n", "a\x00b", "a\nb", "\ud800", "\uffff"])
def test_refuses_words_that_are_no_labels(tmp_path, word):
    with pytest.raises(ValueError, match="label"):
        write_keywords(tmp_path / "photo.xmp", [word])
    assert os.listdir(tmp_path) == []


def test_refuses_mistakes_of_the_caller(tmp_path):
    with pytest.raises(TypeError, match="list of texts, got the one text 'sea'"):
        write_keywords(tmp_path / "photo.xmp", "sea")
    with pytest.raises(ValueError, match="'sea' cannot both apply and not apply"):
        write_keywords(tmp_path / "photo.xmp", ["sea"], absent=["sea"])
    picture = tmp_path / "photo.jpg"
    picture.write_bytes(b"picture")
    with pytest.raises(ValueError, match="sidecar named like"):
        write_keywords(picture, ["sea"])
    assert picture.read_bytes() == b"picture"


LAUGHS = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]><x>&e;</x>'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (LAUGHS.encode(), "definitions of its own"),
        (OUTSIDE.encode(), "definitions of its own"),
        (LAUGHS.encode("utf-16"), "definitions of its own"),
        (b"", "not well-formed"),
        (b"<x><y></x>", "not well-formed"),
        (b"caf\xe9", "not UTF-8"),
        (b"<a>" * (DEEPEST + 5) + b"</a>" * (DEEPEST + 5), "nested more than"),
        (b"<x>" + b" " * MOST_BYTES + b"</x>", "more than 16 MB"),
    ],
    ids=["laughs", "outside", "utf-16", "empty", "broken", "latin-1", "deep", "large"],
)
def test_refuses_bad_files_and_leaves_them_alone(tmp_path, content, reason):
    path = tmp_path / "photo.xmp"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason) as refused:
        read_keywords(path)
    assert str(path) in str(refused.value)
    with pytest.raises(ValueError, match=reason):
        write_keywords(path, ["sea"])
    assert path.read_bytes() == content


def test_refuses_xml_that_is_not_xmp(tmp_path):
    path = tmp_path / "photo.xmp"
    path.write_text("<html/>")
    assert read_keywords(path) == []
    with pytest.raises(ValueError, match="no rdf:RDF"):
        write_keywords(path, ["sea"])


def test_finds_the_sidecar_of_a_picture(tmp_path):
    picture = tmp_path / "photo.jpg"
    assert find_sidecar(picture) is None
    (tmp_path / "photo.xmp").write_text(LIGHTROOM, encoding="utf-8")
    assert find_sidecar(picture) == tmp_path / "photo.xmp"
    (tmp_path / "photo.jpg.xmp").write_text(LIGHTROOM, encoding="utf-8")
    assert find_sidecar(picture) == tmp_path / "photo.jpg.xmp"
