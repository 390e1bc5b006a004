"""torch.optim.Optimizer over sessions."""

import ctypes

import torch

from .. import _abi
from .._registry import offload_of, optimizers
from .._session import Session, paths_of
from .._sizes import to_bytes
from ..errors import InvalidError, UnsupportedError
from ._sealed import Sealed, SealedOffload
from ._state_dict import StateDicts
from ._tensors import DTYPES, check_param


class Optimizer(StateDicts, torch.optim.Optimizer):
    """What all have in common; strata.optim says which keywords there are."""

    _name = ""
    _moments = {}  # keys of torch's state, by state
    _refused = {}  # settings that must have the given value
    _step_supports_amp_scaling = True  # GradScaler sets grad_scale and found_inf, and leaves gradients as they are

    def __init__(self, params, defaults, *, states="f32", placement="auto", pinned=None, nvme=None, nvme_bytes=None,
                 threads=None, chunk_elems=None, rounding_seed=0):  # fmt: skip
        self._options = dict(states=states, placement=placement, pinned=pinned, nvme=nvme, nvme_bytes=nvme_bytes,
                             threads=threads, chunk_elems=chunk_elems, rounding_seed=rounding_seed)  # fmt: skip
        self._folder = (paths_of(nvme) or [None])[0]
        self._sealed, self._is_made, self._schedule = [], False, None
        self._place_of = {}  # id of a parameter: (sealed session, number in it)
        self._settings = []  # one for each group; pointers
        super().__init__(params, defaults)
        for offload in self._offloads():
            offload.join(self)
        self._is_made = True
        optimizers.add(self)

    def check_may_join(self):
        """Raises if the states are somewhere already when a model is offloaded."""
        if self._sealed:
            raise InvalidError(f"{type(self).__name__} has states already; give the model to strata.offload() before the "
                               "optimizer's first step or load_state_dict()")  # fmt: skip

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check_group(group)
            names = group.get("param_names")
            first = sum(len(other["params"]) for other in self.param_groups[:-1])
            for i, param in enumerate(group["params"]):
                check_param(param, names[i] if names else f"param.{first + i}")
            for offload in self._offloads() if self._is_made else ():
                offload.check_group(group["params"])
        except Exception:
            self.param_groups.pop()
            raise

    def set_default(self, key, value):
        """Sets a setting in all groups, now and later."""
        self.defaults[key] = value
        for group in self.param_groups:
            group[key] = value
            self._check_group(group)

    def set_schedule(self, factor):
        """Makes each step set the groups' lr to that which they have now times `factor`(the step's number, from 1)."""
        self._schedule = factor
        for group in self.param_groups:
            group.setdefault("initial_lr", group["lr"])

    def _follow_schedule(self):
        if self._schedule is not None:
            step = 1 + max((sealed.session.steps()[0] for sealed in self._sealed), default=0)
            for group in self.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * self._schedule(step)

    def _check_group(self, group):
        for key, value in self._refused.items():
            if group.get(key, value) != value:
                raise UnsupportedError(
                    f"{type(self).__name__}: {key}={group[key]!r} is not supported; it must be {value!r}"
                )
        self._check_numbers(group)

    def _check_numbers(self, group):
        """All that a session would refuse: a step of several sessions is checked before the first one changes."""
        for key in ("lr", "weight_decay", "eps", "momentum"):
            if key in group and not 0 <= float(group[key]) < float("inf"):
                raise InvalidError(f"{type(self).__name__}: {key} is {group[key]}; it must be at least 0 and finite")
        for i, beta in enumerate(group.get("betas", ())):
            if not (0 <= float(beta) and _as_f32(beta) < 1):
                raise InvalidError(f"{type(self).__name__}: betas[{i}] is {beta}; it must be at least 0 and below 1")
        if not _as_f32(group.get("momentum", 0)) < 1:
            raise InvalidError(f"{type(self).__name__}: momentum is {group['momentum']}; it must be below 1")
        if group.get("nesterov") and not float(group["momentum"]) > 0:
            raise InvalidError(f"{type(self).__name__}: nesterov needs momentum, which is {group['momentum']}")

    # ---- the settings of a group, as torch's namesake has them ----

    def _read_settings(self, group, settings):
        settings.lr = float(group["lr"])
        settings.weight_decay = float(group.get("weight_decay", 0))
        settings.eps = float(group.get("eps", 1e-8))
        settings.beta1, settings.beta2 = (float(beta) for beta in group.get("betas", (0.9, 0.999)))
        settings.momentum = float(group.get("momentum", 0))
        settings.nesterov = int(bool(group.get("nesterov", False)))

    def _grad_factor(self):
        """What gradients are multiplied by: 1 / grad_scale."""
        given = getattr(self, "grad_scale", None)
        scale = 1.0 if given is None else float(given)
        if not 0 < scale < float("inf"):
            raise InvalidError(f"{type(self).__name__}: grad_scale is {scale}; it must be above 0 and finite")
        return 1.0 / scale

    def _settings_of(self, number, grad_factor):
        while number >= len(self._settings):
            self._settings.append(_abi.ctypes.pointer(_abi.Settings()))
        pointer, group = self._settings[number], self.param_groups[number]
        self._check_group(group)
        self._read_settings(group, pointer[0])
        pointer[0].grad_factor = grad_factor
        return pointer

    # ---- sessions ----

    def _offloads(self):
        """The models of strata.offload() to which the parameters belong, and whose parameters leave or stay."""
        found = {id(of): of for group in self.param_groups for of in map(offload_of, group["params"]) if of is not None}
        return list(found.values())

    def use_options(self, options):
        """Keywords of the model that is offloaded, which come before those of the optimizer."""
        self._options |= options
        self._folder = (paths_of(self._options["nvme"]) or [None])[0]

    def session_options(self):
        """What the session of an offloaded model needs to know: optimizer, momentum, keywords."""
        return self._name, self._has_momentum(), {k: v for k, v in self._options.items() if v is not None}

    def _has_momentum(self):
        return False

    def _seal(self, loaded=()):
        """Makes a session of the parameters that have none, if there are any: those that are trainable, or still have
        a gradient, with which torch updates them, too, or of which a state is loaded (their ids)."""
        for offload in self._offloads():
            if offload.leaves and offload not in [sealed.offload for sealed in self._sealed]:
                sealed = SealedOffload(offload)
                self._sealed.append(sealed)
                for index, param in enumerate(offload.params):
                    self._place_of[id(param)] = (sealed, index)
        params, names = [], []
        for group in self.param_groups:
            of_group = group.get("param_names") or [None] * len(group["params"])
            for param, name in zip(group["params"], of_group):
                if id(param) in self._place_of or param.numel() == 0:
                    continue
                if param.requires_grad or param.grad is not None or id(param) in loaded:
                    params.append(param)
                    names.append(name or f"param.{len(self._place_of) + len(params) - 1}")
        if not params:
            return
        session = Session(self._name, momentum=self._has_momentum(), **self._options_left())
        names = self._unique(names)
        for param, name in zip(params, names):
            session.add(name, DTYPES[param.dtype], list(param.shape))
        sealed = Sealed(session, params, names)
        sealed.seal()
        self._sealed.append(sealed)
        for i, param in enumerate(params):
            self._place_of[id(param)] = (sealed, i)

    def _unique(self, names):
        """The names, of which those that several groups have get a number."""
        found, made = set(), []
        for name in names:
            own, number = name, 1
            while own in found:
                number += 1
                own = f"{name} ({number})"
            found.add(own)
            made.append(own)
        return made

    def _options_left(self):
        """The keywords, with what the sessions of other parameters have left of the budgets."""
        left = dict(self._options)
        for key in ("pinned", "nvme_bytes"):
            used = sum(sealed.session.stats()["pinned_bytes" if key == "pinned" else "nvme_bytes"]
                       for sealed in self._sealed if sealed.offload is None)  # fmt: skip
            if left[key] is not None:
                left[key] = max(0, to_bytes(left[key], key) - used)
        return left

    def sealed(self):
        """The session of all parameters, with what belongs to it; made now if no step was done yet."""
        self._seal()
        if len(self._sealed) != 1:
            raise UnsupportedError(f"{type(self).__name__} has {len(self._sealed)} sessions: parameters were added "
                                   "after the first step")  # fmt: skip
        return self._sealed[0]

    @torch.no_grad()
    def step(self, closure=None):
        """One step of the parameters that have a gradient. Gradients are divided by the attribute `grad_scale`, a
        number or a tensor, in the same pass. Nothing changes if the attribute `found_inf` is not 0. Both are as in
        torch's fused optimizers, and may be absent or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if float(getattr(self, "found_inf", None) or 0) != 0:
            return loss
        grad_factor = self._grad_factor()
        wanted = [(number, param) for number, group in enumerate(self.param_groups) for param in group["params"]
                  if param.grad is not None and param.numel() > 0]  # fmt: skip
        if any(id(param) not in self._place_of for _, param in wanted):
            self._seal()
        self._follow_schedule()
        for sealed in self._sealed:
            sealed.begin_step()
        of_groups = {number: self._settings_of(number, grad_factor) for number in dict.fromkeys(n for n, _ in wanted)}
        for number, param in wanted:
            sealed, index = self._place_of[id(param)]
            sealed.add(index, param, param.grad, of_groups[number])
        for sealed in self._sealed:
            sealed.step()
        return loss

    def plan(self):
        """Bytes by tier that the states will need, before they are allocated: see strata.Session.plan()."""
        session = Session(self._name, momentum=self._has_momentum(), **self._options)
        for number, param in enumerate(p for group in self.param_groups for p in group["params"]):
            if param.requires_grad and param.numel() > 0:
                session.add(f"param.{number}", DTYPES[param.dtype], list(param.shape))
        try:
            return session.plan()
        finally:
            session.close()

    def stats(self):
        """What the states use: the sums of strata.Session.stats()."""
        total = {}
        for sealed in self._sealed:
            for name, value in sealed.session.stats().items():
                total[name] = total.get(name, 0) + value
        return total

    def close(self):
        """Gives back memory and files of all states; the parameters stay."""
        for sealed in self._sealed:
            sealed.session.close()

    def __reduce_ex__(self, _):
        raise UnsupportedError(
            f"{type(self).__name__} cannot be copied or pickled; make another one and load its state_dict()"
        )


def _as_f32(value):
    return ctypes.c_float(float(value)).value


def _adam_defaults(lr, betas, eps, weight_decay, amsgrad, maximize, foreach, capturable, differentiable, fused):
    return dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
                foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused)  # fmt: skip


class AdamW(Optimizer):
    """torch.optim.AdamW (Loshchilov and Hutter 2019). `foreach` and `fused` have no meaning here."""

    _name = "adamw"
    _moments = {"m": "exp_avg", "v": "exp_avg_sq"}
    _refused = {"amsgrad": False, "maximize": False, "capturable": False, "differentiable": False,
                "bias_correction": True, "decoupled_weight_decay": True}  # fmt: skip

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False,
                 foreach=None, capturable=False, differentiable=False, fused=None, **strata):  # fmt: skip
        super().__init__(params, _adam_defaults(lr, betas, eps, weight_decay, amsgrad, maximize, foreach, capturable,
                                                differentiable, fused), **strata)  # fmt: skip


class Adam(AdamW):
    """torch.optim.Adam (Kingma and Ba 2015), whose weight decay is added to the gradient."""

    _name = "adam"
    _refused = {**AdamW._refused, "decoupled_weight_decay": False}

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *,
                 decoupled_weight_decay=False, **others):  # fmt: skip
        if decoupled_weight_decay:
            raise UnsupportedError("Adam: decoupled_weight_decay=True is AdamW")
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **others)


class LAMB(Optimizer):
    """LAMB (You et al. 2020)."""

    _name = "lamb"
    _moments = {"m": "exp_avg", "v": "exp_avg_sq"}

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0, **strata):
        defaults = _adam_defaults(lr, betas, eps, weight_decay, False, False, None, False, False, None)
        super().__init__(params, {k: defaults[k] for k in ("lr", "betas", "eps", "weight_decay")}, **strata)


class Lion(Optimizer):
    """Lion (Chen et al. 2023)."""

    _name = "lion"
    _moments = {"m": "exp_avg"}

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0, **strata):
        defaults = _adam_defaults(lr, betas, 1e-8, weight_decay, False, False, None, False, False, None)
        super().__init__(params, {k: defaults[k] for k in ("lr", "betas", "weight_decay")}, **strata)


class Adagrad(Optimizer):
    """torch.optim.Adagrad (Duchi et al. 2011)."""

    _name = "adagrad"
    _moments = {"v": "sum"}
    _refused = {"lr_decay": 0, "initial_accumulator_value": 0, "maximize": False, "differentiable": False}

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *,
                 maximize=False, differentiable=False, fused=None, **strata):  # fmt: skip
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, fused=fused), **strata)  # fmt: skip


class SGD(Optimizer):
    """torch.optim.SGD. All groups have momentum or none has."""

    _name = "sgd"
    _refused = {"dampening": 0, "maximize": False, "differentiable": False}

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None, **strata):  # fmt: skip
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, fused=fused), **strata)  # fmt: skip
        self._moments = {"m": "momentum_buffer"} if self._has_momentum() else {}

    def _has_momentum(self):
        with_momentum = {float(group["momentum"]) > 0 for group in self.param_groups}
        if len(with_momentum) > 1:
            raise UnsupportedError("SGD: some groups have momentum and some have none")
        return with_momentum == {True}
