"""Compares families.py with the transformers package: logits and gradients of every case, in float64.

transformers has no packed rows, so each document of a packed row is compared with the document by itself."""
import pathlib
import tempfile

import torch

import make_folders
import tensors
from layers import mean_loss
from reference import Batches, Reference, canonical

# transformers computes norms, softmax and angles in float32 even if the model is in float64.
LIMIT = 2e-5


def error(got, want):
    return ((got - want).norm() / want.norm()).item()


def document_ends(starts):
    """[(begin, end)] of the documents of a row."""
    begins = sorted(set(starts.tolist()))
    return list(zip(begins, begins[1:] + [len(starts)], strict=True))


def router_losses(family, out):
    """What the losses of routers add, by transformers' own auxiliary loss."""
    added = family.router_aux * out.aux_loss if family.router_aux else 0.0
    if family.router_z:
        added += family.router_z * torch.cat(out.router_logits).logsumexp(-1).square().mean()
    return added


def check(folder):
    import transformers

    ours = Reference(folder / "hf", "f64")
    # Its grouped GEMMs do not know float64.
    more = {"experts_implementation": "eager"} if hasattr(ours.family, "n_experts") else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float64, attn_implementation="eager", **more)
    model.eval()
    batch = Batches(folder / "whole.safetensors")[0]
    out = model(batch[0])
    theirs = out.logits
    logits = error(ours.logits(batch), theirs)

    (mean_loss(theirs, batch[1]) + router_losses(ours.family, out)).backward()
    found = canonical(ours.family, {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None})
    gradients = ours.gradients(batch)
    assert set(found) == set(gradients), sorted(set(found) ^ set(gradients))
    total = torch.stack([grad.norm() for grad in gradients.values()]).norm()
    worst = max(((found[n] - g).norm() / torch.maximum(g.norm(), 1e-3 * total)).item() for n, g in gradients.items())

    batch = Batches(folder / "packed.safetensors")[0]
    packed = ours.logits(batch)
    with torch.no_grad():
        alone = torch.zeros_like(packed)
        for row, starts in enumerate(batch[2]):
            for begin, end in document_ends(starts):
                alone[row, begin:end] = model(batch[0][row : row + 1, begin:end]).logits[0]
    return {"logits": logits, "gradients": worst, "packed": error(packed, alone)}


def check_files(folder):
    """Checks that our reader and the safetensors package return the same."""
    import safetensors.numpy
    import safetensors.torch

    for path in sorted(folder.rglob("*.safetensors")):
        want = safetensors.torch.load_file(path)
        got = tensors.read(path)
        assert set(got) == set(want), path
        assert all(torch.equal(torch.from_numpy(got[n].copy()).to(t.dtype), t) for n, t in want.items()), path


def main():
    try:
        import transformers
    except ImportError:
        print("selfcheck: transformers is not installed; nothing was compared")
        return 1
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    bad = 0
    print(f"{'case':<16} {'logits':>9} {'gradients':>9} {'packed':>9}   (limit {LIMIT:g})")
    with tempfile.TemporaryDirectory(prefix="strata-oracle-") as scratch:
        for case in make_folders.CASES:
            folder = pathlib.Path(scratch) / case.name
            make_folders.make_case(case, folder, seed=7, own=False)
            check_files(folder)
            figures = check(folder)
            wrong = not all(value <= LIMIT for value in figures.values())
            bad += wrong
            print(f"{case.name:<16} " + " ".join(f"{value:9.1e}" for value in figures.values()) + ("   WRONG" if wrong else ""))
    print(f"selfcheck: {len(make_folders.CASES)} cases against transformers {transformers.__version__}, {bad} wrong")
    return 1 if bad else 0
