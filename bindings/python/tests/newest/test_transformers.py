"""Losses of small models of transformers beside torch.optim.AdamW, by where states live, accumulation, activation
checkpointing, tied embeddings and frozen parameters; and of models whose parameters and
gradients leave, too, over three tiers.

How far the f32 optimizers are from the same update in f64 says what a difference between them means: torch's fused and
foreach AdamW round alike and are nearer to each other than to it."""

import copy
import itertools
import json
import tempfile
import unittest
import warnings

from language_models import (
    CHUNK,
    LR,
    MODELS,
    ExactAdamW,
    batches,
    freeze,
    gap,
    loss_of,
    placements,
    same,
    torch,
    train,
    values,
)

import strata
from strata import optim

LIMIT = 1e-6
SETTINGS = dict(lr=LR, weight_decay=0.1)
OPTIONS = ("accumulation", "checkpointing", "tied", "frozen")


def prepared(make, accumulation=1, checkpointing=False, tied=True, frozen=False):
    net = make(tied)
    net.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # older versions do not have the new names
        if checkpointing:
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if net.is_gradient_checkpointing != checkpointing:
            raise AssertionError(f"activation checkpointing is {net.is_gradient_checkpointing}")
    if frozen:
        freeze(net)
    return net


def by(kind, make, options, **keywords):
    """Losses with another optimizer."""
    net = prepared(make, **options)
    return train(net, kind(net.parameters(), **SETTINGS, **keywords), accumulation=options["accumulation"])


def by_strata(make, options, where):
    """Losses, parameters, and bytes written to NVMe."""
    net = prepared(make, **options)
    optimizer = optim.AdamW(net.parameters(), **SETTINGS, **where)
    losses = train(net, optimizer, accumulation=options["accumulation"])
    written = optimizer.stats()["nvme_written_bytes"]
    optimizer.close()
    return losses, values(net), written


def offload(net, folder):
    """Offloads the model over three tiers: PyTorch has two modules at a time, RAM about half of the rest."""

    def pinned_bytes(**where):
        other = copy.deepcopy(net)
        strata.offload(other, device=device, chunk_elems=CHUNK, threads=1, **where)
        kept = optim.AdamW([param for param in other.parameters() if param.requires_grad], **SETTINGS)  # noqa: F841
        return strata.plan(other, {"input_ids": tokens, "labels": tokens})["pinned_bytes"]

    tokens = batches(1)[0]
    device = 2 * max(sum(4 * p.numel() for p in module.parameters(recurse=False)) for module in net.modules())
    most = pinned_bytes(placement="pinned", pinned="256MiB")
    least = pinned_bytes(placement="nvme", pinned="256MiB", nvme=folder)
    strata.offload(net, device=device, pinned=(most + least) // 2, nvme=folder, chunk_elems=CHUNK, threads=1)
    return device


def by_offload(make, options):
    """Losses, parameters, and bytes written to NVMe of a model that is offloaded."""
    net = prepared(make, **options)
    with tempfile.TemporaryDirectory() as folder:
        device = offload(net, folder)
        optimizer = optim.AdamW([param for param in net.parameters() if param.requires_grad], **SETTINGS)
        losses = train(net, optimizer, accumulation=options["accumulation"])
        stats = net.strata_offload.stats()
        if stats["peak_device_bytes"] > device or stats["misses"]:
            raise AssertionError(f"device is {device} bytes: {stats}")
        found = net.state_dict()
        params = [found[name].clone() for name, _ in net.named_parameters()]
        optimizer.close()
    return losses, params, stats["nvme_written_bytes"]


def evaluated(net):
    """The loss over the first batches."""
    with torch.no_grad():
        return sum(loss_of(net, tokens).item() for tokens in batches(20)) / 20


class TransformersTest(unittest.TestCase):
    def compare(self, make, options):
        """Returns gaps of losses: of strata to torch's fused, to the exact update, and of torch to that and itself."""
        fused, foreach = (
            by(torch.optim.AdamW, make, options, **kind) for kind in (dict(fused=True), dict(foreach=True))
        )
        exact = by(ExactAdamW, make, options)
        self.assertLess(fused[-1].item(), fused[0].item() - 0.1)  # something was learnt
        with placements(prepared(make, **options).parameters()) as cases:
            runs = {name: by_strata(make, options, where) for name, where in cases.items()}
        runs["offload over three tiers"] = by_offload(make, options)
        for name, (_, _, written) in runs.items():
            self.assertEqual(written > 0, name != "RAM")
        losses, params, _ = runs["RAM"]
        for name, (others, other_params, _) in runs.items():
            self.assertTrue(
                torch.equal(losses, others) and same(params, other_params), f"{options}: bits differ in {name}"
            )
        return {
            "to_fused": gap(losses, fused),
            "to_exact": gap(losses, exact),
            "of_fused_to_foreach": gap(fused, foreach),
            "of_torch_to_exact": max(gap(fused, exact), gap(foreach, exact)),
        }

    def compare_all(self, name):
        rows = []
        for chosen in itertools.product((1, 3), (False, True), (True, False), (False, True)):
            options = dict(zip(OPTIONS, chosen))
            row = self.compare(MODELS[name], options)
            rows.append(row)
            torchs = max(row["of_fused_to_foreach"], row["of_torch_to_exact"])
            self.assertLessEqual(row["to_fused"], max(LIMIT, 2 * torchs), options)
            self.assertLessEqual(row["to_exact"], max(LIMIT, torchs), options)
        print(
            "gaps of losses " + json.dumps({"model": name, **{key: max(row[key] for row in rows) for key in rows[0]}})
        )

    def test_gpt2_has_the_losses_of_torch_wherever_states_live(self):
        self.compare_all("gpt2")

    def test_llama_has_the_losses_of_torch_wherever_states_live(self):
        self.compare_all("llama")

    def test_bf16_parameters_reach_the_loss_of_f32_by_their_masters(self):
        for name, make in MODELS.items():
            final = {}
            for key, kind, dtype in (("f32", optim.AdamW, torch.float32), ("bf16", optim.AdamW, torch.bfloat16),
                                     ("torch's bf16", torch.optim.AdamW, torch.bfloat16)):  # fmt: skip
                net = make().to(dtype)
                where = dict(pinned="256MiB", threads=1) if kind is optim.AdamW else {}
                train(net, kind(net.parameters(), **SETTINGS, **where), steps=100)
                final[key] = evaluated(net)
            print("final losses " + json.dumps({"model": name, **final}))
            self.assertLessEqual(abs(final["bf16"] / final["f32"] - 1), 0.01, name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
