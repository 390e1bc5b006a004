"""Runs the first example of a README, with data and a folder of its own."""

import pathlib
import re
import sys
import tempfile

import torch

example = re.search(r"```python\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(), re.S).group(1)
with tempfile.TemporaryDirectory() as folder:
    batches = [(torch.randn(4, 4096), torch.randn(4, 4096)) for _ in range(2)]
    names = {"batches": batches}
    exec(example.replace("/mnt/nvme/strata", folder), names)
    print(names["optimizer"].stats())
    names["optimizer"].close()
