#!/usr/bin/env python3
"""Runs strata's oracle_probe and PyTorch on the same folders and batches, and compares the results.

    compare.py --probe PATH [--family NAME ...] [--dtype f32|bf16 [--widened]] [--json]

Exit code: 0 if all figures are within their limits, 1 if one is not, 77 without PyTorch."""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print(f"compare: skipped: {error}", file=sys.stderr)
    sys.exit(77)

import make_folders
from bf16_figures import compare_bf16
from families import family_of
from figures import compare_f32

PROBE_TIMEOUT_S = 300
# README.md defines the figures. None: shown without a limit.
LIMITS = {
    "f32": {"logits": 1e-4, "gradients": 1e-4, "losses": 1e-3, "weights": 5e-3, "exported": 1e-3, "transformers": 1e-4,
            "choices": 1e-5, "trained": 1e-3},
    "bf16": {"logits": 1.5, "gradients": 1.5, "median": None, "losses": None, "torch_losses": None, "choices": 0.1},
}
# Factors on limits. A ReLU unit that is 0 up to rounding is on in one program and off in the other: its
# gradient jumps. So it does where a gate is at its limit, which that case has for many gates.
WIDER = {("opt", name): 10 for name in ("weights", "exported")}
WIDER |= {("gpt_oss-limited", name): 10 for name in ("losses", "weights", "exported", "trained")}


def limits_of(case, family, dtype):
    factors = {name: WIDER.get((case, name)) or WIDER.get((family, name), 1) for name in LIMITS[dtype]}
    return {name: limit and limit * factors[name] for name, limit in LIMITS[dtype].items()}


def router_options(config):
    """The probe's options for the losses of routers that a config asks for."""
    family = family_of(config)
    return ["--router-aux", str(family.router_aux), "--router-z", str(family.router_z)]


def run_probe(case_folder, rows, out, steps, args, config=None):
    """Runs the probe and returns how it computes bfloat16 GEMMs; raises ValueError with what went wrong."""
    out.mkdir()
    command = [str(args.probe), str(case_folder / "hf"), str(case_folder / f"{rows}.safetensors"), str(out)]
    command += ["--steps", str(steps), "--lr", str(args.lr), "--dtype", args.dtype] + ["--widened"] * args.widened
    command += ["--adapter", str(args.adapter)] if getattr(args, "adapter", None) else []
    command += ["--pissa"] * getattr(args, "pissa", False)
    command += router_options(config) if config else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"the probe took more than {PROBE_TIMEOUT_S} s") from error
    except OSError as error:
        raise ValueError(f"the probe cannot be run: {error}") from error
    if done.returncode != 0:
        raise ValueError(f"the probe ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def run_seeds(case, rows, scratch, args, row):
    """[(weight folder, batches, output)] per seed; only the first one is trained."""
    done = []
    for seed in range(args.seed, args.seed + args.seeds):
        folder, out = scratch / f"{case.name}-{seed}", scratch / f"{case.name}-{seed}-{rows}-out"
        if not folder.exists():
            make_folders.make_case(case, folder, seed, args.own, of_bf16=args.dtype == "bf16")
        row["bf16_gemm"] = run_probe(folder, rows, out, 0 if done else args.steps, args, case.config)
        done.append((folder / "hf", folder / f"{rows}.safetensors", out))
    return done


def compare_case(case, rows, scratch, args):
    """One row of the table."""
    row = {"case": case.name, "family": case.config["model_type"], "rows": rows, "bf16_gemm": None}
    row |= {"figures": {}, "worst": {}, "problems": [], "skipped": [], "limits": limits_of(case.name, row["family"], args.dtype)}
    failure = None
    try:
        seeds = run_seeds(case, rows, scratch, args, row)
    except ValueError as error:
        failure = str(error)
        row["problems"].append(failure)
    else:
        if args.dtype == "f32":
            compare_f32(*seeds[0], args.steps, args.lr, row)
        else:
            compare_bf16(seeds, args.steps, args.lr, row)
    for name, limit in row["limits"].items():
        figure = row["figures"].get(name)
        if figure is not None and not math.isfinite(figure):
            row["problems"].append(f"{name}: {figure}{row['worst'].get(name, '')}")
            del row["figures"][name]  # JSON has no NaN and no infinity
        elif figure is not None and limit is not None and figure > limit:
            row["problems"].append(f"{name}: {figure:.2g} is above {limit:g}{row['worst'].get(name, '')}")
        elif figure is None and limit is not None and not failure and name not in row["skipped"]:
            row["problems"].append(f"{name}: not compared")
    return row


def print_table(result, dtype):
    names = list(LIMITS[dtype])
    print(f"{'case':<14} {'rows':<7}" + "".join(f"{name:>14}" for name in names) + "  verdict")
    for row in result["rows"]:
        cells = [row["figures"].get(name) for name in names]
        verdict = "ok" if not row["problems"] else "WRONG"
        print(f"{row['case']:<14} {row['rows']:<7}" + "".join(f"{'-' if c is None else f'{c:.2g}':>14}" for c in cells) + f"  {verdict}")
        for problem in row["problems"]:
            print(f"{'':<22} {problem}")
    shown = [name for name in names if LIMITS[dtype][name] is not None]
    label = 'limit (wider: README)' if dtype == 'f32' else 'limit'
    print(f"{label:<22}" + "".join(f"{LIMITS[dtype][n]:>14g}" if n in shown else f"{'-':>14}" for n in names))
    if dtype == "f32":
        peers = [max((row["figures"].get("torch_" + n, 0) for row in result["rows"]), default=0) for n in names]
        print(f"{'PyTorch f32, at worst':<22}" + "".join(f"{p:>14.2g}" if p else f"{'-':>14}" for p in peers))
    wrong = sum(bool(row["problems"]) for row in result["rows"])
    how = dtype if dtype == "f32" else f"{dtype} ({result['bf16_gemm']}), {result['seeds']} seeds each"
    print(f"compare: {len(result['rows'])} rows in {how}, {wrong} wrong; transformers: {result['transformers']}")


def transformers_version():
    try:
        import transformers
    except ImportError:
        return None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers.__version__


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=pathlib.Path, required=True, metavar="PATH", help="the program oracle_probe")
    parser.add_argument("--family", nargs="+", metavar="NAME", help="families or cases to run (default: all)")
    parser.add_argument("--one-of-each", action="store_true", help="run one case of each family")
    parser.add_argument("--dtype", choices=sorted(LIMITS), default="f32")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--widened", action="store_true", help="compute bf16 GEMMs as on a CPU without bf16 instructions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="number of models per figure, from --seed on (default: 12 for bf16, 1 for f32)")
    parser.add_argument("--own", action="store_true", help="write no folder with transformers")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep folders and outputs in DIR, which must not exist")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.probe = args.probe.absolute()
    args.seeds = args.seeds or (1 if args.dtype == "f32" else 12)
    if args.seeds > 1 and args.dtype == "f32":
        parser.error("--seeds: figures of f32 are those of one model")
    torch.set_num_threads(1)  # matrices are tiny: threads would only wait for each other

    result = {"dtype": args.dtype, "limits": LIMITS[args.dtype], "torch": torch.__version__, "transformers": transformers_version()}
    with tempfile.TemporaryDirectory(prefix="strata-oracle-") as temporary:
        scratch = args.keep or pathlib.Path(temporary)
        scratch.mkdir(parents=True, exist_ok=not args.keep)
        cases = make_folders.one_of_each() if args.one_of_each else make_folders.choose(args.family)
        result["rows"] = [compare_case(case, rows, scratch, args) for case in cases for rows in ("whole", "packed")]
    result["seeds"], result["bf16_gemm"] = args.seeds, result["rows"][0]["bf16_gemm"]
    result["ok"] = not any(row["problems"] for row in result["rows"])
    if args.json:
        print(json.dumps(result))
    else:
        print_table(result, args.dtype)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
