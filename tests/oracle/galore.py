#!/usr/bin/env python3
"""Runs strata's oracle_probe and galore-torch on the same models and batches, and compares the losses of their steps.

    galore.py --probe PATH [--family NAME ...] [--variant NAME ...] [--steps N] [--json]

galore-torch trains the float64 reference of this folder with exact singular value decompositions, as does strata in
float32. Both give the entry of largest magnitude of every singular vector a positive sign, which LAPACK leaves open:
moments are kept when a basis changes, so that the sign of a vector is part of what is computed. galore-torch adds eps to
the square root of the second moment before its bias correction, strata after it, so eps is small here. Nothing decays.
Exit code: 0 if all figures are within LIMITS, 1 if one is not, 77 without PyTorch or galore-torch."""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import galore_torch
    import torch
    from galore_torch.galore_projector import GaLoreProjector
except ImportError as error:
    print(f"galore: skipped: {error}", file=sys.stderr)
    sys.exit(77)

import make_folders
import tensors
from layers import mean_loss
from reference import BETAS, Batches, Reference

RANK, GAP, SCALE, EPS = 6, 10, 0.25, 1e-10
# The losses: of the worst step. `exported`: logits of the merged model that strata wrote, by norm.
LIMITS = {"losses": 1e-4, "exported": 1e-4}
# The least difference between galore-torch's losses and those of AdamW on whole matrices: the steps are not the same.
APART = 1e-2
VARIANTS = {"unclipped": dict(clip=0.0, accum=1), "clipped": dict(clip=2.5, accum=1), "accumulated": dict(clip=2.0, accum=3)}
PROBE_TIMEOUT_S = 300


class SignedProjector(GaLoreProjector):
    """The projector with signs that are determined."""

    def get_orthogonal_matrix(self, weights, rank, type):
        basis = super().get_orthogonal_matrix(weights, rank, type)
        dim = 1 if type == "right" else 0
        largest = basis.abs().argmax(dim=dim, keepdim=True)
        return basis * torch.sign(torch.gather(basis, dim, largest))


def is_matrix_of_block(name, weight):
    return weight.dim() == 2 and re.search(r"(^|\.)(h|layers)\.\d+\.", name) is not None


def joined(batches, step, accum):
    """The micro-batches of a step as one."""
    parts = [batches[step * accum + k] for k in range(accum)]
    return torch.cat([tokens for tokens, _, _ in parts]), torch.cat([targets for _, targets, _ in parts]), None


def train(model, batches, steps, lr, variant, subspaces=True):
    """The losses before each step, and in how many steps the gradient was clipped."""
    matrices = [weight for name, weight in model.weights.items() if is_matrix_of_block(name, weight)]
    others = [weight for name, weight in model.weights.items() if not is_matrix_of_block(name, weight)]
    of_matrices = dict(rank=RANK, update_proj_gap=GAP, scale=SCALE, proj_type="std") if subspaces else {}
    groups = [dict(params=matrices, **of_matrices), dict(params=others)]
    optimizer = galore_torch.GaLoreAdamW(groups, lr=lr, betas=BETAS, eps=EPS, weight_decay=0.0, no_deprecation_warning=True)
    losses, clipped = [], 0
    for step in range(steps):
        optimizer.zero_grad()
        tokens, targets, starts = joined(batches, step, variant["accum"])
        loss = mean_loss(model.logits((tokens, targets, starts)), targets)
        loss.backward()
        if variant["clip"]:
            clipped += torch.nn.utils.clip_grad_norm_(matrices + others, variant["clip"]).item() > variant["clip"]
        optimizer.step()
        losses.append(loss.item())
    return losses, clipped


def run_probe(folder, out, variant, args):
    """strata's losses; raises ValueError with what went wrong."""
    out.mkdir()
    command = [str(args.probe), str(folder / "hf"), str(folder / "whole.safetensors"), str(out), "--steps", str(args.steps)]
    command += ["--lr", str(args.lr), "--galore", f"optim.galore_rank={RANK}", "--galore", f"optim.galore_gap={GAP}"]
    command += ["--galore", f"optim.galore_scale={SCALE}", "--galore", "optim.galore_svd=exact", "--galore", f"optim.eps={EPS}"]
    command += ["--galore", f"optim.clip={variant['clip']}", "--galore", f"train.grad_accum={variant['accum']}"]
    command += ["--galore", f"optim.beta1={BETAS[0]}", "--galore", f"optim.beta2={BETAS[1]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    if done.returncode != 0:
        raise ValueError(f"the probe ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads((out / "losses.json").read_text())["losses"]


def worst(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def compare(case, name, scratch, args):
    row = {"case": case.name, "variant": name, "figures": {}, "problems": []}
    variant, figures, folder = VARIANTS[name], row["figures"], scratch / case.name
    if not folder.exists():
        make_folders.make_case(case, folder, args.seed, own=True)
    batches = Batches(folder / "whole.safetensors")
    try:
        ours = run_probe(folder, scratch / f"{case.name} {name}", variant, args)
    except (ValueError, OSError, subprocess.TimeoutExpired) as error:
        row["problems"].append(str(error))
        return row
    model = Reference(folder / "hf", "f64")
    theirs, row["clipped"] = train(model, batches, args.steps, args.lr, variant)
    figures["losses"] = worst(ours, theirs)
    with torch.no_grad():
        want = model.logits(batches[0])
        got = Reference(scratch / f"{case.name} {name}" / "hf", "f64").logits(batches[0])
    figures["exported"] = ((got - want).norm() / want.norm()).item()
    figures["apart"] = worst(train(Reference(folder / "hf", "f64"), batches, args.steps, args.lr, variant, subspaces=False)[0], theirs)
    row["problems"] += [f"{n}: {figures[n]:.2g} is above {limit:g}" for n, limit in LIMITS.items() if not figures[n] <= limit]
    if not figures["apart"] >= APART:
        row["problems"].append(f"AdamW on whole matrices differs by only {figures['apart']:.2g}")
    if variant["clip"] and not 0 < row["clipped"]:
        row["problems"].append("no step was clipped")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=pathlib.Path, required=True, metavar="PATH", help="the program oracle_probe")
    parser.add_argument("--family", nargs="+", metavar="NAME", help="families or cases to run (default: all)")
    parser.add_argument("--variant", nargs="+", metavar="NAME", choices=sorted(VARIANTS), dest="variants")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.probe = args.probe.absolute()
    torch.set_num_threads(1)
    galore_torch.adamw.GaLoreProjector = SignedProjector
    rows = []
    with tempfile.TemporaryDirectory(prefix="strata-oracle-") as scratch:
        for case in make_folders.choose(args.family):
            for name in args.variants or VARIANTS:
                rows.append(compare(case, name, pathlib.Path(scratch), args))
                if not args.json:
                    cells = "".join(f" {n} {v:.2g}" for n, v in rows[-1]["figures"].items())
                    print(f"{case.name:<14} {name:<12}{cells}, clipped {rows[-1].get('clipped', '-')}", *rows[-1]["problems"], sep="\n    ", flush=True)
    result = {"rows": rows, "limits": LIMITS, "torch": torch.__version__, "ok": not any(row["problems"] for row in rows)}
    if args.json:
        print(json.dumps(result))
    else:
        print(f"galore: {len(rows)} rows, {sum(bool(row['problems']) for row in rows)} wrong")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
