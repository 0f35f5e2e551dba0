"""Features of many pictures: seconds, memory, and what the cache saves on a second run.

    python benchmarks/image_pipeline.py [--pictures FOLDER] [--preset quick] [--counts 250 1000 2000] [--size 225]

Linux only. Without a folder, scenes are drawn. Every run is a process of its own, so that its peak memory is known; it
learns the codebooks and describes the pictures, two at a time. "Processor" are the seconds of both threads together,
which other work on the machine changes little. "Beyond" is the peak without what was there before the first picture,
and without the features themselves, the output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelweave.datasets import read_pictures, write_scenes
from kernelweave.images import ImageFeatures


def extract(paths: list[str], preset: str, cache: str) -> dict[str, float]:
    """What one process measures of itself."""
    before = peak()
    begin, working = time.perf_counter(), time.process_time()
    views = ImageFeatures(preset, cache=cache or None, n_jobs=2).fit_transform(paths)
    seconds, working = time.perf_counter() - begin, time.process_time() - working
    output = sum(views[name].nbytes for name in views.names)
    return {
        "seconds": seconds,
        "working": working,
        "peak": peak(),
        "output": output,
        "beyond": peak() - before - output,
    }


def peak() -> float:
    """Most bytes this process ever had in memory."""
    # Not getrusage: a process begins there with the peak of the one that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024.0 * int(status["VmHWM"].split()[0])


def run(paths: list[str], preset: str, cache: str) -> dict[str, Any]:
    task = json.dumps({"paths": paths, "preset": preset, "cache": cache})
    command = [sys.executable, __file__, "--worker"]
    finished = subprocess.run(command, input=task, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(finished.stdout)


def measure(paths: list[str], preset: str, counts: list[int]) -> None:
    run(paths[:20], preset, "")  # compiles what is not compiled yet
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; preset {preset}")
    print(f"{'run':<34} {'seconds':>9} {'processor':>10} {'a picture':>10} {'peak MB':>9} {'output':>7} {'beyond':>7}")
    for count in counts:
        with tempfile.TemporaryDirectory() as cache:
            first, second = (run(paths[:count], preset, cache) for _ in range(2))
        for name, result in (("first run", first), ("second run", second)):
            times = f"{result['seconds']:>9.2f} {result['working']:>8.2f} s {1000 * result['seconds'] / count:>7.2f} ms"
            sizes = f"{result['peak'] / 1e6:>9.0f} {result['output'] / 1e6:>7.1f} {result['beyond'] / 1e6:>7.1f}"
            print(f"{f'{count} pictures, {name}':<34} {times} {sizes}", flush=True)
        print(f"{count} pictures: the second run is {first['seconds'] / second['seconds']:.0f}x as fast as the first")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", help="a folder of pictures; drawn scenes without it")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--counts", type=int, nargs="+", default=[250, 1000, 2000])
    parser.add_argument("--size", type=int, default=225, help="shorter side of drawn scenes, in pixels")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(extract(**json.load(sys.stdin))))
    elif arguments.pictures is not None:
        paths = [str(path) for path in read_pictures(arguments.pictures).paths]
        if len(paths) < max(arguments.counts):
            sys.exit(
                f"{arguments.pictures} has {len(paths)} pictures, fewer than {max(arguments.counts)}: see --counts."
            )
        measure(paths, arguments.preset, arguments.counts)
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_scenes(folder, max(arguments.counts), random_state=0, size=arguments.size)
            measure(sorted(map(str, Path(folder).glob("*.png"))), arguments.preset, arguments.counts)


if __name__ == "__main__":
    main()
