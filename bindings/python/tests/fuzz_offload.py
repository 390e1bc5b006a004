"""Random models and programs: strata.offload() beside PyTorch alone.

    python fuzz_offload.py [CASES [FIRST_SEED]]     20000 cases from seed 0 on; prints faults, and refusals by reason
    python fuzz_offload.py --case SEED              one case, action by action

Exit code: 0 if each case was equal or refused before a number was wrong, 1 otherwise, 77 without a PyTorch for it."""

import sys
import tempfile
import warnings

from torch_model import torch

warnings.simplefilter("ignore")


def main(arguments):
    from fuzz import case

    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # for tensors of no other class than torch.Tensor: other bits
    with tempfile.TemporaryDirectory() as folder:
        if arguments[:1] == ["--case"]:
            print(case.run(int(arguments[1]), folder, log=print))
            return 0
        n, first = ([int(a) for a in arguments] + [20000, 0])[: 2] if len(arguments) != 1 else (int(arguments[0]), 0)
        counts = case.run_many(first, n, folder, lambda fault: print(fault, flush=True))
    for reason, times in counts.most_common():
        print(f"{times:6} {reason}")
    return int(counts["FAULT"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
