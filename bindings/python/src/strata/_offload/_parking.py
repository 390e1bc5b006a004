"""Parameters that are there only while they are used.

A parked parameter's storage has no memory, and `param.data` is NaN without strides, so that a use that nobody announced
gives NaN and never stale values. Parameters come back into the same storage: what autograd saved of them refers to it."""

import torch

from ..errors import InvalidError, UnsupportedError


class Parking:
    """The memory of one parameter, on `device`; where it was before is `source`, until it is parked."""

    def __init__(self, param, name, name_of_storage, device=None):
        self.param, self.name, self.home = param, name, param.data
        self.source = self.home
        storage = self.home.untyped_storage()
        self.bytes, self.is_here = storage.nbytes(), True
        other = name_of_storage.setdefault(storage.data_ptr(), name)
        if other != name or self.bytes != param.numel() * param.element_size():
            shared = "a tensor" if other == name else f"'{other}'"
            raise UnsupportedError(f"parameter '{name}' shares its storage with {shared}; each parameter needs a storage "
                                   "of its own, which can be freed")  # fmt: skip
        if device is not None and device != self.home.device:
            self.home = torch.empty_strided(param.shape, param.stride(), dtype=param.dtype, device=device)
            self.home.untyped_storage().resize_(0)  # never all parameters at once: they need not fit there
        self._nan = torch.full((), float("nan"), dtype=param.dtype, device=self.home.device).expand(param.shape)

    def park(self):
        self.source, self.param.data = None, self._nan
        self.home.untyped_storage().resize_(0)
        self.is_here = False

    def address_of(self, tensor):
        return tensor.data_ptr()

    def check(self):
        """Raises if the parameter was made another one since it was offloaded."""
        if self.param.dtype != self.home.dtype or self.param.shape != self.home.shape:
            raise InvalidError(f"parameter '{self.name}' was {self.home.dtype} {tuple(self.home.shape)} when it was offloaded "
                               f"and is {self.param.dtype} {tuple(self.param.shape)}; change a model before it is offloaded")  # fmt: skip

    def allocate(self):
        """Memory for the values, which are still to be written to `home`."""
        self.home.untyped_storage().resize_(self.bytes)
        self.is_here = True

    def show(self):
        self.param.data = self.home
