"""2,000 random programs: an offloaded model has PyTorch's numbers, or refuses before one is wrong."""

import gc
import os
import tempfile
import unittest
import warnings

from torch_model import skip_without_offload, torch

skip_without_offload()

from fuzz import case
from strata._offload._model import Offload

CASES = int(os.environ.get("STRATA_FUZZ_CASES", 2000))
# Reasons to refuse, by what they begin with, and the largest share of cases that each may have; anything else is a fault of
# the refusal.
MOST = {
    "PyTorch refuses it, too": 0.25,
    "DoesNotFitError: device is": 0.15,
    "UnsupportedError: backward(create_graph=True)": 0.1,
    "UnsupportedError: aten.": 0.05,
    "UnsupportedError: parameter _ shares its storage": 0.02,
    "UnsupportedError: parameter _ was not in a group": 0.02,
    "UnsupportedError: parameter _ was frozen": 0.02,
    "UnsupportedError: the gradient of _ has left": 0.02,
    "UnsupportedError: the gradient of _ was": 0.02,
    "InvalidError: parameter _ is not trained": 0.02,
}


class OffloadFuzzTest(unittest.TestCase):
    def test_random_programs_are_equal_or_refused(self):
        faults = []
        with tempfile.TemporaryDirectory() as folder:
            counts = case.run_many(0, CASES, folder, faults.append)
        for reason, times in counts.most_common():
            print(f"{times:6} {reason}")
        self.assertEqual([str(fault) for fault in faults], [])
        self.assertEqual([reason for reason in counts if not reason.startswith(("equal", *MOST))], [])
        for begin, most in MOST.items():
            self.assertLessEqual(sum(n for reason, n in counts.items() if reason.startswith(begin)), 5 + most * CASES, begin)
        self.assertGreater(counts["equal"], CASES * 0.6)
        # Models are freed, but for what PyTorch keeps of the last backward that failed.
        gc.collect()
        self.assertLessEqual(sum(isinstance(found, Offload) for found in gc.get_objects()), 1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # for tensors of no other class than torch.Tensor: other bits
    unittest.main()
