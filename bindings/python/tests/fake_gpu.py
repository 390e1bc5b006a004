"""A GPU that is a part of CPU memory, for tests of what must be waited for.

Copies to the host end as late as possible, in wait(), and what they will write is NaN until then. Copies from the host
end there, too: it is an error if the host has changed what they read meanwhile."""

import unittest.mock

import torch

from strata import _device


class FakeGpu:
    """Within it every tensor is on the GPU that strata did not allocate as memory of the host."""

    def __init__(self):
        self._host, self._queue = [], []
        self.copied_bytes = 0

    def is_host(self, tensor):
        begin = tensor.data_ptr()
        return any(of.data_ptr() <= begin < of.data_ptr() + max(1, of.numel() * of.element_size()) for of in self._host)

    def host_like(self, tensor, dtype=None):
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype)
        self._host.append(made)
        return made

    def host_bytes(self, n, device):
        made = torch.empty(n, dtype=torch.uint8)
        self._host.append(made)
        return made

    def copy(self, into, tensor):
        self.copied_bytes += tensor.numel() * tensor.element_size()
        with torch.no_grad():
            if self.is_host(into):
                self._end_reads()  # they come first
                values = tensor.detach().clone()
                into.fill_(255 if into.dtype == torch.uint8 else float("nan"))
                self._queue.append((True, lambda: into.copy_(values)))
            else:
                self.wait(None)  # what was queued before comes first
                before = tensor.detach().clone()
                into.copy_(tensor)
                self._queue.append((False, lambda: self._expect_unchanged(tensor, before)))

    @staticmethod
    def _expect_unchanged(tensor, before):
        if not torch.equal(tensor.view(torch.uint8), before.view(torch.uint8)):
            raise AssertionError("the host has written to memory from which a copy had not ended")

    def _end_reads(self):
        for writes, end in self._queue:
            if not writes:
                end()
        self._queue = [queued for queued in self._queue if queued[0]]

    def wait(self, device):
        queue, self._queue = self._queue, []
        with torch.no_grad():
            for _, end in queue:
                end()

    def __enter__(self):
        names = ("is_host", "host_like", "host_bytes", "copy", "wait")
        self._patch = unittest.mock.patch.multiple(_device, **{name: getattr(self, name) for name in names})
        self._patch.start()
        return self

    def __exit__(self, *failure):
        self._patch.stop()
        if failure[0] is None:
            self.wait(None)
