"""States as tensors over an unnamed file, so that a state_dict needs no memory but the file cache."""

import ctypes
import mmap
import os
import tempfile

import torch

from ._tensors import memory_order


class StateFile:
    """f32 values of one state of all parameters of a session."""

    def __init__(self, session, state, sizes, folder):
        self._offsets = [0]
        for size in sizes:
            self._offsets.append(self._offsets[-1] + 4 * size)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.ftruncate(file.fileno(), max(4, self._offsets[-1]))

            def write(param, offset, n, address):
                values = (ctypes.c_char * (4 * n)).from_address(address)
                at, rest = self._offsets[param] + 4 * offset, memoryview(values)
                while rest:
                    written = os.pwrite(file.fileno(), rest, at)
                    at, rest = at + written, rest[written:]

            session.visit(state, write)
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, param, like):
        """The state of parameter number `param`, with the shape and strides of `like`."""
        begin, n = self._offsets[param], like.numel()
        if n == 0:
            return torch.empty(like.shape)
        flat = torch.frombuffer(self._memory, dtype=torch.float32, count=n, offset=begin)
        return flat.as_strided(like.shape, like.stride())


def copy_out(tensor, like):
    """A function for Session.fill() that copies from a tensor, of any dtype, in the memory order of `like`."""
    ordered = tensor.detach().cpu()
    if memory_order(ordered) != memory_order(like):
        ordered = torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype).copy_(ordered)
    flat = ordered.as_strided((like.numel(),), (1,))

    def copy(offset, n, address):
        values = torch.frombuffer((ctypes.c_float * n).from_address(address), dtype=torch.float32)
        values.copy_(flat[offset : offset + n])

    return copy


def read_into_file(session, likes):
    """Parameters as tensors over an unnamed file, in their own dtypes, by number: `likes` has shapes and strides."""
    with tempfile.TemporaryFile() as file:
        sizes = {param: like.numel() * like.element_size() for param, like in likes.items()}
        os.ftruncate(file.fileno(), max(1, sum(-(-size // 64) * 64 for size in sizes.values())))
        memory = mmap.mmap(file.fileno(), 0)
    made, at = {}, 0
    for param, like in likes.items():
        flat = torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=at)
        session.read([param], [flat.data_ptr()])
        made[param] = flat.as_strided(like.shape, like.stride())
        at += -(-sizes[param] // 64) * 64
    return made
