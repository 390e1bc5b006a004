"""A session with its parameters, and the updates of a step."""

import ctypes

import torch

from .. import _abi, _device
from ..errors import InvalidError
from ._host_copy import HostCopy
from ._tensors import DTYPE_INDEX, check_param, dense_gradient, mark_written, memory_order


class Sealed:
    """A session with the parameters of the groups that existed when it was made. Those on a GPU have a copy on the
    host, which the session updates."""

    def __init__(self, session, params, names):
        self.session, self.params, self.names = session, params, names
        self.likes, self.offload = params, None  # tensors with the shapes and strides of the states
        self._kinds = [(param.dtype, param.numel(), memory_order(param), param.device) for param in params]
        self._host_copies = self._make_host_copies()
        self._devices = {param.device for param, copy in zip(params, self._host_copies) if copy is not None}
        self._updates = (_abi.Update * len(params))()
        self._update_of = list(self._updates)  # one for each parameter; views of the array
        for index, update in enumerate(self._update_of):
            update.struct_size = ctypes.sizeof(_abi.Update)
            update.param = index
        self._with_whole_masters = [i for i, param in enumerate(params) if param.dtype == torch.float16]
        self._versions = {}
        self._checked = [None] * len(params)  # the facts that were last found to be right: see add()
        self._added, self._copies = [], []

    def _make_host_copies(self):
        return [None if _device.is_host(param) else HostCopy(param) for param in self.params]

    def check(self, index):
        """Raises if the memory of a parameter is not what the session was planned for: it would be overwritten."""
        param, name = self.params[index], self.names[index]
        check_param(param, name)
        kind = (param.dtype, param.numel(), memory_order(param), param.device)
        if kind != self._kinds[index]:
            raise InvalidError("parameter '{}' was {} with {} elements and strides {} on {} when its states were made, "
                               "and is {} with {} and {} on {}: make a new optimizer after changing a model".format(
                                   name, *self._kinds[index], *kind))  # fmt: skip

    def addresses(self):
        """Where the session finds the parameters, as they are now."""
        for index, (param, copy) in enumerate(zip(self.params, self._host_copies)):
            self.check(index)
            if copy is not None:
                copy.take_values(param)
        self._wait()
        return [(param if copy is None else copy.values).data_ptr()
                for param, copy in zip(self.params, self._host_copies)]  # fmt: skip

    def seal(self):
        self.session.seal(self.addresses())
        self._note_versions()

    def bind(self):
        addresses = self.addresses()
        self.session.bind(addresses)
        self._take_writes(addresses)

    def _note_versions(self):
        self._versions = {i: self.params[i]._version for i in self._with_whole_masters}

    def _written(self):
        return [i for i in self._with_whole_masters if self.params[i]._version != self._versions[i]]

    def _take_writes(self, addresses):
        """Tells the masters what was written to parameters in place. Those of f16 have all bits, and would undo it."""
        written = self._written()
        if written:
            self.session.write(written, [addresses[i] for i in written])
            self._note_versions()

    def before_load(self):
        """Raises if something would be lost when the session reads states."""

    def after_load(self):
        """The session has written the parameters."""
        self._give_values(range(len(self.params)))
        self._note_versions()

    def _wait(self):
        for device in self._devices:
            _device.wait(device)

    def _give_values(self, indices):
        """Copies the values that the session has written to the parameters."""
        mark_written([self.params[index] for index in indices if self._host_copies[index] is None])
        for index in indices:
            if self._host_copies[index] is not None:
                self._host_copies[index].give_values(self.params[index])

    def begin_step(self):
        self._added, self._copies = [], []
        if self._written():
            self.bind()

    def add(self, index, param, gradient, settings):
        """Adds a parameter to those that the step updates. All is checked again if anything that the checks depend
        on has changed since they last passed; only the address of a gradient may."""
        self._added.append(index)
        found = None
        if gradient.layout is torch.strided and not gradient.is_neg():
            found = (param.data_ptr(), param.dtype, param.shape, param.stride(), param.is_cpu, gradient.dtype,
                     gradient.shape, gradient.stride(), gradient.is_cpu, settings)  # fmt: skip
            if found == self._checked[index]:
                self._update_of[index].gradient = gradient.data_ptr()
                return
        self._checked[index] = None
        self.check(index)
        dense = dense_gradient(param, self.names[index])
        update = self._update_of[index]
        copy = self._host_copies[index]
        if copy is not None:
            copy.take_values(param)
            copy.take_gradient(dense)
            param, dense = copy.values, copy.gradient
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
        self._wait()
        self._update()
        self._give_values(self._added)
        self._note_versions()

    def _update(self):
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
        self._with_whole_masters = []  # the offload sees all writes
        self._scaled = {}

    def _make_host_copies(self):
        return [None] * len(self.params)  # the session has the parameters

    def check(self, index):
        pass

    def bind(self):
        self.offload.sync()

    def before_load(self):
        self.offload.check_no_gradients()

    def after_load(self):
        mark_written(self.params)
        self.offload.after_step()

    def begin_step(self):
        super().begin_step()
        self.offload.sync()
        self._scaled = {}  # settings by those of the group and a factor

    def add(self, index, param, gradient, settings):
        dense, factor = self.offload.gradient_for_step(index)
        dense = None if dense is None else _device.on_host(dense)
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
            own.grad_factor *= factor
            self._scaled[key] = ctypes.pointer(own)
        return self._scaled[key]

    def step(self):
        self._update()
        mark_written([self.params[index] for index in self._added])
        if self._added:
            self.offload.after_step()
