"""Optimizers made from configurations of DeepSpeed, beside torch's."""

import math
import tempfile
import unittest

from torch_model import model, same, torch, train, values

import strata
from strata import optim

SMALL = dict(pinned="64MiB", threads=1)


def config(kind, params=None, **sections):
    return strata.from_ds_config({"optimizer": {"type": kind, "params": params or {}}, **sections})


class DsConfigOptimTest(unittest.TestCase):
    def test_the_class_is_the_one_that_computes_the_same(self):
        for kind, params, expected in (("Adam", {}, optim.AdamW), ("AdamW", {}, optim.AdamW), ("Lion", {}, optim.Lion),
                                       ("Adam", {"adam_w_mode": False}, optim.Adam), ("SGD", {}, optim.SGD),
                                       ("Adagrad", {}, optim.Adagrad)):  # fmt: skip
            self.assertIs(type(config(kind, params).optimizer(model().parameters(), **SMALL)), expected)

    def test_settings_are_those_of_the_file(self):
        params = {"lr": 2e-3, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.3}
        group = config("Adam", params).optimizer(model().parameters(), **SMALL).param_groups[0]
        self.assertEqual({name: group[name] for name in params}, {**params, "betas": (0.8, 0.9)})

    def test_defaults_are_those_of_deepspeed(self):
        group = config("AdamW").optimizer(model().parameters(), **SMALL).param_groups[0]
        self.assertEqual((group["lr"], group["betas"], group["weight_decay"]), (1e-3, (0.9, 0.999), 0.0))
        self.assertEqual(config("Lion").optimizer(model().parameters(), **SMALL).param_groups[0]["betas"], (0.9, 0.999))
        group = (
            config("SGD", {"momentum": 0.5, "nesterov": True}).optimizer(model().parameters(), **SMALL).param_groups[0]
        )
        self.assertEqual((group["momentum"], group["nesterov"]), (0.5, True))

    def test_auto_leaves_the_default_of_the_class_and_keywords_come_first(self):
        group = (
            config("AdamW", {"lr": "auto", "weight_decay": "auto"})
            .optimizer(model().parameters(), lr=0.5, **SMALL)
            .param_groups[0]
        )
        self.assertEqual((group["lr"], group["weight_decay"]), (0.5, 1e-2))

    def test_a_scheduler_that_is_taken_is_applied(self):
        scheduler = {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 4, "warmup_type": "linear", "warmup_max_lr": 0.1,
                                                         "total_num_steps": 10}}  # fmt: skip
        content = {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "scheduler": scheduler}
        for ignored, expected in ((), [0.025, 0.05, 0.075, 0.1, 0.1, 0.1 * 5 / 6, 0.1 * 4 / 6]), (["scheduler"], [0.1] * 7), (["scheduler.type"], [0.1] * 7):
            net = model()
            optimizer = strata.from_ds_config(content, ignore=ignored).optimizer(net.parameters(), **SMALL)
            found = []
            for _ in expected:
                train(net, optimizer, 1)
                found.append(optimizer.param_groups[0]["lr"])
            self.assertTrue(all(abs(a - b) < 1e-12 for a, b in zip(found, expected)), found)
        again = strata.from_ds_config(content).optimizer(net.parameters(), **SMALL)
        again.load_state_dict(optimizer.state_dict())
        train(net, again, 1)
        self.assertAlmostEqual(again.param_groups[0]["lr"], 0.1 * 3 / 6)

    def test_the_rates_are_those_of_strata_train(self):
        content = {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 3, "warmup_type": "linear", "total_num_steps": 8,
                                                        "cos_min_ratio": 0.1}}  # fmt: skip
        made = config("AdamW", {"lr": 1.0}, scheduler=content)
        cosine = [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * i / 5)) for i in range(6)]
        expected = [1 / 3, 2 / 3, 1.0, *cosine, 0.1]  # the least after the last step
        found = [made.learning_rate_factor(step) for step in range(1, 11)]
        self.assertLessEqual(max(abs(a - b) for a, b in zip(found, expected)), 1e-12)

    def test_a_schedule_without_its_end_is_refused(self):
        for total in ({"total_num_steps": "auto"}, {}):
            scheduler = {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 4, "warmup_type": "linear", **total}}
            with self.subTest(total), self.assertRaisesRegex(strata.errors.InvalidError, r"total_num_steps is .*ignore="):
                config("AdamW", scheduler=scheduler).optimizer(model().parameters(), **SMALL)
        constant = {"type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_type": "linear"}}
        self.assertEqual(config("AdamW", scheduler=constant).learning_rate_factor(100), 1.0)

    def test_losses_are_those_of_torch(self):
        nets = model(), model()
        made = config("Adam", {"lr": 1e-2, "weight_decay": 0.1}).optimizer(nets[0].parameters(), **SMALL)
        found = train(nets[0], made)
        expected = train(nets[1], torch.optim.AdamW(nets[1].parameters(), lr=1e-2, weight_decay=0.1))
        self.assertLessEqual((found - expected).abs().max().item(), 2e-6)

    def test_states_are_where_the_file_says(self):
        with tempfile.TemporaryDirectory() as folder:
            nets, stats = [], []
            for device in ({"device": "cpu"}, {"device": "nvme", "nvme_path": folder}, {"device": "none"}):
                nets.append(model())
                made = config("Adam", {"lr": 1e-2}, zero_optimization={"stage": 2, "offload_optimizer": device})
                optimizer = made.optimizer(nets[-1].parameters(), **SMALL)
                train(nets[-1], optimizer)
                stats.append(optimizer.stats())
                optimizer.close()
        self.assertEqual([found["nvme_written_bytes"] > 0 for found in stats], [False, True, False])
        self.assertTrue(same(values(nets[0]), values(nets[1])))

    def test_moments_of_two_bytes(self):
        made = config("Adam", {"fp32_optimizer_states": False}, bf16={"enabled": True})
        sizes = []
        for ds in (made, config("Adam", bf16={"enabled": True})):
            sizes.append(ds.optimizer(model(torch.bfloat16).parameters(), **SMALL).plan()["pinned_bytes"])
        self.assertLess(sizes[0], sizes[1])


if __name__ == "__main__":
    unittest.main()
