"""The copy on the host that a session updates for a parameter on a GPU."""

from .. import _device


class HostCopy:
    """The values of a parameter on the host, and memory for its gradient. Copies are queued; the caller waits."""

    def __init__(self, param):
        self.values, self.gradient = _device.host_like(param), None
        self._version = None  # the parameter's version when it and `values` were last the same

    def take_values(self, param):
        """Queues a copy of the parameter, unless nobody has written to it since the last one."""
        if self._version != param._version:
            _device.copy(self.values, param.detach())
            self._version = param._version

    def take_gradient(self, gradient):
        """Queues a copy of a gradient that has the memory order of the parameter."""
        if self.gradient is None or self.gradient.dtype != gradient.dtype:
            self.gradient = _device.host_like(gradient)
        _device.copy(self.gradient, gradient.detach())

    def give_values(self, param):
        """Queues a copy back, which autograd notices as a write."""
        _device.copy(param.detach(), self.values)
        self._version = param._version
