"""A model whose parameters come when something uses them, and whose gradients leave when they are complete."""

import contextlib
import ctypes
import math
import threading
import weakref

import torch

from .. import _device
from .._registry import offloads, optimizers_of
from .._session import Session
from .._sizes import to_bytes
from ..errors import DoesNotFitError, InvalidError, UnsupportedError
from ..optim._state_file import read_into_file
from ..optim._tensors import DTYPES, check_param, dense_gradient, memory_order
from ._gradient import LeftGradient
from ._hooks import Hook
from ._leaving import LeavingGradients
from ._order import UseOrder
from ._param import OffloadedParameter
from ._parking import Parking
from ._presence import Presence
from ._resident import Resident
from ._saved import STORAGES

# Modules that read the parameters of their children without calling them: what they need is needed together.
READ_THEIR_CHILDREN = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)
SMALL_COPY = 1 << 20  # bytes; larger ones are over an unnamed file


class Offload(Presence):
    """The parameters of a model in a session. strata.offload() makes it; model.strata_offload is it."""

    leaves = True

    def __init__(self, model, device, to, prefetch, options):
        self.device_bytes = None if device is None else to_bytes(device, "device")
        self.prefetch, self._options = prefetch, options
        self.params, self.names, self._index = [], [], {}
        self._session = self._optimizer = None
        self._has_left, self._trained = [], set()
        self._leaving, self._me = LeavingGradients(self), weakref.ref(self)
        self._saving_state = threading.local()
        self._to = None if to is None else torch.empty(0, device=to).device  # the device with its index
        if self._to is not None:
            _device.check(self._to, "to is")
        for name, param in model.named_parameters():
            if param.numel() == 0:
                continue  # there is nothing to offload
            if type(param) is not torch.nn.Parameter:
                kind = type(param).__name__
                raise UnsupportedError(f"parameter '{name}' is a {kind}; strata.offload() takes torch.nn.Parameter")
            self._index[id(param)] = len(self.params)
            self.params.append(param)
            self.names.append(name)
            offloads[id(param)] = self
        self._init_presence(self._make_units(model), len(self.params))
        self._model = weakref.ref(model)

    # ---- units: modules with the parameters that they read ----

    def _make_units(self, model):
        units, inside = [], set()
        model.register_forward_pre_hook(Hook(self._before_forward), with_kwargs=True)  # the session is made before a graph is
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                raise UnsupportedError(f"module '{name}' is compiled by torch.jit, which reads parameters itself; "
                                       "offload the model that it was made of")  # fmt: skip
            module.register_state_dict_pre_hook(Hook(self._before_state_dict))
            module._register_state_dict_hook(Hook(self._after_state_dict))
            if module in inside:
                continue
            whole = isinstance(module, READ_THEIR_CHILDREN)
            if whole:
                inside.update(module.modules())
            params = {self._index[id(p)] for p in module.parameters(recurse=whole) if id(p) in self._index}
            if params:
                module.register_forward_pre_hook(Hook(self._before_forward, len(units)), with_kwargs=True)
                module.register_forward_hook(Hook(self._after_forward, len(units)), always_call=True)
                units.append(sorted(params))
        return units

    def _before_forward(self, unit):
        if torch.compiler.is_compiling():
            raise UnsupportedError("a model that is offloaded cannot be compiled by torch.compile")
        self.session()
        self._saving_state.is_on = False  # in case a state_dict() was interrupted
        self.begin_unit(unit)

    def _after_forward(self, unit):
        self.end_unit(unit)

    def index_of(self, param):
        index = self._index.get(id(param))
        return index if index is not None and self.params[index] is param else None

    # ---- the session ----

    def join(self, optimizer):
        """An optimizer of this model, whose states the session will hold."""
        if self._session is not None:
            raise InvalidError("make the optimizer before the first forward of a model that is offloaded")
        if self._optimizer is not None and self._optimizer() not in (None, optimizer):
            raise UnsupportedError("a model that is offloaded can have one optimizer")
        self._optimizer = weakref.ref(optimizer)

    def session(self):
        """The session, made when it is first needed: then all parameters leave."""
        if self._session is None:
            with self._lock, self._as_itself():
                if self._session is None:
                    self._seal()
        return self._session

    def _groups(self):
        optimizer = self._optimizer() if self._optimizer is not None else None
        return [] if optimizer is None else optimizer.param_groups

    def make_session(self):
        """A session with the parameters of the model, not sealed."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        if self._session is None:
            trained = {id(p) for group in self._groups() for p in group["params"] if p.requires_grad}
            self._trained = {index for index, param in enumerate(self.params) if id(param) in trained}
        name, momentum, options = ("sgd", False, {}) if optimizer is None else optimizer.session_options()
        given = {key: value for key, value in self._options.items() if value is not None}
        for param, own in zip(self.params, self.names):
            check_param(self.home_of(param), own)
        session = Session(name, momentum=momentum, holds="params", **{**options, **given})
        for index, (param, own) in enumerate(zip(self.params, self.names)):
            session.add(own, DTYPES[param.dtype], list(param.shape), frozen=index not in self._trained)
        return session

    def home_of(self, tensor):
        """The parameter as it is when it is here, with its shape and strides; anything else unchanged."""
        index = self.index_of(tensor)
        return tensor if index is None or self._session is None else self.parking[index].home

    def _seal(self):
        session, storages = self.make_session(), {}
        parking = [Parking(param, own, storages, self._to) for param, own in zip(self.params, self.names)]
        self._check_device(parking)
        sources = [_device.on_host(p.source) for p in parking]
        session.seal([source.data_ptr() for source in sources])
        self._move_buffers()
        self._session, self.parking, self._has_left = session, parking, [False] * len(parking)
        me, after_gradient = self._me, weakref.WeakMethod(self._after_gradient)
        for index, param in enumerate(self.params):
            if index in self._trained:  # a tensor's hooks are not seen by the collector
                param.register_post_accumulate_grad_hook(lambda p, index=index: after_gradient()(index, p))
            param._strata, param.__class__ = (me, index), OffloadedParameter
            parking[index].count_users()
            parking[index].source = None
            STORAGES[parking[index].storage._cdata] = (me, index)
        weakref.finalize(self, _forget_storages, me)
        self.take_over()

    def _move_buffers(self):
        for module in self._model().modules() if self._to is not None else ():
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.to(self._to)

    def check_thawing(self, index, wanted):
        """Raises if an optimizer would train a parameter of which the session has no states."""
        if wanted and index not in self._trained:
            if any(p is self.params[index] for group in self._groups() for p in group["params"]):
                raise UnsupportedError(f"parameter '{self.names[index]}' was frozen when its model was first used, so that the "
                                       "session has no states of it; unfreeze it before the first forward")  # fmt: skip

    def check_group(self, params):
        """Raises if parameters cannot join the optimizer's groups any more."""
        for param in params:
            index = self.index_of(param)
            if self._session is not None and index is not None and index not in self._trained:
                raise UnsupportedError(f"parameter '{self.names[index]}' was not in a group of the optimizer when its model was "
                                       "first used, so that the session has no states of it; add it before the first "
                                       "forward")  # fmt: skip

    # ---- gradients leave ----

    def accumulate(self, index, gradient):
        """Adds a gradient to the session's."""
        with self._lock:
            self._has_left[index] = True
            like, gradient = self.parking[index].home, gradient.resolve_neg()
            ordered = gradient if memory_order(gradient) == memory_order(like) else (
                torch.empty_strided(like.shape, like.stride(), dtype=gradient.dtype, device=gradient.device).copy_(gradient))  # fmt: skip
            self._leaving.add(self._session, index, ordered)

    def is_finite(self, index):
        return math.isfinite(self._leaving.square_sum(index))

    def norm(self, index):
        """The norm of a gradient, by PyTorch, whose bits clipping then has."""
        self._leaving.end()
        like = self.parking[index].home
        values = (ctypes.c_float * like.numel()).from_address(self._session.gradient(index))
        return torch.linalg.vector_norm(torch.frombuffer(values, dtype=torch.float32)).to(like.device)

    def forget(self, index):
        """Forgets what the session has of a gradient."""
        if self._has_left[index]:
            self._leaving.end()  # and not always: others leave while backward goes on
            self._session.discard([index])
        self._has_left[index] = False

    def _after_gradient(self, index, param):
        gradient = param.grad
        if isinstance(gradient, LeftGradient):  # this one was added to the one before
            return
        if gradient.requires_grad:
            raise UnsupportedError(f"backward(create_graph=True) would lose the graph of the gradient of '{self.names[index]}', "
                                   "which leaves for the session; use torch.autograd.grad")  # fmt: skip
        self.forget(index)  # a gradient of a step that was not taken
        self.accumulate(index, dense_gradient(param, self.names[index], self.parking[index].home))
        param.grad = LeftGradient(self, index, param)

    def check_no_gradients(self):
        """Raises if the session has gradients, which it forgets when it reads states."""
        for name, param in zip(self.names, self.params):
            gradient = param.grad
            if isinstance(gradient, LeftGradient) and not gradient.is_spent and not gradient.is_zero:
                raise UnsupportedError(f"the gradient of '{name}' has left for the session, which would lose it; call "
                                       "zero_grad() before states are loaded")  # fmt: skip

    # ---- the step ----

    def gradient_for_step(self, index):
        """The gradient that a step reads: nothing, for a gradient that the session has, or a tensor; and its factor."""
        self._leaving.end()
        gradient = self.params[index].grad
        if not isinstance(gradient, LeftGradient):
            self.forget(index)
            return dense_gradient(self.params[index], self.names[index], self.parking[index].home), 1.0
        if gradient.is_spent:
            raise InvalidError(f"the gradient of '{self.names[index]}' was used by a step before; call zero_grad()")
        if gradient.is_zero:
            self.forget(index)
            return torch.zeros_like(self.parking[index].home), 1.0
        return None, gradient.factor

    def after_step(self):
        """Notes that the values that are here are of the step before."""
        for param in self.params:
            gradient = param.grad
            if isinstance(gradient, LeftGradient):
                gradient.is_spent = not gradient.is_zero  # zero is still zero
        self.all_changed()
        self._has_left = [False] * len(self.params)
        self._order.end_step()

    def stats(self):
        """Counters of the session, of what is here, and of uses that the step before did not predict."""
        return {**self.session().stats(), "peak_device_bytes": self.peak_device_bytes, "misses": self._order.misses}

    # ---- copies and state_dict ----

    def copy_of(self, index):
        """A copy of a parameter as it is now, in memory of its own."""
        self.sync([index])
        like = self.parking[index].home
        if self.parking[index].bytes >= SMALL_COPY:
            copied = read_into_file(self._session, {index: like})[index]
        else:
            copied = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
            self._session.read([index], [copied.data_ptr()])
        return copied.to(like.device)

    def _before_state_dict(self, _):
        self._saving_state.is_on = self._session is not None

    def _after_state_dict(self, _):
        self._saving_state.is_on = False

    def saves_state(self):
        """Whether this thread is in a state_dict(), which must not need room for all parameters."""
        return getattr(self._saving_state, "is_on", False)

    # ---- without data ----

    @contextlib.contextmanager
    def dry(self, params, make_parking, session):
        """Runs with other parameters, which have no memory, and a session that does nothing."""
        kept, storages = dict(self.__dict__), dict(STORAGES)
        try:
            self.params, self._session, self._index = params, session, {id(p): i for i, p in enumerate(params)}
            self._init_presence(self._units, len(params))
            self.parking = [make_parking(param) for param in params]
            self._has_left, self._leaving = [False] * len(params), LeavingGradients(self)
            self._check_device(self.parking)
            me = self._me
            for index, param in enumerate(params):
                param._strata = (me, index)
                STORAGES[param.untyped_storage()._cdata] = (me, index)
                if index in self._trained:
                    param.register_post_accumulate_grad_hook(lambda p, index=index: self._after_gradient(index, p))
            yield
        finally:
            self.__dict__.update(kept)
            STORAGES.clear()
            STORAGES.update(storages)

    def is_dry(self):
        return self._session is not None and self._session.is_dry

    def end_dry_step(self):
        """Ends a step; returns how often modules were used."""
        for param in self.params:
            param.grad = None
        uses = self._order.n_uses()
        self.after_step()
        return uses

    def __deepcopy__(self, _):
        raise UnsupportedError(
            "a model that is offloaded cannot be copied; build another one and load its state_dict()"
        )

    __reduce_ex__ = __deepcopy__


def _forget_storages(owner):
    """The collector may call it at any time, also in the middle of another such call."""
    for key in list(STORAGES):
        place = STORAGES.get(key)
        if place is not None and place[0] is owner:
            STORAGES.pop(key, None)


def offload(model, *, device=None, to=None, pinned=None, nvme=None, nvme_bytes=None, prefetch=2, **options):
    """Moves the parameters and gradients of `model` to RAM and NVMe, and returns the model.

    device: bytes of parameters that PyTorch may hold at a time, or a text such as "2GiB". None: no limit, so that
        parameters stay, and f32 gradients, too; 16-bit ones leave, since the session accumulates and scales in f32.
    to: where PyTorch computes, such as "cuda", to which parameters and buffers then come. None: where they are.
    pinned, nvme, nvme_bytes and the rest: as for strata.Session; they hold the optimizer states, too.
    prefetch: modules whose parameters are fetched from NVMe ahead of their use.

    Parameters come when something uses them, inside and outside of forward, and what is written to them counts. Gradients
    leave when they are complete: until the step, `param.grad` can be scaled, added to, and asked for its norm, which is
    what clipping, gradient scalers and accumulation do. Make the optimizer, one of strata.optim, before the first forward.
    torch.compile, torch.jit and backward(create_graph=True) are refused.
    """
    if getattr(model, "strata_offload", None) is not None:
        raise InvalidError("the model is already offloaded")
    options |= dict(pinned=pinned, nvme=nvme, nvme_bytes=nvme_bytes)
    optimizers = optimizers_of(model.parameters())
    stays = device is None and to is None and all(param.dtype == torch.float32 for param in model.parameters())
    made = Resident(model, options) if stays else Offload(model, device, to, prefetch, options)
    for optimizer in optimizers:
        optimizer.check_may_join()
        made.join(optimizer)
    model.strata_offload = made
    return model
