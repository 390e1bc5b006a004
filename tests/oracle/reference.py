"""The reference that strata is compared with: a model of a folder, run and trained by PyTorch."""
import numpy as np
import torch

import tensors
from families import family_of
from layers import mean_loss
from make_folders import is_norm

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0  # as in the probe


def canonical(family, found):
    """`found` under the names of newer files, without tensors that are no parameters; unknown names stay."""
    shapes, named = family.all_shapes(), {}
    for name, array in family.per_expert(found).items():
        full = family.prefix + name
        if name not in shapes and full in shapes:
            named[full] = array
        elif not (name.endswith((".attn.bias", ".attn.masked_bias")) or (family.tied and name == family.final_table)):
            named[name] = array
    return named


def load(folder):
    """(family, {name: float32 array}) of a folder; raises ValueError if the tensors do not match its config."""
    config, found = tensors.read_folder(folder)
    family = family_of(config)
    named, shapes = canonical(family, found), family.all_shapes()
    if set(named) != set(shapes):
        raise ValueError(f"{folder}: lacks {sorted(set(shapes) - set(named))}, has beside {sorted(set(named) - set(shapes))}")
    for name, shape in shapes.items():
        if named[name].shape != shape:
            raise ValueError(f"{folder}: {name} is {named[name].shape}, not {shape}")
    head = found.get(family.final_table)
    if family.tied and head is not None and not np.array_equal(head, named[family.prefix + family.table]):
        raise ValueError(f"{folder}: the head is tied, and the file holds another one")
    return family, {name: named[name].astype(np.float32) for name in shapes}


class Batches:
    """Micro-batches of a file, indexed cyclically."""

    def __init__(self, path):
        self.arrays = {name: torch.from_numpy(array.astype(np.int64)) for name, array in tensors.read(path).items()}

    def __getitem__(self, i):
        i %= self.arrays["tokens"].shape[0]
        starts = self.arrays.get("doc_start")
        return self.arrays["tokens"][i], self.arrays["targets"][i], None if starts is None else starts[i]


class Reference:
    """One model in one dtype. bf16 is mixed precision: computation in bfloat16 with float32 weights."""

    def __init__(self, folder, dtype):
        self.family, weights = load(folder)
        self.compute = DTYPES[dtype]
        kept = torch.float64 if dtype == "f64" else torch.float32
        self.weights = {
            name: torch.from_numpy(array).to(kept).requires_grad_(self.family.is_trained(name)) for name, array in weights.items()
        }

    def logits(self, batch):
        tokens, _, doc_start = batch
        weights = {name: weight.to(self.compute) for name, weight in self.weights.items()}
        return self.family.logits(weights, tokens, doc_start)

    def loss(self, batch):
        return mean_loss(self.logits(batch), batch[1])

    def losses(self, batch):
        """(the loss, what is differentiated): losses of routers are added to the gradient alone."""
        loss, family = self.loss(batch), self.family
        if not family.router_aux and not family.router_z:
            return loss, loss
        aux, z = family.router_losses()
        return loss, loss + family.router_aux * aux + family.router_z * z

    def gradients(self, batch):
        _, loss = self.losses(batch)
        trained = {name: weight for name, weight in self.weights.items() if self.family.is_trained(name)}
        return dict(zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True))

    def train(self, batches, steps, lr, choices_of=None, after_loss=None):
        """Trains the weights at index and returns the losses before each step. `choices_of(step)`: what to replay in a
        step; `after_loss(step)` is called once its loss is known."""
        is_plain = {name: name.endswith(("bias", ".sinks", ".A_log", ".D", "scale")) or is_norm(name) for name in self.weights if self.family.is_trained(name)}
        plain = [self.weights[name] for name in is_plain if is_plain[name]]
        decayed = [self.weights[name] for name in is_plain if not is_plain[name]]
        groups = [dict(params=decayed, weight_decay=DECAY), dict(params=plain, weight_decay=0.0)]
        optimizer = torch.optim.AdamW(groups, lr=lr, betas=BETAS, eps=EPS)
        losses = []
        for step in range(steps):
            optimizer.zero_grad()
            if choices_of:
                self.family.replay(choices_of(step))
            loss, differentiated = self.losses(batches[step])
            if after_loss:
                after_loss(step)
            differentiated.backward()
            torch.nn.utils.clip_grad_norm_(list(self.weights.values()), CLIP)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def arrays(self):
        """Copies of the current weights."""
        return {name: weight.detach().to(torch.float64).numpy().copy() for name, weight in self.weights.items()}
