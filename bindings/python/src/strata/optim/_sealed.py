"""A session with its parameters, and the updates of a step."""

import ctypes

import torch

from .. import _abi
from ..errors import InvalidError
from ._tensors import DTYPE_INDEX, check_param, dense_gradient, mark_written, memory_order


class Sealed:
    """A session with the parameters of the groups that existed when it was made."""

    def __init__(self, session, params, names):
        self.session, self.params, self.names = session, params, names
        self.likes, self.offload = params, None  # tensors with the shapes and strides of the states
        self._kinds = [(param.dtype, param.numel(), memory_order(param)) for param in params]
        self._updates = (_abi.Update * len(params))()
        self._update_of = list(self._updates)  # by parameter; views of the array
        for index, update in enumerate(self._update_of):
            update.struct_size = ctypes.sizeof(_abi.Update)
            update.param = index
        self._checked = [None] * len(params)  # what was last found to be right: see add()
        self._added, self._copies = [], []

    def check(self, index):
        """Raises if the memory of a parameter is not what the session was planned for: it would be overwritten."""
        param, name = self.params[index], self.names[index]
        check_param(param, name)
        kind = (param.dtype, param.numel(), memory_order(param))
        if kind != self._kinds[index]:
            raise InvalidError("parameter '{}' was {} with {} elements and strides {} when its states were made, and "
                               "is {} with {} and {}: make a new optimizer after changing a model".format(
                                   name, *self._kinds[index], *kind))  # fmt: skip

    def bind(self):
        for index in range(len(self.params)):
            self.check(index)
        self.session.bind([param.data_ptr() for param in self.params])

    def after_load(self):
        """The session has written the parameters."""
        mark_written(self.params)

    def begin_step(self):
        self._added, self._copies = [], []

    def add(self, index, param, gradient, settings):
        """Adds a parameter to those that the step updates. All is checked again if anything that the checks depend
        on has changed since they last passed; only the address of a gradient may."""
        self._added.append(index)
        found = None
        if gradient.layout is torch.strided:
            found = (param.data_ptr(), param.dtype, param.shape, param.stride(), param.is_cpu, gradient.dtype,
                     gradient.shape, gradient.stride(), gradient.is_cpu, settings)  # fmt: skip
            if found == self._checked[index]:
                self._update_of[index].gradient = gradient.data_ptr()
                return
        self._checked[index] = None
        self.check(index)
        dense = dense_gradient(param, self.names[index])
        update = self._update_of[index]
        update.values = param.data_ptr()
        update.gradient = dense.data_ptr()
        update.gradient_dtype = DTYPE_INDEX[dense.dtype]
        update.settings = settings
        if dense is gradient:
            self._checked[index] = found
        else:
            self._copies.append(dense)  # lives until it has been read

    def step(self):
        """Updates the parameters that were added."""
        n = len(self._added)
        if n == len(self.params):
            self.session.step(self._updates, n)
        elif n > 0:
            self.session.step((_abi.Update * n)(*[self._update_of[index] for index in self._added]), n)
        self._copies = []


class SealedOffload(Sealed):
    """A model of strata.offload(), whose session holds the parameters, and gradients that have left."""

    def __init__(self, offload):
        super().__init__(offload.session(), offload.params, offload.names)
        self.offload, self.likes = offload, [parking.home for parking in offload.parking]
        self._scaled = {}

    def check(self, index):
        pass

    def bind(self):
        pass

    def after_load(self):
        self.offload.after_step()

    def begin_step(self):
        super().begin_step()
        self._scaled = {}  # settings by those of the group and a factor

    def add(self, index, param, gradient, settings):
        dense, factor = self.offload.gradient_for_step(index)
        self._added.append(index)
        self._copies.append(dense)
        update = self._update_of[index]
        update.gradient = None if dense is None else dense.data_ptr()
        update.gradient_dtype = 0 if dense is None else DTYPE_INDEX[dense.dtype]
        update.settings = settings if factor == 1.0 else self._settings_with(settings, factor)

    def _settings_with(self, settings, factor):
        key = (ctypes.addressof(settings[0]), factor)
        if key not in self._scaled:
            own = _abi.Settings.from_buffer_copy(settings[0])
            own.grad_factor = factor
            self._scaled[key] = ctypes.pointer(own)
        return self._scaled[key]

    def step(self):
        super().step()
        if self._added:
            self.offload.after_step()
