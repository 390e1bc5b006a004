"""A GPU that is a part of CPU memory, for tests of what must be waited for.

Copies to the host end as late as possible, in wait(), and what they will write is NaN until then. Copies from the host
end there, too: it is an error if the host has changed what they read meanwhile."""

import unittest.mock

from torch_model import torch

from strata import _device


def address_range(tensor):
    begin = tensor.data_ptr()
    return begin, begin + max(1, tensor.numel() * tensor.element_size())


class Queued:
    """A copy that has not ended: the memory of the host that it uses, whether it writes there, and what ends it."""

    def __init__(self, host, writes, end):
        self.host, self.writes, self.end = address_range(host), writes, end

    def overlaps(self, tensor):
        begin, end = address_range(tensor)
        return begin < self.host[1] and self.host[0] < end


class FakeGpu:
    """Within it every tensor is on the GPU that strata did not allocate as memory of the host."""

    def __init__(self):
        self._host, self._queue = [], []
        self.copied_bytes = 0

    def is_host(self, tensor):
        if type(tensor).__name__ == "FakeTensor":  # it belongs to a step without data
            return False
        begin = tensor.data_ptr()
        return any(first <= begin < last for first, last in map(address_range, self._host))

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
        host, writes = (into, True) if self.is_host(into) else (tensor, False)
        with torch.no_grad():
            # Earlier copies come first if several use the same memory of the host.
            self._end([queued for queued in self._queue if queued.overlaps(host)])
            values = tensor.detach().clone()
            if writes:
                into.fill_(255 if into.dtype == torch.uint8 else float("nan"))
                self._queue.append(Queued(host, True, lambda: into.copy_(values)))
            else:
                into.copy_(tensor)
                self._queue.append(Queued(host, False, lambda: self._expect_unchanged(tensor, values)))

    @staticmethod
    def _expect_unchanged(tensor, before):
        if not torch.equal(tensor.view(torch.uint8), before.view(torch.uint8)):
            raise AssertionError("the host has written to memory from which a copy had not ended")

    def _end(self, ending):
        self._queue = [queued for queued in self._queue if queued not in ending]
        with torch.no_grad():
            for queued in ending:
                queued.end()

    def event(self, device):
        """Ends what is queued now, and nothing later."""
        before = list(self._queue)
        made = unittest.mock.Mock()
        made.wait = lambda: self._end([queued for queued in before if queued in self._queue])
        return made

    def wait(self, device):
        self._end(list(self._queue))

    def __enter__(self):
        names = ("is_host", "host_like", "host_bytes", "copy", "wait")
        functions = {name: getattr(self, name) for name in names}
        self._patch = unittest.mock.patch.multiple(_device, Event=self.event, **functions)
        self._patch.start()
        return self

    def __exit__(self, *failure):
        self._patch.stop()
        if failure[0] is None:
            self.wait(None)
