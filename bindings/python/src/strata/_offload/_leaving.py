"""Gradients on their way to the session."""

import collections
import weakref

from .. import _device
from ..optim._tensors import DTYPE_INDEX


class LeavingGradients:
    """Gradients in CPU memory are there at once. Those on a GPU are copied to the host first, of which two may be under
    way while backward goes on."""

    MOST = 2  # as many buffers as Staging has

    def __init__(self, owner):
        self._owner, self._staging = weakref.ref(owner), {}  # the staging memory of each device
        self._queue = collections.deque()  # (session, index, on the host, its event, on the device), oldest first
        self._square_sums = {}  # keyed by index

    def add(self, session, index, gradient):
        """Adds a gradient, which has the memory order of its parameter, to the session's."""
        if session.is_dry or _device.is_host(gradient):
            address = self._owner().parking[index].address_of(gradient)
            self._square_sums[index] = session.accumulate(index, address, DTYPE_INDEX[gradient.dtype])
            return
        while len(self._queue) >= self.MOST:
            self._end_oldest()
        staging = self._staging.setdefault(gradient.device, _device.Staging(gradient.device))
        flat = staging.take(gradient.numel() * gradient.element_size())
        _device.copy(_device.as_tensor(flat, gradient), gradient.detach())
        self._queue.append((session, index, flat, staging.queued(), gradient))

    def _end_oldest(self):
        session, index, flat, copied, gradient = self._queue.popleft()
        copied.wait()
        self._square_sums[index] = session.accumulate(index, flat.data_ptr(), DTYPE_INDEX[gradient.dtype])

    def end(self):
        """Waits until the session has all of them."""
        while self._queue:
            self._end_oldest()

    def square_sum(self, index):
        """The sum of squares of a parameter's gradient so far."""
        self.end()
        return self._square_sums[index]
