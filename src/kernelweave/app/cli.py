"""The command ``kernelweave``: from a folder of pictures to ranked tags, without Python."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import __version__

DONE, UNEXPECTED, BAD_INPUT, NOTHING_DONE, INTERRUPTED = 0, 1, 2, 3, 130

#: Adds a command: from its name, a short and a long description, and examples.
Command = Callable[[str, str, str, str], argparse.ArgumentParser]

EPILOG = """\
the way to go:
  kernelweave train photos -o photos.kw --report photos.html
  kernelweave tag photos.kw new/*.jpg

exit codes:
  0    done; pictures that could not be used are listed on stderr (with --strict they stop the command)
  2    wrong usage or bad input
  3    nothing could be done: no picture can be read, or the model file is damaged or too new
  1    an error that should not happen
  130  stopped with Ctrl-C; no half-written file is left

Results go to stdout or to the file given with -o, everything else to stderr. A file that exists is only replaced by one
of its own kind: a model by a model, a report by a report, and so on. Nothing else is written, unless you ask for it
with --cache or --sidecars.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        None: those of the command line; the program then ends here unless all went well.
    """
    options = build_parser().parse_args(arguments)
    try:
        code = _run(options)
    except KeyboardInterrupt:
        print("\nkernelweave: stopped; no half-written file is left", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:  # whoever reads the results has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    if arguments is None and code != DONE:
        # Threads may still be busy with pictures, in compiled code that crashes when Python is taken down around it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(options: argparse.Namespace) -> int:
    """Do what the options say; errors become sentences."""
    from ..images.pictures import UnreadablePicture
    from . import commands
    from .output import Output

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="surrogateescape")  # names of files that are no text keep their bytes
    output = Output(options.quiet, options.verbose, options.json)
    try:
        with output.notes():
            getattr(commands, options.command)(options, output)
        sys.stdout.flush()
        return DONE
    except BrokenPipeError:
        raise
    except UnreadablePicture as error:
        output.error(str(error))
        return BAD_INPUT if options.strict else NOTHING_DONE
    except commands.NothingDone as error:
        output.error(str(error))
        return NOTHING_DONE
    except (ValueError, OSError, MemoryError) as error:
        output.error(_sentence(error))
        return BAD_INPUT
    except Exception as error:
        output.error(f"unexpected {type(error).__name__}: {error} (run again with --verbose to see where)")
        return UNEXPECTED


def _sentence(error: Exception) -> str:
    """What went wrong, without the number that errors of the system begin with."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


# -- options ----------------------------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="kernelweave",
        description="Learn from pictures with some labels to name what is in other pictures.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_everywhere()],
    )
    parser.add_argument("--version", action="version", version=f"kernelweave {__version__}")
    parser.set_defaults(quiet=False, verbose=False, json=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, short: str, text: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=short,
            description=textwrap.fill(text, 100),
            epilog=f"examples:\n{example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[_everywhere()],  # one of its own: defaults of the main parser must not get into it
        )

    _add_train(command)
    _add_tag(command)
    _add_suggest(command)
    _add_evaluate(command)
    _add_report(command)
    _add_features(command)
    _add_info(command)
    _add_demo(command)
    return parser


def _everywhere() -> argparse.ArgumentParser:
    """Options that may stand before or after the command."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--quiet", "-q", action="store_true", help="say nothing but results and errors")
    shared.add_argument("--verbose", "-v", action="store_true", help="list all problems, and where errors come from")
    shared.add_argument("--json", action="store_true", help="print the result as JSON to stdout")
    return shared


def _add_train(command: Command) -> None:
    parser = command(
        "train",
        "learn a model from pictures with labels",
        "Learn a model from pictures with labels. Features are computed, kernel weights and the cost of errors are "
        "chosen by cross-validation, and the model is written to one file.",
        "  kernelweave train photos -o photos.kw\n"
        "  kernelweave train labels.csv -o photos.kw --features voc15 --cache features --report photos.html\n"
        "  kernelweave train photos --labels tags.csv --unlisted unknown -o photos.kw",
    )
    _add_source(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help="file to write the model to")
    _add_features_option(parser)
    parser.add_argument(
        "--method",
        choices=("auto", "ranker", "classifier"),
        default="auto",
        help="rank the labels of a picture, or learn each on its own (default: a classifier where pictures have one "
        "class, a ranker where they have several labels)",
    )
    parser.add_argument(
        "--weights",
        type=_weights,
        default="auto",
        help="kernel weights, or several to choose from: average,l1,l2 (default: these)",
    )
    parser.add_argument("--C", type=_costs, default="auto", help="cost of errors, or several to choose from: 1,10")
    parser.add_argument("--folds", type=int, default=3, help="parts of the cross-validation (default: 3)")
    _add_work(parser)
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a report as well")


def _add_tag(command: Command) -> None:
    parser = command(
        "tag",
        "name what is in pictures",
        "Name what is in pictures: the best labels with their scores. A star, or the column 'labels', marks those that "
        "the model would give to the picture.",
        "  kernelweave tag photos.kw new/*.jpg\n"
        "  kernelweave tag photos.kw new --top 3 -o tags.csv\n"
        "  kernelweave tag photos.kw new --format jsonl | head\n"
        "  kernelweave tag photos.kw new --sidecars",
    )
    _add_model(parser)
    parser.add_argument("pictures", type=Path, nargs="+", metavar="PICTURES", help="pictures, or folders of pictures")
    parser.add_argument("--top", type=_count, default=5, help="labels for each picture (default: 5)")
    _add_table(parser)
    parser.add_argument(
        "--sidecars", action="store_true", help="write the labels given as keywords into XMP files beside the pictures"
    )
    _add_work(parser)


def _add_suggest(command: Command) -> None:
    parser = command(
        "suggest",
        "find labels that pictures seem to lack",
        "Find labels that pictures seem to lack or, where every picture has one class, pictures that seem to be in the "
        "wrong one. Pictures that the model has learned from are judged by models that have not seen them.",
        "  kernelweave suggest photos.kw photos\n  kernelweave suggest photos.kw photos --top 50 -o missing.csv",
    )
    _add_model(parser)
    _add_source(parser)
    parser.add_argument("--top", type=_count, default=None, help="how many at most (default: all)")
    _add_table(parser)
    _add_work(parser)


def _add_evaluate(command: Command) -> None:
    parser = command(
        "evaluate",
        "measure how good a model is",
        "Measure how good a model is on pictures with labels. Those that it has learned from are judged by models that "
        "have not seen them.",
        "  kernelweave evaluate photos.kw test-photos\n  kernelweave evaluate photos.kw test.csv --json",
    )
    _add_model(parser)
    _add_source(parser)
    _add_work(parser)


def _add_report(command: Command) -> None:
    parser = command(
        "report",
        "write a report to look at in a browser",
        "Write one HTML file about a model: what counts in it, how good it is label by label, and the best and the "
        "worst pictures. They are those it was trained with, held out, or those of SOURCE.",
        "  kernelweave report photos.kw -o photos.html\n  kernelweave report photos.kw test-photos -o test.html",
    )
    _add_model(parser)
    _add_source(parser, optional=True)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.html", help="file to write")
    _add_work(parser)


def _add_features(command: Command) -> None:
    parser = command(
        "features",
        "compute features and write them to a file",
        "Compute features of pictures and write them to a file of NumPy arrays: one array a view, 'names' of the "
        "pictures, 'problems', and the labels if there are any ('y' for classes, else 'Y' and 'label_names').",
        "  kernelweave features photos -o photos.npz --features voc15",
    )
    _add_source(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.npz", help="file to write")
    _add_features_option(parser)
    _add_work(parser)


def _add_info(command: Command) -> None:
    parser = command(
        "info",
        "say what is in a model, a file of features or a preset",
        "Say what is in a model, in a file of features, or in a preset of features. With --json a preset is printed as "
        "a list that can be edited and given to --features.",
        "  kernelweave info photos.kw\n  kernelweave info quick --json > my-features.json",
    )
    parser.add_argument("what", metavar="FILE|PRESET", help="a file, or the name of a preset")


def _add_demo(command: Command) -> None:
    parser = command(
        "demo",
        "show all of it on drawn pictures",
        "Show all of it on pictures that are drawn for the purpose.",
        "  kernelweave demo -o demo-output",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("demo-output"), metavar="DIR", help="folder to write to"
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file that 'kernelweave train' wrote")


def _add_source(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    parser.add_argument(
        "source",
        type=Path,
        nargs="?" if optional else None,
        metavar="SOURCE",
        help="a folder with one folder a class, with labels.csv, metadata.csv or metadata.jsonl, or with XMP sidecars; "
        "or a table (.csv, .tsv, .jsonl) of pictures and labels",
    )
    parser.add_argument(
        "--labels", type=Path, metavar="TABLE", help="a table with the labels of the pictures in SOURCE"
    )
    parser.add_argument(
        "--unlisted",
        choices=("no", "unknown"),
        default="no",
        help="what a list of tags says about labels that are not in it: that they do not apply (default), or nothing",
    )


def _add_features_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--features",
        default="quick",
        metavar="PRESET|FILE",
        help="quick (default), voc15, imagenet10, flowers, caltech48, or a JSON file such as 'kernelweave info quick "
        "--json' prints",
    )
    parser.add_argument(
        "--max-side",
        type=_pixels,
        default=300,
        help="shrink pictures to this many pixels first; 0: never (default: 300)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="number that fixes all that is drawn at random (default: 0)"
    )


def _add_work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="stop at pictures that cannot be used")
    parser.add_argument("--jobs", type=int, default=-1, help="pictures worked on at once (default: one a processor)")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep what was computed here, for the next time and to go on after a stop",
    )


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "csv", "jsonl"), help="form of the result (default: table)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write CSV or JSON Lines to this file instead"
    )


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def _pixels(text: str) -> int | None:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number of pixels, got {text!r}")
    return int(text) or None


def _weights(text: str) -> str | list[str]:
    return text if "," not in text else [part.strip() for part in text.split(",")]


def _costs(text: str) -> str | list[float]:
    if text == "auto":
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers such as 1,10 or 'auto', got {text!r}") from None


if __name__ == "__main__":
    sys.exit(main())
