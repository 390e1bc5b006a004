"""A session of strata.h as an object; needs no tensor library."""

import ctypes
import os
import weakref

from . import _abi
from ._abi import check
from ._dlpack import HostTensor
from ._sizes import to_bytes
from .errors import InvalidError


def index_of(value, names, what):
    if value not in names:
        raise InvalidError(f"{what} is {value!r}; it must be one of {', '.join(names)}")
    return names.index(value)


def paths_of(nvme):
    """Folders: none (None, 0 or False), one, or several."""
    if nvme is None or nvme is False or (isinstance(nvme, int) and nvme == 0):
        return []
    return [os.fspath(path) for path in ([nvme] if isinstance(nvme, (str, os.PathLike)) else nvme)]


def budget_of(size, name):
    """A budget as strata.h has it, where 0 means that none was given: of 0 bytes, nothing fits into 1."""
    return 0 if size is None else max(1, to_bytes(size, name))


class Session:
    """The states of an optimizer in RAM and on NVMe. Parameters and gradients stay in the caller's memory.

    optimizer: "adamw", "adam", "lion", "lamb", "adagrad" or "sgd".
    momentum: whether SGD has momentum.
    states: how moments are stored: "f32", "bf16" or "int8".
    placement: "auto" (RAM as far as the budget has room, then NVMe), "pinned" (RAM) or "nvme".
    pinned: budget of RAM, in bytes or as "8GiB". None: 40 % of what is free if there is NVMe, else all of it.
    nvme: folder or folders on NVMe; nvme_bytes: its budget. None: as many bytes as needed.
    chunk_elems: elements that are moved and updated as a whole. None: chosen.
    threads: None: the cores of this process.
    holds: "states", or "params": the parameters, too, which are then copied out by read(), and the gradients of a
        step, which accumulate() takes over.

    Any thread may use it. Errors are exceptions of strata.errors.
    """

    is_dry = False

    def __init__(self, optimizer="adamw", *, momentum=False, states="f32", placement="auto", pinned=None, nvme=None,
                 nvme_bytes=None, chunk_elems=None, threads=None, rounding_seed=0, holds="states"):  # fmt: skip
        lib = _abi.load()
        dirs = [] if nvme_bytes is not None and to_bytes(nvme_bytes, "nvme_bytes") == 0 else paths_of(nvme)
        dirs = [path.encode() for path in dirs]
        options = _abi.SessionOptions()
        options.optimizer = index_of(optimizer, _abi.OPTIMIZERS, "optimizer")
        options.has_momentum = int(bool(momentum))
        options.states = index_of(states, _abi.STATE_FORMATS, "states")
        options.placement = index_of(placement, _abi.PLACEMENTS, "placement")
        options.pinned_bytes = budget_of(pinned, "pinned")
        options.nvme_bytes = 0 if nvme_bytes is None else to_bytes(nvme_bytes, "nvme_bytes")
        if dirs:
            options.nvme_dirs = (ctypes.c_char_p * len(dirs))(*dirs)
            options.n_nvme_dirs = len(dirs)
        options.chunk_elems = chunk_elems or 0
        options.threads = threads or 0
        options.rounding_seed = rounding_seed
        options.holds = index_of(holds, _abi.HOLDS, "holds")
        handle = ctypes.c_uint64()
        check(lib.strata_session_create(ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle.value
        self.names, self._kinds = [], []
        # Also when the interpreter ends. A forked child is refused, and its parent goes on.
        self._close = weakref.finalize(self, lib.strata_session_close, self._handle)

    def add_tensor(self, name, tensor, frozen=False):
        """Registers a DLPack tensor as the next parameter."""
        found = HostTensor(tensor, f"parameter '{name}'")
        if found.shape is None:
            raise InvalidError(f"parameter '{name}' is an address; add() takes its dtype and shape")
        self.add(name, _abi.DTYPES[found.dtype], found.shape, frozen)

    def add(self, name, dtype, shape, frozen=False):
        """Registers the next parameter, of dtype "f32", "bf16" or "f16". `frozen`: it is held and not trained."""
        param = _abi.Param(name=name.encode(), dtype=index_of(dtype, _abi.DTYPES, f"the dtype of parameter '{name}'"))
        param.is_frozen = int(frozen)
        param.n_dims = len(shape)
        param.dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        check(_abi.load().strata_session_add(self._handle, ctypes.byref(param)))
        self.names.append(name)
        self._kinds.append((param.dtype, tuple(shape)))

    def rename(self, names):
        """Gives the parameters other names, in the order in which they were added."""
        encoded = [name.encode() for name in names]
        array = (ctypes.c_char_p * max(1, len(encoded)))(*encoded)
        check(_abi.load().strata_session_rename(self._handle, array, len(encoded)))
        self.names = list(names)

    def plan(self):
        """{"pinned_bytes", "nvme_bytes", "n_params", "n_chunks", "chunk_elems"}: what sealing would need."""
        plan = _abi.Plan()
        check(_abi.load().strata_session_plan(self._handle, ctypes.byref(plan)))
        return {name: getattr(plan, name) for name, _ in plan._fields_[1:]}

    def seal(self, addresses):
        """Allocates what is planned. `addresses` of the parameters, or DLPack tensors in memory of the host, in the
        order in which they were added."""
        tensors = [self._host_tensor(i, given, "", True) for i, given in enumerate(addresses)]
        pointers = _pointers([tensor.address for tensor in tensors])
        check(_abi.load().strata_session_seal(self._handle, pointers, len(tensors)))

    def bind(self, addresses):
        """Tells where the parameters are, for visit(), fill(), save() and load()."""
        check(_abi.load().strata_session_bind(self._handle, _pointers(addresses), len(addresses)))

    def read(self, params, addresses):
        """Copies parameters as they are after the last step to `addresses`."""
        check(_abi.load().strata_session_read(self._handle, _numbers(params), _pointers(addresses), len(params)))

    def write(self, params, addresses):
        """Makes parameters what is at `addresses`: what differs from what read() gives becomes the master."""
        check(_abi.load().strata_session_write(self._handle, _numbers(params), _pointers(addresses), len(params)))

    def prefetch(self, params):
        """Begins to fetch what read() of these parameters will need, as far as there is room."""
        check(_abi.load().strata_session_prefetch(self._handle, _numbers(params), len(params)))

    def accumulate(self, param, address, dtype):
        """Adds a gradient to the step's, and returns the sum of squares of the parameter's so far."""
        squares = ctypes.c_double()
        check(_abi.load().strata_session_accumulate(self._handle, param, address, dtype, ctypes.byref(squares)))
        return squares.value

    def gradient(self, param):
        """The address of a parameter's f32 gradient so far, valid until the next call."""
        address = ctypes.c_void_p()
        check(_abi.load().strata_session_gradient(self._handle, param, ctypes.byref(address)))
        return address.value

    def discard(self, params=None):
        """Forgets the step's gradients of some parameters, or of all."""
        some = None if params is None else _numbers(params)
        check(_abi.load().strata_session_discard(self._handle, some, 0 if params is None else len(params)))

    def update(self, values, gradients, *, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, momentum=0.0,
               nesterov=False, grad_factor=1.0):  # fmt: skip
        """A step of all parameters with the same settings. `values` and `gradients`, in the order in which the
        parameters were added: addresses, or DLPack tensors in memory of the host. A parameter whose gradient is None
        does not change. Gradients that are addresses have the dtypes of their parameters."""
        if len(values) != len(self.names) or len(gradients) != len(self.names):
            raise InvalidError(f"there are {len(values)} values and {len(gradients)} gradients for {len(self.names)} "
                               "parameters")  # fmt: skip
        settings = ctypes.pointer(
            _abi.Settings(lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, momentum=momentum,
                          nesterov=int(bool(nesterov)), grad_factor=grad_factor))  # fmt: skip
        updates, kept = [], []
        for i, (value, gradient) in enumerate(zip(values, gradients)):
            if gradient is None:
                continue
            written = self._host_tensor(i, value, "", True)
            read = self._host_tensor(i, gradient, "the gradient of ", False)
            kept += [written, read]
            dtype = self._kinds[i][0] if read.dtype is None else read.dtype
            updates.append(_abi.Update(param=i, values=written.address, gradient=read.address, gradient_dtype=dtype,
                                       settings=settings))  # fmt: skip
        self.step((_abi.Update * max(1, len(updates)))(*updates), len(updates))

    def _host_tensor(self, index, given, of, writes):
        name = self.names[index] if index < len(self.names) else index
        tensor = HostTensor(given, f"{of}parameter '{name}'", writes)
        if tensor.shape is None or index >= len(self.names):
            return tensor
        dtype, shape = self._kinds[index]
        if tensor.shape != shape or (writes and tensor.dtype != dtype):
            raise InvalidError(f"{of}parameter '{name}' is {_abi.DTYPES[tensor.dtype]} {tensor.shape}; it was added as "
                               f"{_abi.DTYPES[dtype]} {shape}")  # fmt: skip
        return tensor

    def step(self, updates, n):
        """`updates`: an array of _abi.Update, of which the first `n` are used."""
        check(_abi.load().strata_session_step(self._handle, updates, n))

    def visit(self, state, function):
        """Calls function(param, offset, n, address) with the f32 values of a state, piece by piece."""
        self._pieces(_abi.load().strata_session_visit, state, function)

    def fill(self, state, function):
        """The same, for a function that writes the values."""
        self._pieces(_abi.load().strata_session_fill, state, function)

    def _pieces(self, call, state, function):
        failures = []

        def on_piece(_, piece, values):
            try:
                function(piece[0].param, piece[0].offset, piece[0].n, values)
            except BaseException as failure:  # raised again below: no exception may pass through C
                failures.append(failure)
                return 1
            return 0

        status = call(self._handle, index_of(state, _abi.STATES, "state"), _abi.PieceFunction(on_piece), None)
        if failures:
            raise failures[0]
        check(status)

    def steps(self):
        """(steps done, [steps in which each parameter was updated])"""
        steps = ctypes.c_int64()
        counts = (ctypes.c_int64 * max(1, len(self.names)))()
        check(_abi.load().strata_session_steps(self._handle, ctypes.byref(steps), counts, len(self.names)))
        return steps.value, list(counts)[: len(self.names)]

    def set_steps(self, steps, counts):
        array = (ctypes.c_int64 * max(1, len(counts)))(*counts)
        check(_abi.load().strata_session_set_steps(self._handle, steps, array, len(counts)))

    def save(self, folder, keep=0):
        """Writes `folder`/step-NNNNNNNN, which the strata command can read, too."""
        check(_abi.load().strata_session_save(self._handle, os.fsencode(folder), keep))

    def load(self, folder):
        """Reads such a folder: states, parameters and step counts."""
        check(_abi.load().strata_session_load(self._handle, os.fsencode(folder)))

    def stats(self):
        """{"pinned_bytes", ...}: the fields of strata_stats."""
        stats = _abi.Stats()
        check(_abi.load().strata_session_stats(self._handle, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, _ in stats._fields_[1:]}

    def close(self):
        """Gives back memory and files. Calling it again does nothing."""
        self._close()


def _numbers(params):
    return (ctypes.c_int64 * max(1, len(params)))(*params)


def _pointers(addresses):
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
