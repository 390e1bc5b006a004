"""The memory of a parameter, which is there only while it is used.

A parked parameter's storage has no memory, and `param.data` is NaN without strides, so that code that strata does not
see gets NaN and never stale values. Memory that somebody else refers to is not freed: a view, an array, a graph."""

import torch

from ..errors import UnsupportedError


def storage_users(storage):
    return torch._C._storage_Use_Count(storage._cdata)


def tensor_users(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor._use_count()


def _expected_users():
    """How many references a storage has to which only a Parking and its parameter refer."""
    param = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    home = param.data
    storage = home.untyped_storage()
    return storage_users(storage)


EXPECTED_USERS = _expected_users()


class Parking:
    """The memory of one parameter, on `device`; where it was before is `source`, until it is parked."""

    def __init__(self, param, name, name_of_storage, device=None):
        self.param, self.name, self.home = param, name, param.data
        self.source = self.home
        storage = self.home.untyped_storage()
        self.bytes, self.is_here = storage.nbytes(), True
        other = name_of_storage.setdefault(storage.data_ptr(), name) if self.bytes else name
        if other != name or self.bytes != param.numel() * param.element_size():
            shared = "a tensor" if other == name else f"'{other}'"
            raise UnsupportedError(f"parameter '{name}' shares its storage with {shared}; each parameter needs a storage "
                                   "of its own, which can be freed")  # fmt: skip
        if storage.is_shared() and storage.device.type == "cpu":
            raise UnsupportedError(f"parameter '{name}' is in memory that processes share; clone it before strata.offload()")
        if device is not None and device != self.home.device:
            self.home = torch.empty_strided(param.shape, param.stride(), dtype=param.dtype, device=device)
            self.home.untyped_storage().resize_(0)  # never all parameters at once: they need not fit there
        self.storage = self.home.untyped_storage()
        self._nan = torch.full((), float("nan"), dtype=param.dtype, device=self.home.device).expand(param.shape)
        self.version = None  # the parameter's version when its memory and the session were last the same
        self.is_exposed = False  # whether somebody had its memory who can write to it without changing the version
        self._node, self._users = None, 1

    def count_users(self):
        """Makes the node that gradients come to, which refers to the parameter as long as a graph does."""
        with (
            torch._C.DisableTorchFunctionSubclass(),
            torch._C._DisableFuncTorch(),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            if self._node is None and self.param.requires_grad:
                self._node = torch.autograd.graph.get_gradient_edge(self.param).node
            self._users = 1 + (self._node is not None)

    def has_alias(self):
        """Whether a tensor or an array that is not the parameter has its memory."""
        return self.is_here and storage_users(self.storage) > EXPECTED_USERS

    def is_held(self):
        """Whether the memory must stay: somebody has it, or a graph that strata does not see saved the parameter."""
        return self.has_alias() or tensor_users(self.param) > self._users

    def raw_version(self):
        with torch._C.DisableTorchFunctionSubclass():
            return self.param._version

    def is_written(self):
        """Whether somebody may have changed the memory since it and the session were the same."""
        return self.is_here and (self.is_exposed or self.raw_version() != self.version)

    def agrees(self):
        """The memory and the session have the same values now."""
        self.version = self.raw_version()
        self.is_exposed = self.is_exposed and self.has_alias()

    def park(self):
        self.source = None
        with torch._C.DisableTorchFunctionSubclass():
            self.param.data = self._nan
        if not self.storage.resizable():  # the storage belongs to an array, or to a file
            self.home = torch.empty_strided(self.home.shape, self.home.stride(), dtype=self.home.dtype, device=self.home.device)
            self.storage = self.home.untyped_storage()
        self.storage.resize_(0)
        self.is_here = False

    def address_of(self, tensor):
        return tensor.data_ptr()

    def allocate(self):
        """Memory for the values, which are still to be written to `home`."""
        self.storage.resize_(self.bytes)
        self.is_here = True

    def show(self):
        with torch._C.DisableTorchFunctionSubclass():
            self.param.data = self.home
