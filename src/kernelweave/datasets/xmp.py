"""XMP sidecars: the small XML files in which photo programs keep the keywords of a picture beside it.

Keywords are the bag ``dc:subject``. XMP has no word for "this keyword does not apply", so that is kept in a bag of our
own, ``kernelweave:absent``, which other programs leave alone. The picture itself is never opened.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.dom.minidom import Document, Element, Node, parseString
from xml.parsers.expat import ExpatError

from .._files import atomic_write

#: Largest XML file that is read, in bytes.
MOST_BYTES = 16 * 2**20

#: Most elements within one another.
DEEPEST = 100

META = "adobe:ns:meta/"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DC = "http://purl.org/dc/elements/1.1/"
LIGHTROOM = "http://ns.adobe.com/lightroom/1.0/"
OWN = "urn:kernelweave:xmp:1.0"

NEW_SIDECAR = f"""<?xml version="1.0" encoding="UTF-8"?>
<x:xmpmeta xmlns:x="{META}">
 <rdf:RDF xmlns:rdf="{RDF}">
  <rdf:Description rdf:about="" xmlns:dc="{DC}">
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
"""


@dataclass(frozen=True)
class Sidecar:
    """What a sidecar says about keywords.

    Attributes
    ----------
    keywords : tuple of str
        Those that apply, in the order of the file, each once.
    absent : tuple of str, or None
        Those that do not apply; None when the file does not say.
    """

    keywords: tuple[str, ...]
    absent: tuple[str, ...] | None


def read_keywords(path: str | os.PathLike[str]) -> list[str]:
    """Keywords of an XMP sidecar, in the order of the file.

    They are those of ``dc:subject``. A file without it may still have Lightroom's ``lr:hierarchicalSubject``; then the
    last part of each of its entries is taken ("animal|cat" gives "cat").

    Parameters
    ----------
    path : path
        The sidecar, not the picture.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelweave.datasets import read_keywords, write_keywords
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sidecar = Path(folder) / "photo.jpg.xmp"
    ...     write_keywords(sidecar, ["mer", "été"])
    ...     read_keywords(sidecar)
    ['mer', 'été']
    """
    return list(read_sidecar(path).keywords)


def read_sidecar(path: str | os.PathLike[str]) -> Sidecar:
    """Keywords that apply and that do not, from an XMP sidecar."""
    path = Path(path)
    document = read_xml(path)
    keywords = _bag(document, DC, "subject")
    if keywords is None:
        branches = _bag(document, LIGHTROOM, "hierarchicalSubject") or ()
        keywords = tuple(dict.fromkeys(branch.split("|")[-1].strip() for branch in branches))
    absent = _bag(document, OWN, "absent")
    for keyword in keywords + (absent or ()):
        check_label(keyword, str(path))
    return Sidecar(keywords, absent)


def write_keywords(
    path: str | os.PathLike[str],
    keywords: Iterable[str],
    absent: Iterable[str] | None = None,
    keep_others: bool = True,
) -> None:
    """Put keywords into an XMP sidecar, which is made if there is none. All else in it stays as it is.

    Parameters
    ----------
    path : path
        The sidecar, not the picture. It is replaced in one step.
    keywords : iterable of str
        Keywords that apply.
    absent : iterable of str, optional
        Keywords that were judged not to apply: they are taken away from those that do, and noted in the bag
        ``kernelweave:absent``. None writes no such bag unless there is one.
    keep_others : bool, default=True
        Whether keywords of the file that are in neither list stay.
    """
    path, keywords = Path(path), _checked_keywords(keywords)
    noes = None if absent is None else _checked_keywords(absent)
    if path.suffix.lower() != ".xmp":
        raise ValueError(f"keywords are written to a sidecar named like photo.jpg.xmp, got {path}")
    both = sorted(set(keywords) & set(noes or ()))
    if both:
        raise ValueError(f"{both[0]!r} cannot both apply and not apply to one picture ({path})")
    document = read_xml(path) if path.exists() else parseString(NEW_SIDECAR)
    if keep_others and path.exists():
        old = read_sidecar(path)
        keywords = [word for word in old.keywords if word not in (noes or ())] + keywords
        if noes is not None or old.absent is not None:
            noes = [word for word in old.absent or () if word not in keywords] + (noes or [])
    _set_bag(document, path, "dc", DC, "subject", keywords)
    if noes is not None:
        _set_bag(document, path, "kernelweave", OWN, "absent", noes)
    with atomic_write(path) as file:
        file.write(document.toxml(encoding="UTF-8"))


def find_sidecar(picture: Path) -> Path | None:
    """The sidecar a picture has: ``photo.jpg.xmp`` or else ``photo.xmp``."""
    candidates = (picture.with_name(picture.name + ".xmp"), picture.with_suffix(".xmp"))
    return next((path for path in candidates if os.path.isfile(path)), None)


def check_label(label: str, where: str) -> None:
    """Refuse what cannot be the name of a label in all formats: nothing, spaces around it, control characters."""
    if not isinstance(label, str) or not label or label != label.strip():
        raise ValueError(f"{where}: a label is a text without spaces around it, got {label!r}")
    for character in label:
        if unicodedata.category(character) == "Cs":
            raise ValueError(f"{where}: the label {label!r} is not UTF-8; save the file as UTF-8")
        if unicodedata.category(character) == "Cc" or character in "\ufffe\uffff":
            raise ValueError(f"{where}: the label {label!r} has the control character {character!r}; remove it")


def read_xml(path: Path) -> Document:
    """Parse an XML file from somebody else: of limited size, in UTF-8 or UTF-16, and without definitions of its own,
    which could blow up to gigabytes or name other files."""
    with open(path, "rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES // 2**20} MB, too much for a file of labels")
    # Decoded here, so that no encoding that the parser knows can hide a definition from the search below.
    wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    if re.search(r"<!\s*(DOCTYPE|ENTITY)", text, flags=re.IGNORECASE):
        raise ValueError(f"{path} has definitions of its own (DOCTYPE or ENTITY), which are not read for safety")
    text = re.sub(r"\A\s*<\?xml[^>]*\?>", "", text)  # it may name the encoding the text had before
    try:
        document = parseString(text.encode("utf-8"))
    except ExpatError as error:
        raise ValueError(f"{path} is not well-formed XML: {error}") from None
    level: list[Any] = [document]
    depth = 0
    while level:
        level, depth = [node for element in level for node in element.childNodes], depth + 1
        if depth > DEEPEST:  # searching and writing a tree recurses
            raise ValueError(f"{path} has elements nested more than {DEEPEST} deep, which no file of labels needs")
    return document


def _checked_keywords(keywords: Iterable[str]) -> list[str]:
    if isinstance(keywords, str):
        raise TypeError(f"keywords are a list of texts, got the one text {keywords!r}")
    keywords = list(dict.fromkeys(keywords))
    for keyword in keywords:
        check_label(keyword, "keywords")
    return keywords


def _bag(document: Document, namespace: str, name: str) -> tuple[str, ...] | None:
    """Entries of all bags of this name, each once; None when there is none."""
    bags = document.getElementsByTagNameNS(namespace, name)
    entries = [_text(entry) for bag in bags for entry in bag.getElementsByTagNameNS(RDF, "li")]
    return tuple(dict.fromkeys(entry for entry in entries if entry)) if bags else None


def _text(element: Element) -> str:
    parts = [node.data for node in element.childNodes if node.nodeType in (node.TEXT_NODE, node.CDATA_SECTION_NODE)]
    return "".join(parts).strip()


def _set_bag(document: Document, path: Path, prefix: str, namespace: str, name: str, entries: list[str]) -> None:
    """Make these the entries of the bag, which replaces all bags of this name."""
    for old in document.getElementsByTagNameNS(namespace, name):
        if old.parentNode is not None:
            old.parentNode.removeChild(old)
    frames = document.getElementsByTagNameNS(RDF, "RDF")
    if not frames:
        raise ValueError(f"{path} is not an XMP file: it has no rdf:RDF element")
    descriptions = frames[0].getElementsByTagNameNS(RDF, "Description")
    if descriptions:
        description = descriptions[0]
    else:
        description = _add(document, frames[0], "rdf", RDF, "Description")
        description.setAttributeNS(RDF, "rdf:about", "")
    bag = _add(document, _add(document, description, prefix, namespace, name), "rdf", RDF, "Bag")
    for entry in dict.fromkeys(entries):
        _add(document, bag, "rdf", RDF, "li").appendChild(document.createTextNode(entry))


def _add(document: Document, parent: Element, prefix: str, namespace: str, name: str) -> Element:
    """Append an element, declaring its prefix unless an element around it does."""
    element = document.createElementNS(namespace, f"{prefix}:{name}")
    around: Node | None = parent
    while isinstance(around, Element) and not around.hasAttribute(f"xmlns:{prefix}"):
        around = around.parentNode
    if not isinstance(around, Element) or around.getAttribute(f"xmlns:{prefix}") != namespace:
        element.setAttribute(f"xmlns:{prefix}", namespace)
    parent.appendChild(element)
    return element
