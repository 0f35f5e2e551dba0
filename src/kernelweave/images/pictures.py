"""Pictures from files one does not trust: what a file is, how large its picture is and whether it is whole are found
out before anything is decoded, and what cannot be read is refused with a sentence.

JPEG, PNG, GIF, BMP, WebP and TIFF become 8-bit RGB: turned as their EXIF says, on white where they are transparent,
the first frame of animations.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .base import Picture

RGB = NDArray  # (height, width, 3), uint8; the types of OpenCV allow any numbers
PathLike = str | os.PathLike[str]

#: Largest picture that is decoded, in pixels.
MAX_PIXELS = 100_000_000

#: Most segments, chunks or blocks a file may be made of: hundreds of times what real ones have, read in a second.
MOST_PARTS = 1_000_000

TRUNCATED = "the file is truncated: it ends before its picture does"


class UnreadablePicture(ValueError):
    """A picture that cannot be read, or several.

    Parameters
    ----------
    path : str
        The picture, or the first of several.
    reason : str
        Why, in one sentence.
    others : sequence of (path, reason)
        The rest of several.

    Attributes
    ----------
    problems : tuple of (path, reason)
        All of them.

    Examples
    --------
    >>> from kernelweave.images import UnreadablePicture
    >>> str(UnreadablePicture("a.jpg", "the file is empty"))
    'a.jpg: the file is empty'
    """

    #: How many of several pictures are named.
    SHOWN = 10

    def __init__(self, path: str, reason: str, others: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(path, reason, others)
        self.path = path
        self.reason = reason
        self.problems = ((path, reason), *others)

    def __str__(self) -> str:
        named = [f"{path}: {reason}" for path, reason in self.problems[: self.SHOWN]]
        if len(self.problems) == 1:
            return named[0]
        if len(named) < len(self.problems):
            named.append(f"and {len(self.problems) - len(named)} more")
        return f"{len(self.problems)} pictures cannot be read: " + "; ".join(named)


def read_picture(path: PathLike, max_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read a picture from a file.

    Parameters
    ----------
    path : path
        A JPEG, PNG, GIF, BMP, WebP or TIFF file, whatever its name.
    max_side : int, optional
        Shrink larger pictures to this many pixels on their longer side. Pictures are never enlarged.
    max_pixels : int
        Refuse larger pictures, before they are decoded.

    Returns
    -------
    Picture

    Raises
    ------
    UnreadablePicture
        With the reason, when there is no whole picture of a known kind.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import cv2, numpy as np
    >>> from kernelweave.images import read_picture
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "grey.png"
    >>> _ = file.write_bytes(cv2.imencode(".png", np.full((60, 80), 128, np.uint8))[1].tobytes())
    >>> read_picture(file, max_side=40).rgb.shape
    (30, 40, 3)
    """
    return decode_picture(read_file(path, max_pixels), shown_name(path), max_side, max_pixels)


def read_file(path: PathLike, max_pixels: int = MAX_PIXELS) -> bytes:
    """The bytes of a file that may hold a picture of at most `max_pixels`; `UnreadablePicture` when that cannot be."""
    limit = 8 * max_pixels + 2**24  # 16-bit RGBA without compression, and room for what else is in the file
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            reason = "it is a folder, not a file"
        elif not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
            reason = "it is not a regular file"
        elif found.st_size > limit:
            reason = f"the file has {found.st_size:,} bytes, more than a picture of {max_pixels:,} pixels can need"
        else:
            with open(path, "rb") as file:
                return file.read(limit)
    except FileNotFoundError:
        reason = "there is no such file"
    except PermissionError:
        reason = "there is no permission to read it"
    except OSError as error:
        reason = f"reading failed: {error.strerror or error}"
    except ValueError as error:  # a null character in the name
        reason = f"this cannot be the name of a file: {error}"
    raise UnreadablePicture(shown_name(path), reason)


def decode_picture(data: bytes, name: str, max_side: int | None = None, max_pixels: int = MAX_PIXELS) -> Picture:
    """The picture in the bytes of a file; see `read_picture`. `name` is how errors call it."""
    check_max_side(max_side)
    try:
        header = read_header(data)
        if header.pixels > max_pixels:
            raise _Refusal(
                f"the picture has {header.width:,} x {header.height:,} pixels, more than the limit of {max_pixels:,}"
            )
        return Picture(_turned(shrink(_decode(data, header, max_side), max_side), header.orientation))
    except _Refusal as refusal:
        raise UnreadablePicture(name, str(refusal)) from None


def shrink(rgb: RGB, max_side: int | None) -> RGB:
    """A picture (height, width, 3) with at most `max_side` pixels on its longer side; None: as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.images.pictures import shrink
    >>> shrink(np.zeros((100, 50, 3), dtype=np.uint8), 20).shape
    (20, 10, 3)
    """
    height, width = rgb.shape[:2]
    longer = max(height, width)
    if max_side is None or longer <= max_side:
        return rgb
    size = (max(1, round(width * max_side / longer)), max(1, round(height * max_side / longer)))
    return cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)


def shown_name(path: PathLike) -> str:
    """A path as text that can always be printed: bytes that are no text are written as escapes."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode("utf-8")


def check_max_side(max_side: int | None) -> None:
    """Refuse what is no number of pixels."""
    whole = isinstance(max_side, (int, np.integer)) and not isinstance(max_side, bool)
    if max_side is not None and not (whole and max_side >= 1):
        raise ValueError(f"max_side is a number of pixels of at least 1, or None for any size, got {max_side!r}")


# -- headers -------------------------------------------------------------------------------------------------------


class _Refusal(Exception):
    """The reason why bytes are no picture."""


@dataclass(frozen=True)
class Header:
    """What the headers of a file say about its picture."""

    kind: str
    width: int
    height: int
    orientation: int = 1  #: How the decoded pixels are to be turned, as EXIF counts
    alpha: bool = False  #: Whether a TIFF has transparency (other kinds say so when they are decoded)
    largest: int = 0  #: Pixels of the largest part, where a part may be larger than the picture

    @property
    def pixels(self) -> int:
        """How many pixels decoding may have to hold."""
        return max(self.width * self.height, self.largest)


def read_header(data: bytes) -> Header:
    """What kind of file this is and how large its picture, after a walk through all its parts that finds out whether it
    is whole. Raises the reason when it is not."""
    if not data:
        raise _Refusal("the file is empty")
    for begins, read in _READERS:
        if begins.match(data):
            header = read(data)
            if header.width == 0 or header.height == 0:
                raise _Refusal(f"this {header.kind} file says that its picture has no pixels")
            return header
    raise _Refusal(
        f"it is no JPEG, PNG, GIF, BMP, WebP or TIFF file, the kinds that can be read (it begins with {data[:8]!r})"
    )


def _unpack(layout: str, data: bytes, at: int) -> tuple[int, ...]:
    if not 0 <= at <= len(data) - struct.calcsize(layout):
        raise _Refusal(TRUNCATED)
    return struct.unpack_from(layout, data, at)


def _damaged(kind: str, what: str) -> _Refusal:
    return _Refusal(f"the file is damaged: {what} in a {kind} file")


#: The next marker of a JPEG file; FF 00 is a value of the picture, and FF 01, FF D0 to FF D7 stand alone.
_JPEG_MARKER = re.compile(rb"\xff([^\x00\x01\xff\xd0-\xd7])")
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg(data: bytes) -> Header:
    size: tuple[int, ...] | None = None
    exif, at = b"", 2
    for _ in range(MOST_PARTS):
        found = _JPEG_MARKER.search(data, at)
        if found is None:
            raise _Refusal(TRUNCATED)
        marker, at = found[1][0], found.end()
        if marker == 0xD9:  # the end; cameras write more behind it
            if size is None:
                raise _damaged("JPEG", "there is no picture")
            return Header("JPEG", size[1], size[0], _orientation(exif))
        if marker == 0xD8:
            continue
        (length,) = _unpack(">H", data, at)
        if length < 2:
            raise _damaged("JPEG", "a segment is shorter than its header")
        if marker in _JPEG_FRAMES and size is None:
            size = _unpack(">HH", data, at + 3)
        elif marker == 0xE1 and data[at + 2 : at + 8] == b"Exif\0\0":
            exif = exif or data[at + 8 : at + length]
        at += length
    raise _damaged("JPEG", "there are too many segments")


def _png(data: bytes) -> Header:
    _, first, width, height = _unpack(">I4sII", data, 8)
    if first != b"IHDR":
        raise _damaged("PNG", "the first chunk is not the header")
    exif, at = b"", 8
    for _ in range(MOST_PARTS):
        length, kind = _unpack(">I4s", data, at)
        if at + 12 + length > len(data):
            raise _Refusal(TRUNCATED)
        if kind == b"IEND":
            return Header("PNG", width, height, _orientation(exif))
        if kind == b"eXIf":
            exif = exif or data[at + 8 : at + 8 + length]
        at += 12 + length
    raise _damaged("PNG", "there are too many chunks")


def _gif(data: bytes) -> Header:
    width, height, flags = _unpack("<HHB", data, 6)
    at = 13 + _gif_colours(flags)
    largest, within = 0, False  # within a chain of sub-blocks, each preceded by its length
    for _ in range(MOST_PARTS):
        (block,) = _unpack("B", data, at)
        if within:
            at += 1 + block
            within = block > 0
        elif block == 0x3B:  # the end
            if not largest:
                raise _damaged("GIF", "there is no picture")
            return Header("GIF", width, height, largest=largest)
        elif block == 0x2C:  # a frame
            *_, frame_width, frame_height, flags = _unpack("<4HB", data, at + 1)
            largest = max(largest, frame_width * frame_height)
            at, within = at + 11 + _gif_colours(flags), True
        elif block == 0x21:  # an extension
            at, within = at + 2, True
        else:
            raise _damaged("GIF", f"there is an unknown block {block:#x}")
    raise _damaged("GIF", "there are too many blocks")


def _gif_colours(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _bmp(data: bytes) -> Header:
    start, size = _unpack("<II", data, 10)
    if size == 12:
        width, height, _, bits = _unpack("<HHHH", data, 18)
        compression = 0
    elif size >= 40:
        width, height, _, bits, compression = _unpack("<iiHHI", data, 18)
    else:
        raise _damaged("BMP", f"the header has the unknown length {size}")
    if width < 0:
        raise _damaged("BMP", "the width is negative")
    height = abs(height)  # negative: the rows go from top to bottom
    run_lengths = (1, 2)
    if compression not in run_lengths and start + (width * bits + 31) // 32 * 4 * height > len(data):
        raise _Refusal(TRUNCATED)
    return Header("BMP", width, height)


def _webp(data: bytes) -> Header:
    (length,) = _unpack("<I", data, 4)
    if 8 + length > len(data):
        raise _Refusal(TRUNCATED)
    first = data[12:16]
    if first == b"VP8X":
        low_width, high_width, low_height, high_height = _unpack("<HBHB", data, 24)
        width, height = 1 + low_width + (high_width << 16), 1 + low_height + (high_height << 16)
    elif first == b"VP8L":
        (packed,) = _unpack("<I", data, 21)
        width, height = 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    elif first == b"VP8 ":
        width, height = (side & 0x3FFF for side in _unpack("<HH", data, 26))
    else:
        raise _damaged("WebP", f"there is an unknown first chunk {first!r}")
    exif, at = b"", 12
    for _ in range(MOST_PARTS):
        if at + 8 > min(len(data), 8 + length):
            return Header("WebP", width, height, _orientation(exif))
        kind, size = data[at : at + 4], _unpack("<I", data, at + 4)[0]
        if kind == b"EXIF":
            exif = exif or data[at + 8 : at + 8 + size].removeprefix(b"Exif\0\0")
        at += 8 + size + size % 2
    raise _damaged("WebP", "there are too many chunks")


#: The kinds of numbers in a TIFF directory that are read here: unsigned integers.
_TIFF_NUMBERS = {1: "u1", 3: "u2", 4: "u4", 13: "u4", 16: "u8"}
_WIDTH, _HEIGHT, _BITS, _ORIENTATION, _EXTRA = 256, 257, 258, 274, 338
_TILE_WIDTH, _TILE_HEIGHT = 322, 323
_DATA = ((273, 279), (324, 325))  # offsets and lengths of strips, of tiles

_NOTHING = np.zeros(0, dtype=np.uint8)


def _tiff(data: bytes) -> Header:
    tags = _directory(data)

    def one(tag: int, default: int) -> int:
        return int(tags[tag][0]) if tag in tags and len(tags[tag]) else default

    for offsets, lengths in _DATA:
        starts, counts = tags.get(offsets, _NOTHING), tags.get(lengths, _NOTHING)
        if len(starts) > MOST_PARTS:
            raise _damaged("TIFF", "there are too many strips")
        if len(starts) == len(counts) > 0 and (starts.astype(np.float64) + counts).max() > len(data):
            raise _Refusal(TRUNCATED)
    bits = one(_BITS, 1)
    if bits > 16:
        raise _Refusal(f"the samples of this TIFF file have {bits} bits; up to 16 can be read")
    tile = one(_TILE_WIDTH, 0) * one(_TILE_HEIGHT, 0)
    # The decoder turns TIFF pictures itself, so they keep the orientation 1.
    return Header("TIFF", one(_WIDTH, 0), one(_HEIGHT, 0), alpha=one(_EXTRA, 0) in (1, 2), largest=tile)


def _directory(data: bytes) -> dict[int, NDArray]:
    """The unsigned numbers in the first directory of a TIFF file, by tag."""
    order = "<" if data[:2] == b"II" else ">"
    big = _unpack(order + "H", data, 2)[0] == 43
    (start,) = _unpack(order + ("Q" if big else "I"), data, 8 if big else 4)
    (count,) = _unpack(order + ("Q" if big else "H"), data, start)
    if count > 0xFFFF:
        raise _damaged("TIFF", "there are too many tags")
    entry, room = (order + "HHQQ", 8) if big else (order + "HHII", 4)
    first = start + (8 if big else 2)
    tags = {}
    for at in range(first, first + count * (room * 2 + 4), room * 2 + 4):
        tag, kind, length, offset = _unpack(entry, data, at)
        if kind in _TIFF_NUMBERS:
            numbers = np.dtype(order + _TIFF_NUMBERS[kind])
            where = at + 4 + room if length * numbers.itemsize <= room else offset
            if where + length * numbers.itemsize > len(data):
                raise _Refusal(TRUNCATED)
            tags[tag] = np.frombuffer(data, numbers, length, where)
    return tags


def _orientation(exif: bytes) -> int:
    """The orientation 1 to 8 in EXIF data; 1, upright, when they are damaged: the picture may still be good."""
    if exif[:4] not in (b"II*\0", b"MM\0*"):
        return 1
    try:
        found = _directory(exif).get(_ORIENTATION, _NOTHING)
    except _Refusal:
        return 1
    return int(found[0]) if len(found) and 1 <= found[0] <= 8 else 1


_READERS: tuple[tuple[re.Pattern[bytes], Callable[[bytes], Header]], ...] = (
    (re.compile(rb"\xff\xd8\xff"), _jpeg),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), _png),
    (re.compile(rb"GIF8[79]a"), _gif),
    (re.compile(rb"BM"), _bmp),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), _webp),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), _tiff),
)


# -- decoding ------------------------------------------------------------------------------------------------------


def _decode(data: bytes, header: Header, max_side: int | None) -> RGB:
    """The decoded picture (height, width, 3), not yet turned; perhaps smaller, but not below `max_side`."""
    if header.kind == "JPEG":  # the one kind that is decoded faster at half, quarter or eighth size
        return _as_rgb(_opencv(data, header, _reduction(header, max_side) | cv2.IMREAD_IGNORE_ORIENTATION))
    if header.kind == "TIFF":  # in colour, OpenCV takes care of planes, of white as 0 and of the rest of this format
        rgb = _as_rgb(_opencv(data, header, cv2.IMREAD_COLOR))
        return _tiff_on_white(rgb, _opencv(data, header, cv2.IMREAD_UNCHANGED)) if header.alpha else rgb
    return _as_rgb(_opencv(data, header, cv2.IMREAD_UNCHANGED))


def _reduction(header: Header, max_side: int | None) -> int:
    for divisor, flag in (
        (8, cv2.IMREAD_REDUCED_COLOR_8),
        (4, cv2.IMREAD_REDUCED_COLOR_4),
        (2, cv2.IMREAD_REDUCED_COLOR_2),
    ):
        if max_side is not None and max(header.width, header.height) >= divisor * max_side:
            return flag
    return cv2.IMREAD_COLOR


def _opencv(data: bytes, header: Header, flags: int) -> NDArray:
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        pixels = None
    if pixels is None or pixels.size == 0:
        raise _Refusal(
            f"OpenCV {cv2.__version__} cannot decode it: this {header.kind} file is damaged or of an unusual variant"
        )
    if pixels.dtype == np.uint16:
        return cv2.convertScaleAbs(pixels, alpha=1 / 257)  # 65535 becomes 255
    if pixels.dtype != np.uint8:
        raise _Refusal(f"the values of this {header.kind} file are {pixels.dtype}; 8 and 16 bits can be read")
    return pixels


def _as_rgb(pixels: NDArray) -> RGB:
    if pixels.ndim == 2:
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)
    if pixels.shape[2] == 3:
        return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    rgb = cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGB)
    opaque = cv2.cvtColor(pixels[:, :, 3], cv2.COLOR_GRAY2RGB)
    return 255 - cv2.multiply(255 - rgb, opaque, scale=1 / 255)


def _tiff_on_white(rgb: RGB, pixels: NDArray) -> RGB:
    """OpenCV gives the colours of a transparent TIFF on black: what is missing to opaque is white."""
    if pixels.ndim == 2 or pixels.shape[2] != 4:  # transparency of grey TIFF pictures is not delivered
        return rgb
    return cv2.add(rgb, cv2.cvtColor(255 - pixels[:, :, 3], cv2.COLOR_GRAY2RGB))


def _turned(rgb: RGB, orientation: int) -> RGB:
    if orientation >= 5:
        rgb = rgb.transpose(1, 0, 2)
    down, right = ((1, 1), (1, -1), (-1, -1), (-1, 1))[(orientation - 1) % 4]
    return rgb[::down, ::right]
