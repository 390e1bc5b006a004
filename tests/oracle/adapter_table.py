"""Functions that the comparisons of adapters share: what they need, their common arguments, the loop over cases and adapters, and the
table with its verdict. Importing it ends the program with 77 where PyTorch, transformers or PEFT is missing."""
import argparse
import json
import pathlib
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
except ImportError as error:
    print(f"{pathlib.Path(sys.argv[0]).stem}: skipped: {error}", file=sys.stderr)
    sys.exit(77)

import make_folders


def parser_of(description):
    """A parser with the arguments that all of them have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", metavar="NAME", help="families or cases to run (default: all, or some of them)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one object for programs")
    return parser


def add_probe(parser, steps=None):
    """The arguments of those that run oracle_probe, and train if `steps` is given."""
    parser.add_argument("--probe", type=pathlib.Path, required=True, metavar="PATH", help="the program oracle_probe")
    if steps is not None:
        parser.add_argument("--steps", type=int, default=steps)
        parser.add_argument("--lr", type=float, default=1e-3)


def above_limits(row):
    """The problems of a row whose figures are not within its limits."""
    figures = row["figures"]
    return [f"{name}: {figures[name]:.2g} is above {limit:g}" for name, limit in row["limits"].items() if not figures[name] <= limit]


def print_row(row, digits):
    cells = "".join(f" {name} {figure:{digits}}" for name, figure in row["figures"].items())
    print(f"{row['case']:<14} {row.get('adapter', ''):<18}{cells}", *row["problems"], sep="\n    " if row["problems"] else "", flush=True)


def run(program, args, adapters, compare, about, cases=None, digits=".2g"):
    """Calls compare(case, adapter, folder, args) for every case (default: those of make_folders.py that are asked for) and each of
    `adapters`, and returns the exit code. Prints the rows, which have case, adapter, figures and problems, or with --json an object
    of them and of what `about` says."""
    torch.set_num_threads(1)  # matrices are tiny: threads would only wait for each other
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rows = []
    with tempfile.TemporaryDirectory(prefix="strata-oracle-") as scratch:
        for case in make_folders.choose(args.family) if cases is None else cases:
            for adapter in adapters:
                rows.append(compare(case, adapter, pathlib.Path(scratch), args))
                if not args.json:
                    print_row(rows[-1], digits)
    n_wrong = sum(bool(row["problems"]) for row in rows)
    if args.json:
        versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
        print(json.dumps({"rows": rows} | about | versions | {"ok": n_wrong == 0}))
    else:
        names = dict.fromkeys(name for row in rows for name in row["figures"])
        worst = ", ".join(f"{name} {max(row['figures'].get(name, 0) for row in rows):{digits}}" for name in names)
        print(f"{program}: {len(rows)} rows, {n_wrong} wrong; at worst {worst}")
    return 0 if n_wrong == 0 else 1
