"""A model whose parameters come when their module computes, and whose gradients leave when they are complete."""

import contextlib
import ctypes
import math
import weakref

import torch

from .. import _device
from .._registry import offloads
from .._session import Session
from .._sizes import to_bytes
from ..errors import DoesNotFitError, InvalidError, UnsupportedError
from ..optim._state_file import read_into_file
from ..optim._tensors import DTYPES, check_param, dense_gradient, memory_order
from ._gradient import LeftGradient
from ._leaving import LeavingGradients
from ._order import UseOrder
from ._parking import Parking
from ._resident import Resident

# Modules that read the parameters of their children without calling them.
READ_THEIR_CHILDREN = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)


class Offload:
    """The parameters of a model in a session. strata.offload() makes it; model.strata_offload is it."""

    leaves = True

    def __init__(self, model, device, to, prefetch, options):
        self.device_bytes = None if device is None else to_bytes(device, "device")
        self.prefetch, self._options = prefetch, options
        self.params, self.names, self._index = [], [], {}
        self.parking = []
        self._session = self._optimizer = None
        self._here, self._in_use = {}, {}  # units whose parameters are here; how often each is in use
        self._stale, self._has_left = set(), []
        self._awaited = {}  # units in backward, and of which parameters the gradients are not complete
        self._backward = None  # number of the backward pass that runs
        self._order = UseOrder()
        self._leaving = LeavingGradients(self)
        self._to = None if to is None else torch.empty(0, device=to).device  # with its index
        if self._to is not None:
            _device.check(self._to, "to is")
        self._staging = {}  # by device: for parameters that come to a GPU
        self._device_now = self.peak_device_bytes = 0
        for name, param in model.named_parameters():
            self._index[id(param)] = len(self.params)
            self.params.append(param)
            self.names.append(name)
            offloads[id(param)] = self
        self._keys = {name: self._index[id(p)] for name, p in model.named_parameters(remove_duplicate=False)}
        self._units = self._make_units(model)
        self._model = weakref.ref(model)
        self._units_of = [[u for u, unit in enumerate(self._units) if i in unit] for i in range(len(self.params))]
        model._register_state_dict_hook(self._after_state_dict)
        model.register_load_state_dict_pre_hook(self._before_load)

    # ---- units: modules with the parameters that they read ----

    def _make_units(self, model):
        units, inside = [], set()
        for module in model.modules():
            if module in inside:
                continue
            whole = isinstance(module, READ_THEIR_CHILDREN)
            if whole:
                inside.update(module.modules())
            params = {self._index[id(p)] for p in module.parameters(recurse=whole)}
            if params:
                self._hook(module, len(units))
                units.append(sorted(params))
        return units

    def _hook(self, module, unit):
        module.register_forward_pre_hook(lambda _, inputs, named: self._before_forward(unit, (inputs, named)),
                                         with_kwargs=True)  # fmt: skip
        module.register_forward_hook(lambda _, __, output: self._after_forward(unit, output), always_call=True)

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
            self._seal()
        return self._session

    def make_session(self):
        """A session with the parameters of the model, not sealed."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        groups = [] if optimizer is None else optimizer.param_groups
        trained = {id(p) for group in groups for p in group["params"] if p.requires_grad}
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
        after_gradient = weakref.WeakMethod(self._after_gradient)  # a tensor's hooks are not seen by the collector
        for index, param in enumerate(self.params):
            parking[index].park()
            if index in self._trained:
                param.register_post_accumulate_grad_hook(lambda p, index=index: after_gradient()(index, p))

    def _move_buffers(self):
        for module in self._model().modules() if self._to is not None else ():
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.to(self._to)

    def _check_device(self, parking):
        sizes = [sum(parking[index].bytes for index in unit) for unit in self._units]
        if self.device_bytes is not None and sizes and max(sizes) > self.device_bytes:
            names = ", ".join(self.names[index] for index in self._units[sizes.index(max(sizes))])
            raise DoesNotFitError(
                f"device is {self.device_bytes} bytes, but {names} are needed together and have {max(sizes)}"
            )

    # ---- parameters come and go ----

    def _before_forward(self, unit, inputs):
        if torch.compiler.is_compiling():
            raise UnsupportedError("a model that is offloaded cannot be compiled by torch.compile")
        self.session()
        if self._backward is not None and torch._C._current_graph_task_id() == -1:
            self._after_backward()  # the last one was interrupted
        self._acquire(unit)
        self._in_use[unit] = self._in_use.get(unit, 0) + 1
        if torch.is_grad_enabled():
            # The backward of a module has ended when that of all its inputs begins.
            producers = [tensor.grad_fn for tensor in _tensors(inputs) if tensor.grad_fn is not None]
            left = [len(producers)]

            def on_input(_):
                left[0] -= 1
                if left[0] == 0:
                    self._end_backward(unit)

            for producer in producers:
                self._before_node(producer).append(on_input)

    def _after_forward(self, unit, output):
        if torch.is_grad_enabled():
            for tensor in _tensors(output):
                if tensor.grad_fn is not None:
                    self._before_node(tensor.grad_fn)
                    tensor.grad_fn.register_prehook(lambda _, unit=unit: self._before_backward(unit))
        left = self._in_use.get(unit, 0) - 1
        if left > 0:
            self._in_use[unit] = left
        else:
            self._in_use.pop(unit, None)

    @staticmethod
    def _before_node(node):
        """Functions to call before a node of the graph runs, and before any unit is acquired for it."""
        if "strata" not in node.metadata:
            node.metadata["strata"] = calls = []

            def run(gradients):
                for call in calls:
                    call(gradients)

            node.register_prehook(run)
        return node.metadata["strata"]

    def _before_backward(self, unit):
        task = torch._C._current_graph_task_id()
        if self._backward != task:
            if self._backward is not None:
                raise UnsupportedError("reentrant backward (torch.utils.checkpoint with use_reentrant=True) is not supported "
                                       "for a model that is offloaded; use use_reentrant=False")  # fmt: skip
            self._backward = task
            torch.autograd.Variable._execution_engine.queue_callback(self._after_backward)
        if unit not in self._awaited:
            self._acquire(unit)
            self._in_use[unit] = self._in_use.get(unit, 0) + 1
            self._awaited[unit] = {i for i in self._units[unit] if i in self._trained and self.params[i].requires_grad}

    def _end_backward(self, unit):
        if self._awaited.pop(unit, None) is not None:
            self._after_forward(unit, None)

    def _after_backward(self):
        self._backward = None
        self._awaited.clear()
        self._in_use.clear()

    def _acquire(self, unit):
        self._order.use(unit)
        missing = [i for i in self._units[unit] if not self.parking[i].is_here or i in self._stale]
        if missing:
            self._make_room(unit, sum(self.parking[i].bytes for i in missing if not self.parking[i].is_here))
            for index in missing:
                self.parking[index].check()
                if not self.parking[index].is_here:
                    self.parking[index].allocate()
                    self._device_now += self.parking[index].bytes
            self._read(missing)
            for index in missing:
                self.parking[index].show()
            self._stale.difference_update(missing)
        self._here[unit] = True
        self.peak_device_bytes = max(self.peak_device_bytes, self._device_now)
        coming = {i for later in self._order.next_units(self.prefetch) for i in self._units[later]
                  if not self.parking[i].is_here or i in self._stale}  # fmt: skip
        if coming:
            self._session.prefetch(sorted(coming))

    def _read(self, missing):
        """Copies parameters from the session to where they are here."""
        homes = [self.parking[i].home for i in missing]
        if self._session.is_dry or _device.is_host(homes[0]):
            self._session.read(missing, [self.parking[i].address_of(home) for i, home in zip(missing, homes)])
            return
        staging = self._staging.setdefault(homes[0].device, _device.Staging(homes[0].device))
        sizes = [-(-self.parking[i].bytes // 64) * 64 for i in missing]  # each begins at an address for any dtype
        parts = [part[: self.parking[i].bytes] for i, part in zip(missing, staging.take(sum(sizes)).split(sizes))]
        self._session.read(missing, [part.data_ptr() for part in parts])
        for part, home in zip(parts, homes):
            _device.copy(home, _device.as_tensor(part, home))
        staging.queued()

    def _make_room(self, unit, needed):
        while self.device_bytes is not None and self._device_now + needed > self.device_bytes:
            idle = [other for other in self._here if other not in self._in_use and other != unit]
            if not idle:
                raise DoesNotFitError(f"device is {self.device_bytes} bytes, of which {self._device_now} are in use; "
                                      f"{self.names[self._units[unit][0]]} needs {needed} more")  # fmt: skip
            self._park(self._order.furthest(idle), unit)

    def _park(self, unit, wanted):
        """Frees the parameters of a unit, except those that others which are in use, or wanted, share."""
        self._here.pop(unit, None)
        kept = {i for other in [*self._in_use, wanted] for i in self._units[other]}
        for index in self._units[unit]:
            if index not in kept and self.parking[index].is_here:
                self.parking[index].park()
                self._device_now -= self.parking[index].bytes

    # ---- gradients leave ----

    def accumulate(self, index, gradient):
        """Adds a gradient to the session's."""
        self._has_left[index] = True
        like = self.parking[index].home
        ordered = gradient if memory_order(gradient) == memory_order(like) else (
            torch.empty_strided(like.shape, like.stride(), dtype=gradient.dtype, device=gradient.device).copy_(gradient))  # fmt: skip
        self._leaving.add(self._session, index, ordered)

    def is_finite(self, index):
        return math.isfinite(self._leaving.square_sum(index))

    def norm(self, index):
        """The norm of a gradient, by PyTorch, whose bits clipping then has."""
        self._leaving.end()
        n = self.params[index].numel()
        values = (ctypes.c_float * n).from_address(self._session.gradient(index))
        return torch.linalg.vector_norm(torch.frombuffer(values, dtype=torch.float32)).to(self.params[index].device)

    def forget(self, index):
        """Forgets what the session has of a gradient."""
        if self._has_left[index]:
            self._leaving.end()  # and not always: others leave while backward goes on
            self._session.discard([index])
        self._has_left[index] = False

    def _after_gradient(self, index, param):
        if not isinstance(param.grad, LeftGradient):  # else it was added to the one before
            self.forget(index)  # of a step that was not taken
            self.accumulate(index, dense_gradient(param, self.names[index], self.parking[index].home))
            param.grad = LeftGradient(self, index, param)
        for unit in self._units_of[index]:
            awaited = self._awaited.get(unit)
            if awaited is not None:
                awaited.discard(index)
                if not awaited:
                    self._end_backward(unit)

    # ---- the step ----

    def gradient_for_step(self, index):
        """What a step reads: nothing, for a gradient that the session has, or a tensor; and its factor."""
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
        """What is here is of the step before."""
        for param in self.params:
            if isinstance(param.grad, LeftGradient):
                param.grad.is_spent = not param.grad.is_zero  # zero is still zero
        self._stale = {index for index, parking in enumerate(self.parking) if parking.is_here}
        self._has_left = [False] * len(self.params)
        self._order.end_step()

    def stats(self):
        """Counters of the session, of what is here, and of uses that the step before did not predict."""
        return {**self.session().stats(), "peak_device_bytes": self.peak_device_bytes, "misses": self._order.misses}

    # ---- without data ----

    @contextlib.contextmanager
    def dry(self, params, make_parking, session):
        """Runs with other parameters, which have no memory, and a session that does nothing."""
        kept = dict(self.__dict__)
        try:
            self.params, self._session = params, session
            self.parking = [make_parking(param, param) for param in params]
            self._has_left, self._order, self._leaving = [False] * len(params), UseOrder(), LeavingGradients(self)
            self._here, self._in_use, self._stale, self._awaited = {}, {}, set(), {}
            self._device_now = self.peak_device_bytes = 0
            self._check_device(self.parking)
            for index in self._trained:
                params[index].register_post_accumulate_grad_hook(lambda p, index=index: self._after_gradient(index, p))
            yield
        finally:
            self.__dict__.update(kept)

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

    # ---- state_dict of the model ----

    def _after_state_dict(self, _, state_dict, prefix, __):
        if self._session is None:
            return state_dict
        names = [key for key in self._keys if prefix + key in state_dict]
        copies = read_into_file(self._session, {self._keys[key]: self.parking[self._keys[key]].home for key in names})
        for key in names:
            state_dict[prefix + key] = copies[self._keys[key]]
        return state_dict

    def _before_load(self, *_):
        if self._session is not None:
            raise UnsupportedError("load the state_dict of a model before its first forward after strata.offload()")


def _tensors(output):
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value)


def offload(model, *, device=None, to=None, pinned=None, nvme=None, nvme_bytes=None, prefetch=2, **options):
    """Moves the parameters and gradients of `model` to RAM and NVMe, and returns the model.

    device: bytes of parameters that PyTorch may hold at a time, or a text such as "2GiB". None: no limit, so that
        parameters stay, and f32 gradients, too; 16-bit ones leave, since the session accumulates and scales in f32.
    to: where PyTorch computes, such as "cuda", to which parameters and buffers then come. None: where they are.
    pinned, nvme, nvme_bytes and the rest: as for strata.Session; they hold the optimizer states, too.
    prefetch: modules whose parameters are fetched from NVMe ahead of their use.

    Parameters come when their module computes, and gradients leave when they are complete: until the step, `param.grad`
    can be scaled, added to, and asked for its norm, which is what clipping, gradient scalers and accumulation do. Make
    the optimizer, one of strata.optim, before the first forward. torch.compile and reentrant checkpointing are refused.
    """
    if getattr(model, "strata_offload", None) is not None:
        raise InvalidError("the model is already offloaded")
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        raise UnsupportedError(f"strata.offload needs torch 2.4 or later; this is {torch.__version__}")
    options |= dict(pinned=pinned, nvme=nvme, nvme_bytes=nvme_bytes)
    stays = device is None and to is None and all(param.dtype == torch.float32 for param in model.parameters())
    model.strata_offload = Resident(model, options) if stays else Offload(model, device, to, prefetch, options)
    return model
