"""Configurations of DeepSpeed, without any tensor library."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import strata
from strata import errors

DATA = pathlib.Path(__file__).parents[3] / "tests/ds_config/data"


class DsConfigTest(unittest.TestCase):
    def test_torch_is_not_imported(self):
        code = "import sys, strata; strata.from_ds_config({'fp16': {}}); assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_attributes_of_a_file(self):
        config = strata.from_ds_config(DATA / "zero_infinity_nvme.json", ranks=8)
        self.assertEqual((config.dtype, config.loss_scale), ("f16", 4096))
        self.assertEqual((config.micro_batch_size, config.gradient_accumulation_steps), (4, 2))
        self.assertEqual(config.gradient_clipping, 0.5)
        self.assertEqual(config.settings["train.grad_accum"], 16)  # the micro-batches of all ranks
        self.assertEqual(config.settings["memory.nvme_dir"], ["/mnt/disk0/swap", "/mnt/disk1/swap"])

    def test_auto_leaves_attributes_open(self):
        config = strata.from_ds_config(str(DATA / "hf_zero3_cpu.json"))
        self.assertIsNone(config.dtype)
        self.assertIsNone(config.loss_scale)
        self.assertIsNone(config.micro_batch_size)
        self.assertIsNone(config.gradient_accumulation_steps)
        self.assertIsNone(config.gradient_clipping)

    def test_clipping_is_deepspeeds_default_or_none(self):
        for given, expected in (({}, 1.0), ({"gradient_clipping": 0}, float("inf")), ({"gradient_clipping": 0.25}, 0.25),
                                ({"gradient_clipping": "auto"}, None)):  # fmt: skip
            self.assertEqual(strata.from_ds_config(given).gradient_clipping, expected)

    def test_batch_keys_know_the_ranks(self):
        batch, micro, steps = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
        for given, ranks, expected in (({batch: 32}, 4, (8, 1)), ({batch: 32, micro: 2}, 4, (2, 4)), ({batch: 32, steps: 2}, 4, (4, 2)),
                                       ({micro: 2}, 4, (2, 1)), ({micro: 2, steps: 3}, 4, (2, 3)), ({}, 4, (None, None)),
                                       ({batch: 24, micro: 2, steps: 3}, 4, (2, 3))):  # fmt: skip
            config = strata.from_ds_config(given, ranks=ranks)
            self.assertEqual((config.micro_batch_size, config.gradient_accumulation_steps), expected, given)
        for given in ({batch: 30}, {batch: 36, micro: 6}, {batch: 36, micro: 2, steps: 3}):
            with self.assertRaisesRegex(errors.InvalidError, r"train_batch_size is 3\d; .*the ranks \(4\)"):
                strata.from_ds_config(given, ranks=4)
        with unittest.mock.patch.dict("os.environ", WORLD_SIZE="2"):
            self.assertEqual(strata.from_ds_config({batch: 32, micro: 2}).gradient_accumulation_steps, 8)

    def test_a_dict_is_as_good_as_a_file(self):
        for name, ranks in (("zero_infinity_nvme", 8), ("bf16_zero2", 1)):
            text = (DATA / f"{name}.json").read_text()
            content = json.loads("\n".join(line for line in text.splitlines() if not line.strip().startswith("//")))
            self.assertEqual(strata.from_ds_config(content, ranks=ranks).rows,
                             strata.from_ds_config(DATA / f"{name}.json", ranks=ranks).rows)  # fmt: skip

    def test_rows_have_values_and_reasons(self):
        rows = {row.key: row for row in strata.from_ds_config({"gradient_clipping": "auto", "steps_per_print": 5}).rows}
        self.assertEqual(rows["steps_per_print"][:6], ("steps_per_print", 5, "taken", False, "log.every", 5))
        self.assertEqual(rows["gradient_clipping"].verdict, "auto")
        self.assertIsNone(rows["gradient_clipping"].strata_value)
        self.assertEqual((rows["bf16.enabled"].is_default, rows["bf16.enabled"].strata_value), (True, "f32"))
        self.assertTrue(all(row.reason for row in rows.values()))

    def test_all_refused_keys_are_named_at_once(self):
        with self.assertRaises(errors.UnsupportedError) as caught:
            strata.from_ds_config(DATA / "refused.json")
        text = str(caught.exception)
        self.assertEqual(len(text.splitlines()), 9)
        for part in ("train_batch_sise = 8: no key of DeepSpeed; did you mean 'train_batch_size'?",
                     "zero_optimization.zero_quantized_weights = true: ",
                     'scheduler.params.warmup_type (not given) = "log": '):  # fmt: skip
            self.assertIn(part, text)

    def test_the_caller_may_take_care_of_a_section(self):
        config = {"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0}}, "amp": {"enabled": True}}
        with self.assertRaisesRegex(errors.UnsupportedError, "^amp.enabled = [^\n]*$"):
            strata.from_ds_config(config, ignore=["scheduler"])
        self.assertEqual(len(strata.from_ds_config(config, ignore=["scheduler", "amp"]).rows), 4)
        strata.from_ds_config({"amp": {"enabled": True}}, ignore="amp")

    def test_what_is_no_configuration(self):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            for text in (b"{", b"[]", b'{"fp16": {}\0}'):
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
                with self.assertRaises(errors.InvalidError):
                    strata.from_ds_config(file.name)
        with self.assertRaises(errors.InvalidError):
            strata.from_ds_config({"fp16": object()})
        with self.assertRaises(FileNotFoundError):
            strata.from_ds_config("/nowhere/ds_config.json")
        with self.assertRaisesRegex(errors.InvalidError, "names no optimizer"):
            strata.from_ds_config({}).optimizer([])


if __name__ == "__main__":
    unittest.main()
