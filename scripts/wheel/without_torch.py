"""Three steps of an optimizer in an environment that has the wheel and nothing else, with states in RAM and on NVMe."""

import array
import ctypes
import sys
import tempfile

import strata
from strata import _abi

N = 100_000


def train(**options):
    values, gradient = array.array("f", [1.0] * N), array.array("f", [0.5] * N)
    session = strata.Session("adamw", **options)
    session.add("weight", "f32", [N])
    session.seal([values.buffer_info()[0]])
    settings = _abi.Settings(struct_size=ctypes.sizeof(_abi.Settings), lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8,
                             grad_factor=1.0)  # fmt: skip
    update = _abi.Update(struct_size=ctypes.sizeof(_abi.Update), param=0, values=values.buffer_info()[0],
                         gradient=gradient.buffer_info()[0], settings=ctypes.pointer(settings))  # fmt: skip
    for _ in range(3):
        session.step((_abi.Update * 1)(update), 1)
    session.close()
    return values


with tempfile.TemporaryDirectory() as folder:
    in_ram, on_nvme = train(), train(nvme=folder, placement="nvme")
if in_ram != on_nvme or abs(in_ram[0] - 0.7) > 1e-5 or in_ram[0] != in_ram[-1]:
    sys.exit(f"three steps of 0.1 from 1 lead to {in_ram[0]} in RAM and {on_nvme[0]} on NVMe")
if "torch" in sys.modules:
    sys.exit("strata imported torch")
print("strata", strata.__version__, "from", strata.__file__)
