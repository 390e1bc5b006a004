"""2,000 random programs: an offloaded model has PyTorch's numbers, or refuses before one is wrong."""

import os
import tempfile
import unittest
import warnings

from torch_model import torch

if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
    print("strata.offload needs a later torch")
    raise SystemExit(77)

from fuzz import case

CASES = int(os.environ.get("STRATA_FUZZ_CASES", 2000))
# Reasons to refuse, by what they begin with; anything else is a fault of the refusal.
KNOWN = ("equal", "PyTorch refuses it, too", "DoesNotFitError: device is", "UnsupportedError: backward(create_graph=True)",
         "UnsupportedError: parameter _ shares its storage", "UnsupportedError: aten.",
         "UnsupportedError: parameter _ was not in a group", "UnsupportedError: parameter _ was frozen",
         "UnsupportedError: the gradient of _ has left", "UnsupportedError: the gradient of _ was",
         "InvalidError: parameter _ is not trained")  # fmt: skip


class OffloadFuzzTest(unittest.TestCase):
    def test_random_programs_are_equal_or_refused(self):
        faults = []
        with tempfile.TemporaryDirectory() as folder:
            counts = case.run_many(0, CASES, folder, faults.append)
        for reason, times in counts.most_common():
            print(f"{times:6} {reason}")
        self.assertEqual([str(fault) for fault in faults], [])
        self.assertEqual([reason for reason in counts if not reason.startswith(KNOWN)], [])
        self.assertGreater(counts["equal"], CASES // 2)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # for tensors of no other class than torch.Tensor: other bits
    unittest.main()
