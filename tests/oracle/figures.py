"""The figures of one run of the probe: the errors of its files against PyTorch in float64."""
import json

import numpy as np
import torch

import tensors
from reference import Batches, Reference, canonical, load
from routing import Choices, Worst

# A gradient much smaller than the others is rounding noise in float32: its error is relative to this part of
# the total norm.
NOISE_FLOOR = 1e-3


def compare_f32(hf, batches_path, out, steps, lr, row):
    """Fills the figures, worst and problems of `row`. `torch_...` is the same figure for PyTorch in float32."""
    batches, truth, peer = Batches(batches_path), Reference(hf, "f64"), Reference(hf, "f32")
    choices, worst, worst_trained = Choices(out, truth.family), Worst(), Worst()
    figures, tokens = row["figures"], batches[0][0]

    replay(choices.of("logits", tokens), truth, peer)
    want = truth.logits(batches[0]).detach().numpy()
    worst.see(truth.family, "logits")
    guard(row, lambda: figures.update(logits=by_max(logits_of(out, want), want)))
    figures["torch_logits"] = by_max(peer.logits(batches[0]).detach().numpy(), want)

    replay(choices.of("gradients", tokens), truth, peer)
    want = as_numpy(truth.gradients(batches[0]))
    worst.see(truth.family, "gradients")
    guard(row, lambda: _compare_gradients(truth.family, gradients_of(truth.family, out), want, row))
    figures["torch_gradients"] = _worst_gradient(truth.family, as_numpy(peer.gradients(batches[0])), want)[0]
    worst.into(row, "choices")

    def choices_of(step):
        return choices.of("steps", tokens, step)

    before = truth.arrays()
    losses = truth.train(batches, steps, lr, choices_of, lambda step: worst_trained.see(truth.family, f"step {step}"))
    worst_trained.into(row, "trained")
    guard(row, lambda: figures.update(losses=by_ratio(losses_of(out, steps), losses)))
    figures["torch_losses"] = by_ratio(peer.train(batches, steps, lr, choices_of), losses)

    figures["torch_weights"] = _worst_change(truth.family, peer.arrays(), truth.arrays(), before)[0]
    replay(None, truth, peer)
    guard(row, lambda: _compare_export(out / "hf", truth, before, batches[0], row))


def replay(choices, *references):
    for reference in references:
        reference.family.replay(choices)


def guard(row, figure):
    """Records a missing or malformed file as a problem of this row, so that the comparison continues."""
    try:
        figure()
    except (OSError, ValueError, KeyError) as error:
        row["problems"].append(f"{type(error).__name__}: {error}")


def as_numpy(gradients):
    return {name: gradient.to(torch.float64).numpy() for name, gradient in gradients.items()}


def ratio_of(part, whole):
    """Where there is nothing, as in gradients of a router that has no choice, nothing may differ."""
    return part / whole if whole else np.inf if part else 0.0


def by_max(got, want):
    return float(np.abs(got - want).max() / np.abs(want).max())


def _by_norm(got, want):
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def by_ratio(got, want):
    return float(np.max(np.abs(np.subtract(got, want)) / np.abs(want)))


def logits_of(out, want):
    logits = tensors.read(out / "logits.safetensors")["logits"]
    if logits.shape != want.shape:
        raise ValueError(f"logits are {logits.shape}, not {want.shape}")
    return logits.astype(np.float64)


def losses_of(out, steps):
    losses = json.loads((out / "losses.json").read_text())["losses"]
    if len(losses) != steps:
        raise ValueError(f"{len(losses)} losses, not {steps}")
    return losses


def gradients_of(family, out):
    found = canonical(family, tensors.read(out / "grads.safetensors"))
    shapes = {name: shape for name, shape in family.all_shapes().items() if family.is_trained(name)}
    if set(found) != set(shapes):
        raise ValueError(f"gradients lack {sorted(set(shapes) - set(found))}, have beside {sorted(set(found) - set(shapes))}")
    for name, shape in shapes.items():
        if found[name].shape != shape:
            raise ValueError(f"the gradient of {name} is {found[name].shape}, not {shape}")
    return {name: found[name].astype(np.float64) for name in shapes}


def _effective(family, name, array):
    """The elements of a tensor that change what the model computes."""
    idle = family.without_effect(name)
    return array.ravel() if idle is None else array.ravel()[~idle.numpy()]


def worst_of(errors):
    """The maximum of (error, name); a NaN, which no comparison orders, counts as the largest."""
    return max(errors, key=lambda e: np.inf if np.isnan(e[0]) else e[0])


def _worst_gradient(family, got, want):
    """(error, name) of the worst tensor. Elements without effect have gradients that are 0 up to rounding,
    hence the floor."""
    whole = np.sqrt(sum(np.sum(gradient**2) for gradient in want.values()))
    errors = []
    for name, gradient in want.items():
        error = np.linalg.norm(got[name] - gradient)
        errors.append((float(error / max(np.linalg.norm(gradient), NOISE_FLOOR * whole)), name))
    return worst_of(errors)


def _compare_gradients(family, got, want, row):
    row["figures"]["gradients"], worst = _worst_gradient(family, got, want)
    row["worst"]["gradients"] = f", in {worst}"


def _worst_change(family, got, want, before):
    """(error, name) of the worst tensor, relative to its change in training. Adam makes full steps even of
    rounding noise, so elements whose gradient is only that are left out."""
    errors = []
    for name, weights in want.items():
        if not family.is_trained(name):
            errors.append((0.0 if np.array_equal(got[name], before[name]) else np.inf, name))
            continue
        change = _effective(family, name, weights - before[name])
        if change.size:
            error = np.linalg.norm(_effective(family, name, got[name] - weights))
            errors.append((ratio_of(float(error), float(np.linalg.norm(change))), name))
    return worst_of(errors)


def _rounded(array, kind):
    """`array` rounded to the type in which a file stores it."""
    if kind == "BF16":
        return tensors.as_bf16(array).astype(np.float64)
    return array.astype(tensors.TYPES[kind]).astype(np.float64)


def _compare_export(folder, truth, before, batch, row):
    family, exported = load(folder)
    expected = truth.family.text_family or truth.family
    found, wanted = vars_of(family), vars_of(expected)
    if found != wanted:
        others = {key: (found.get(key), wanted.get(key)) for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)}
        raise ValueError(f"the exported config says other things than the first (found, wanted): {others}")
    # As arrays, since tensors of experts may be parts of stacks.
    of_file = {name: np.full(array.shape, kind) for name, (array, kind) in tensors.read_folder(folder, with_types=True)[1].items()}
    kinds = {name: kind.flat[0] for name, kind in canonical(family, of_file).items()}
    of_truth = {name: array for name, array in truth.arrays().items() if expected is truth.family or name in kinds}
    want = {name: _rounded(array, kinds[name]) for name, array in of_truth.items()}
    row["figures"]["weights"], worst = _worst_change(family, exported, want, before)
    row["worst"]["weights"] = f", in {worst}"

    def logits(weights):
        weights = {name: torch.from_numpy(array).to(torch.float64) for name, array in weights.items()}
        return family.logits(weights, batch[0], batch[2]).detach().numpy()

    expected = logits(want)
    family.replay(family.choices())
    row["figures"]["exported"] = _by_norm(logits(exported), expected)
    family.replay(None)
    _compare_transformers(folder, family, exported, batch, row)


def vars_of(family):
    """Everything that a family has read from its config."""
    found = {key: value for key, value in vars(family).items() if not key.startswith("_")}
    return {key: vars(value) if hasattr(value, "__dict__") else value for key, value in found.items()}


def _compare_transformers(folder, family, exported, batch, row):
    try:
        import transformers
    except ImportError:
        row["skipped"].append("transformers")
        return
    load_model = transformers.AutoModelForCausalLM.from_pretrained
    try:
        model, report = load_model(folder, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # a library of this size may raise anything
        raise ValueError(f"transformers does not load the exported folder: {error!r}") from error
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise ValueError(f"transformers loads the exported folder with {report}")
    model.eval()
    weights = {name: torch.from_numpy(array).to(torch.float64) for name, array in exported.items()}
    with torch.no_grad():  # whole rows only: transformers has no packed rows
        want = family.logits(weights, batch[0])
        row["figures"]["transformers"] = by_max(model(batch[0]).logits.numpy(), want.numpy())
