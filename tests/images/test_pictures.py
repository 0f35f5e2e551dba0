"""Reading pictures that people really have: turned, transparent, deep, animated, damaged, and not pictures at all."""

import io
import os
import pickle
import struct
import tempfile
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from kernelweave.images import pictures
from kernelweave.images.pictures import (
    UnreadablePicture,
    decode_picture,
    read_header,
    read_picture,
)

RNG = np.random.default_rng(0)
COARSE = RNG.integers(0, 256, (3, 4, 3), dtype=np.uint8)
SCENE = cv2.resize(COARSE, (64, 48), interpolation=cv2.INTER_NEAREST)  # RGB, no two corners alike
EXTENSIONS = (".jpg", ".png", ".bmp", ".webp", ".tif")


def encode(rgb, extension, *settings):
    bgr = np.ascontiguousarray(rgb[:, :, ::-1]) if rgb.ndim == 3 else rgb
    return cv2.imencode(extension, bgr, settings)[1].tobytes()


def saved(image, kind, **options):
    """The file Pillow makes of an image."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def reason(data):
    with pytest.raises(UnreadablePicture) as caught:
        decode_picture(data, "it")
    assert caught.value.path == "it"
    assert str(caught.value) == f"it: {caught.value.reason}"
    return caught.value.reason


def png_header(width, height, more=b""):
    """A PNG file of a few bytes that says it has this size."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", b""), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body + more


def tiff(array, photometric, *tags, planes_apart=False):
    """A little-endian TIFF file of one strip a plane."""
    pixels = np.moveaxis(array, 2, 0) if planes_apart else array
    body = pixels.astype(array.dtype.newbyteorder("<")).tobytes()
    depth = array.shape[2] if array.ndim == 3 else 1
    strips = depth if planes_apart else 1
    entries = [
        (256, [array.shape[1]]),
        (257, [array.shape[0]]),
        (258, [8 * array.itemsize] * depth),
        (259, [1]),
        (262, [photometric]),
        (273, [8 + k * len(body) // strips for k in range(strips)]),
        (277, [depth]),
        (278, [array.shape[0]]),
        (279, [len(body) // strips] * strips),
        (284, [2 if planes_apart else 1]),
        *((tag, [value]) for tag, value in tags),
    ]
    directory = struct.pack("<H", len(entries))
    behind = 8 + len(body) + 2 + 12 * len(entries) + 4
    lists = b""
    for tag, values in sorted(entries):
        packed = struct.pack(f"<{len(values)}I", *values)
        directory += struct.pack("<HHI", tag, 4, len(values))
        directory += packed if len(values) == 1 else struct.pack("<I", behind + len(lists))
        lists += packed if len(values) > 1 else b""
    return b"II*\0" + struct.pack("<I", 8 + len(body)) + body + directory + b"\0\0\0\0" + lists


# -- what can be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_colours_come_as_red_green_blue(extension, tmp_path):
    lossless = (cv2.IMWRITE_WEBP_QUALITY, 101) if extension == ".webp" else ()
    path = tmp_path / f"scene{extension}"
    path.write_bytes(encode(SCENE, extension, *lossless))
    picture = read_picture(path)
    if extension == ".jpg":  # which rings at hard edges of colour
        assert_allclose(picture.rgb[8::16, 8::16].astype(int), COARSE, atol=12)
    else:
        assert_array_equal(picture.rgb, SCENE)


def test_what_a_file_is_counts_not_what_it_is_called(tmp_path):
    path = tmp_path / "really a png.jpg"
    path.write_bytes(encode(SCENE, ".png"))
    assert_array_equal(read_picture(path).rgb, SCENE)


@pytest.mark.parametrize("name", ["with space.png", "grüße 花.png", "'quoted'.png", "no-suffix"])
def test_any_name(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(encode(SCENE, ".png"))
    assert_array_equal(read_picture(str(path)).rgb, SCENE)


def test_name_that_is_no_text(tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.png")
    try:
        Path(name).write_bytes(b"")
    except OSError:
        pytest.skip("this file system has only names that are text")
    with pytest.raises(UnreadablePicture, match="empty") as caught:
        read_picture(name)
    str(caught.value).encode("utf-8")  # can be printed


@pytest.mark.parametrize("extension", [*EXTENSIONS, ".gif"])
def test_one_pixel(extension):
    if extension == ".gif":
        image = pytest.importorskip("PIL.Image")
        data = saved(image.new("RGB", (1, 1), (90, 90, 90)), "GIF")
    else:
        data = encode(np.full((1, 1, 3), 90, dtype=np.uint8), extension)
    assert_allclose(decode_picture(data, "it", max_side=10).rgb, np.full((1, 1, 3), 90), atol=2)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("max_side", [None, 32, 8])
def test_turned_as_exif_says(kind, orientation, max_side):
    image = pytest.importorskip("PIL.Image")
    from PIL import ImageOps

    exif = image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(kind, {})
    data = saved(image.fromarray(SCENE), kind, exif=exif, **options)
    expected = np.asarray(ImageOps.exif_transpose(image.open(io.BytesIO(data))).convert("RGB"))
    found = decode_picture(data, "it", max_side=max_side).rgb
    assert_allclose(found.astype(int), pictures.shrink(expected, max_side).astype(int), atol=6)


@pytest.mark.parametrize(
    "exif", [b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", b"II*\0" + b"\x08\0\0\0\x01\0" * 9]
)
def test_damaged_exif_does_not_spoil_a_picture(exif):
    data = encode(SCENE, ".jpg")
    segment = b"\xff\xe1" + struct.pack(">H", 8 + len(exif)) + b"Exif\0\0" + exif
    assert_array_equal(decode_picture(data[:2] + segment + data[2:], "it").rgb, decode_picture(data, "it").rgb)


def test_orientation_out_of_range_is_upright():
    image = pytest.importorskip("PIL.Image")
    exif = image.Exif()
    exif[0x0112] = 77
    data = saved(image.fromarray(SCENE), "PNG", exif=exif)
    assert_array_equal(decode_picture(data, "it").rgb, SCENE)


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_four_printing_colours(kind):
    image = pytest.importorskip("PIL.Image")
    options = {"quality": 100} if kind == "JPEG" else {}
    data = saved(image.fromarray(SCENE).convert("CMYK"), kind, **options)
    assert_allclose(decode_picture(data, "it").rgb.astype(int), SCENE, atol=5)


@pytest.mark.parametrize("extension", [".png", ".tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_become_eight(extension, channels):
    deep = np.linspace(0, 65535, 48 * 64 * channels).astype(np.uint16).reshape(48, 64, -1)
    expected = np.round(np.broadcast_to(deep, (48, 64, 3)) / 257)
    found = decode_picture(encode(deep if channels == 3 else deep[:, :, 0], extension), "it").rgb
    assert_allclose(found, expected, atol=1)
    assert found.min() == 0
    assert found.max() == 255


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_transparent_pictures_lie_on_white(kind):
    image = pytest.importorskip("PIL.Image")
    alpha = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))
    transparent = np.dstack([SCENE, alpha])
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    found = decode_picture(saved(image.fromarray(transparent), kind, **options), "it").rgb
    share = alpha[:, :, None] / 255
    assert_allclose(found, share * SCENE + (1 - share) * 255, atol=1.5)


@pytest.mark.parametrize("extra", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_kinds_of_transparency_in_tiff(extra, dtype):
    full = 255 if dtype == np.uint8 else 65535
    rgba = (np.array([100, 50, 25, 128]) * full // 255 * np.ones((4, 6, 1))).astype(dtype)
    found = decode_picture(tiff(rgba, 2, (338, extra)), "it").rgb
    straight = np.array([100, 50, 25])
    expected = {0: straight, 1: straight + 127, 2: straight * 128 / 255 + 127}[extra]  # no, premultiplied, straight
    assert_allclose(found, expected * np.ones((4, 6, 1)), atol=1.5)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_tiff_with_white_as_zero_and_with_planes_apart(dtype):
    deep = SCENE.astype(dtype) * (1 if dtype == np.uint8 else 257)
    grey = decode_picture(tiff(deep[:, :, 0], 0), "it").rgb
    assert_allclose(grey, np.repeat(255 - SCENE[:, :, :1], 3, axis=2), atol=1)
    assert_allclose(decode_picture(tiff(deep, 2, planes_apart=True), "it").rgb, SCENE, atol=1)


def test_transparent_grey_and_palettes():
    image = pytest.importorskip("PIL.Image")
    grey = image.merge("LA", [image.new("L", (6, 4), 100), image.new("L", (6, 4), 51)])
    assert_allclose(decode_picture(saved(grey, "PNG"), "it").rgb, np.full((4, 6, 3), 224), atol=1)
    flat = image.new("RGB", (6, 4), (10, 200, 30)).quantize(4)
    for kind in ("PNG", "GIF", "BMP", "TIFF"):
        assert_array_equal(decode_picture(saved(flat, kind), "it").rgb, np.full((4, 6, 3), (10, 200, 30)))
    hole = saved(flat, "PNG", transparency=int(np.asarray(flat)[0, 0]))
    assert_array_equal(decode_picture(hole, "it").rgb, np.full((4, 6, 3), 255))
    bits = image.fromarray(np.eye(8, dtype=bool))
    for kind in ("PNG", "BMP", "TIFF"):
        assert_array_equal(decode_picture(saved(bits, kind), "it").rgb[:, :, 0], 255 * np.eye(8))


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_first_frame_of_animations(kind):
    image = pytest.importorskip("PIL.Image")
    frames = [image.new("RGB", (60, 40), colour) for colour in ("red", "lime", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert_array_equal(decode_picture(data, "it").rgb, np.full((40, 60, 3), (255, 0, 0)))


def test_bytes_behind_the_end_do_no_harm():
    for extension in (".jpg", ".png", ".bmp", ".webp"):
        data = encode(SCENE, extension)
        found = decode_picture(data + b"\xff\xd8 trailer of a camera \xff", "it").rgb
        assert_array_equal(found, decode_picture(data, "it").rgb)


# -- size ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize(("height", "width"), [(60, 90), (90, 60), (331, 77), (100, 1), (2, 900)])
@pytest.mark.parametrize("max_side", [1, 10, 37, 90])
def test_longer_side_is_exactly_max_side(extension, height, width, max_side):
    data = encode(np.zeros((height, width, 3), dtype=np.uint8), extension)
    found = decode_picture(data, "it", max_side=max_side)
    longer = max(height, width)
    expected = (height, width) if longer <= max_side else tuple(s * max_side / longer for s in (height, width))
    assert max(found.height, found.width) == min(longer, max_side)
    assert_allclose((found.height, found.width), expected, atol=1.001)
    assert min(found.height, found.width) >= 1


def test_jpeg_decoded_at_a_smaller_size_looks_the_same():
    smooth = cv2.GaussianBlur(cv2.resize(COARSE, (640, 480), interpolation=cv2.INTER_CUBIC), (0, 0), 5)
    data = encode(smooth, ".jpg", cv2.IMWRITE_JPEG_QUALITY, 95)
    full = decode_picture(data, "it").rgb
    for max_side in (640, 320, 200, 160, 80, 50):
        found = decode_picture(data, "it", max_side=max_side).rgb
        assert_allclose(found.astype(int), pictures.shrink(full, max_side).astype(int), atol=8)


@pytest.mark.parametrize("max_side", [0, -3, 2.5, "300", True])
def test_impossible_max_side(max_side):
    with pytest.raises(ValueError, match="max_side is a number of pixels"):
        decode_picture(encode(SCENE, ".png"), "it", max_side=max_side)


def bombs():
    jpeg = encode(SCENE, ".jpg")
    at = jpeg.index(b"\xff\xc0") + 5
    gif = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + b"," + struct.pack("<HHHHB", 0, 0, 20000, 20000, 0)
    big = np.zeros((1, 1), dtype=np.uint8)
    return {
        "JPEG": jpeg[:at] + struct.pack(">HH", 20000, 20000) + jpeg[at + 4 :],
        "PNG": png_header(20000, 20000),
        "GIF": b"GIF89a" + struct.pack("<HHBBB", 20000, 20000, 0, 0, 0) + b",\0\0\0\0\1\0\1\0\0\2\0;",
        "GIF frame": gif + b"\2\0;",
        "WebP": b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x1f\x4e\0\x1f\x4e\0",
        "BMP": b"BM" + bytes(8) + struct.pack("<IIiiHHI", 54, 40, 20000, -20000, 1, 24, 1) + bytes(30),
        "TIFF": tiff(big, 1).replace(struct.pack("<HHII", 256, 4, 1, 1), struct.pack("<HHII", 256, 4, 1, 10**9)),
        "TIFF tile": tiff(big, 1, (322, 20000), (323, 20000)),
    }


@pytest.mark.parametrize("name", bombs())
def test_huge_pictures_are_refused_before_decoding(name, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    assert "more than the limit of 100,000,000" in reason(bombs()[name])


def test_limit_on_pixels_can_be_chosen(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encode(SCENE, ".png"))
    assert read_picture(path, max_pixels=SCENE.shape[0] * SCENE.shape[1]).height == 48
    with pytest.raises(UnreadablePicture, match="64 x 48 pixels, more than the limit of 3,071"):
        read_picture(path, max_pixels=48 * 64 - 1)


def test_limit_on_bytes(tmp_path):
    path = tmp_path / "a.png"
    with open(path, "wb") as file:
        file.truncate(2**40)  # takes no room on the disk
    with pytest.raises(UnreadablePicture, match=r"1,099,511,627,776 bytes, more than a picture .* can need"):
        read_picture(path)


# -- what cannot be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 1.0])
def test_truncated(extension, share):
    data = encode(np.kron(SCENE, np.ones((2, 2, 1), dtype=np.uint8)), extension)
    assert "truncated" in reason(data[: int(share * (len(data) - 1))])


@pytest.mark.parametrize("progressive", [False, True])
def test_truncated_jpeg_is_not_confused_by_its_thumbnail(progressive):
    image = pytest.importorskip("PIL.Image")
    thumbnail = saved(image.fromarray(SCENE), "JPEG")
    data = saved(image.fromarray(SCENE), "JPEG", progressive=progressive)
    data = data[:2] + b"\xff\xe2" + struct.pack(">H", len(thumbnail) + 2) + thumbnail + data[2:]
    assert decode_picture(data, "it").width == 64
    assert "truncated" in reason(data[:-40])


def test_truncated_gif_and_compressed_tiff():
    image = pytest.importorskip("PIL.Image")
    for data in (saved(image.fromarray(SCENE), "GIF"), saved(image.fromarray(SCENE), "TIFF", compression="tiff_lzw")):
        assert decode_picture(data, "it").width == 64
        for share in (0.1, 0.5, 0.9):
            assert "truncated" in reason(data[: int(share * len(data))])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (b"hello, I am a text", r"no JPEG, PNG, GIF, BMP, WebP or TIFF file.*b'hello, I'"),
        (b"\0\0\0\x1cftypavif", "the kinds that can be read"),
        (b"\xff\xd8\xff\xe0\0\x01\xff\xd9", "a segment is shorter than its header"),
        (b"\xff\xd8\xff\xd9", "there is no picture in a JPEG file"),
        (b"GIF89a\1\0\1\0\0\0\0;", "there is no picture in a GIF file"),
        (b"GIF89a\1\0\1\0\0\0\0\x99", "unknown block 0x99"),
        (b"BM" + bytes(12) + b"\7\0\0\0" + bytes(40), "unknown length 7"),
        (png_header(0, 10), "no pixels"),
        (png_header(8, 8), r"OpenCV .* cannot decode it: this PNG file is damaged"),
        (tiff(np.zeros((4, 6), dtype=np.uint32), 1), "have 32 bits"),
        (b"RIFF\4\0\0\0WEBP", "unknown first chunk"),
    ],
)
def test_reasons(data, words):
    with pytest.raises(UnreadablePicture, match=words):
        decode_picture(data, "it")


def test_noise_in_the_middle_is_refused_or_read_but_nothing_else():
    for extension in EXTENSIONS:
        data = bytearray(encode(SCENE, extension))
        data[len(data) // 2 : len(data) // 2 + 9] = b"corrupted"
        try:
            assert decode_picture(bytes(data), "it").rgb.shape == SCENE.shape
        except UnreadablePicture as error:
            assert "cannot decode" in error.reason or "damaged" in error.reason or "truncated" in error.reason


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_what_is_no_readable_file(tmp_path):
    pipe = tmp_path / "pipe.jpg"
    os.mkfifo(pipe)
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    for path, words in {
        tmp_path / "missing.jpg": "there is no such file",
        tmp_path / "dangling.jpg": "there is no such file",
        tmp_path: "it is a folder",
        pipe: "not a regular file",
        "nul\0.jpg": "cannot be the name of a file",
    }.items():
        with pytest.raises(UnreadablePicture, match=words):
            read_picture(path)


@pytest.fixture
def folder_of_others():
    """A folder everyone may enter, with rights dropped while the test runs if it runs as root."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


class NoRights:
    def __enter__(self):
        self.root = hasattr(os, "geteuid") and os.geteuid() == 0
        if self.root:
            os.seteuid(65534)

    def __exit__(self, *_):
        if self.root:
            os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="rights work differently here")
def test_without_permission(folder_of_others):
    path = folder_of_others / "secret.png"
    path.write_bytes(encode(SCENE, ".png"))
    path.chmod(0)
    with NoRights(), pytest.raises(UnreadablePicture, match="no permission"):
        read_picture(path)


def test_several_unreadable_pictures_in_one_error():
    error = UnreadablePicture("a.jpg", "no", [(f"{k}.jpg", "bad") for k in range(12)])
    assert str(error).startswith("13 pictures cannot be read: a.jpg: no; 0.jpg: bad; ")
    assert str(error).endswith("8.jpg: bad; and 3 more")
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.reason, again.problems) == (error.path, error.reason, error.problems)
    assert str(again) == str(error)


# -- hostile bytes -------------------------------------------------------------------------------------------------

BEGINNINGS = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"]
WHOLE = [encode(SCENE, extension) for extension in EXTENSIONS]


@settings(max_examples=300)
@given(st.sampled_from(BEGINNINGS), st.binary(max_size=200))
def test_any_bytes_give_a_header_or_a_reason(beginning, rest):
    for data in (beginning + rest, beginning + b"\x08\0\0\0\0\0\0\0" + rest, rest[:4] + b"WEBPVP8X" + rest[4:]):
        try:
            header = read_header(data)
        except pictures._Refusal as refusal:
            assert str(refusal)
        else:
            assert header.width > 0
            assert header.height > 0


@settings(max_examples=200)
@given(st.sampled_from(WHOLE), st.data())
def test_changed_bytes_of_real_files_give_a_header_or_a_reason(data, draw):
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 8))):
        at = draw.draw(st.integers(0, min(len(changed), 400) - 1))
        changed[at] = draw.draw(st.integers(0, 255))
    try:
        assert read_header(bytes(changed)).pixels > 0
    except pictures._Refusal as refusal:
        assert str(refusal)


@settings(max_examples=60)
@given(st.sampled_from(WHOLE), st.data())
def test_changed_files_are_read_or_refused(data, draw):
    changed = bytearray(data)
    at = draw.draw(st.integers(0, len(changed) - 1))
    changed[at] = draw.draw(st.integers(0, 255))
    try:
        assert decode_picture(bytes(changed), "it", max_side=32, max_pixels=10**6).rgb.size > 0
    except UnreadablePicture as error:
        assert error.reason


def test_endless_parts_come_to_an_end(monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PARTS", 1000)
    assert "too many segments" in reason(b"\xff\xd8" + b"\xff\xfe\0\2" * 2000)
    assert "too many chunks" in reason(png_header(5, 5)[:33] + (b"\0\0\0\0tEXt" + bytes(4)) * 2000)
    assert "too many blocks" in reason(b"GIF89a\1\0\1\0\0\0\0" + b"\x21\0" * 2 + b"\1\1" * 2000)
    assert "too many chunks" in reason(b"RIFF\xff\x7f\0\0WEBPVP8X\x0a\0\0\0" + bytes(40_000))
    assert "too many tags" in reason(b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0" + b"\xff" * 40)
    strips = tiff(np.zeros((2001, 1, 2001), dtype=np.uint8), 1, planes_apart=True)
    assert "too many strips" in reason(strips)


def test_long_runs_are_read_in_one_pass():
    assert "truncated" in reason(b"\xff\xd8" + b"\xff" * 5_000_000)
    assert "truncated" in reason(b"\xff\xd8\xff" + b"\xff\0" * 2_500_000)
