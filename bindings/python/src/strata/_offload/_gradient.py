"""A gradient that has left for the session: what `param.grad` is between backward and step.

It answers what trainers do with gradients before a step: norms, scaling, adding the gradient of another micro-batch.
Everything else raises."""

import weakref

import torch

from ..errors import UnsupportedError

aten = torch.ops.aten


class LeftGradient(torch.Tensor):
    """`owner` has accumulate(index, gradient), forget(index), norm(index) and is_finite(index); `factor` multiplies
    what the session has."""

    @staticmethod
    def __new__(cls, owner, index, param):
        made = torch.Tensor._make_wrapper_subclass(cls, param.shape, strides=param.stride(), dtype=param.dtype,
                                                   device=param.device)  # fmt: skip
        made._owner, made.param_name = weakref.ref(owner), owner.names[index]  # the collector does not see into param.grad
        made.index, made.factor = index, 1.0
        made.is_zero = made.is_spent = False
        made.norm_before_factor = None
        return made

    @property
    def owner(self):
        owner = self._owner()
        if owner is None:
            raise UnsupportedError(f"the model of '{self.param_name}', whose gradient this was, is gone")
        return owner

    def __repr__(self):
        return f"<gradient of '{self.param_name}', which has left for the session, times {self.factor:g}>"

    def norm_of(self, order):
        if order != 2:
            raise UnsupportedError(f"the gradient of '{self.param_name}' has left for the session, which knows "
                                   f"its 2-norm; {order} was asked for")  # fmt: skip
        if self.is_zero:
            return torch.tensor(0.0, device=self.device)
        if self.norm_before_factor is None:
            self.norm_before_factor = self.owner.norm(self.index)
        return self.norm_before_factor * abs(self.factor)

    def scale(self, by):
        self.factor *= float(by)
        return self

    def add(self, other, alpha=1):
        if isinstance(other, LeftGradient) or alpha != 1:
            raise UnsupportedError(f"add with alpha={alpha} and {type(other).__name__} to the gradient of "
                                   f"'{self.param_name}', which has left for the session")  # fmt: skip
        if other.requires_grad:
            raise UnsupportedError(f"backward(create_graph=True) would lose the graph of the gradient of '{self.param_name}', which has "
                                   "left for the session; use torch.autograd.grad")  # fmt: skip
        if self.is_spent:
            raise UnsupportedError(f"the gradient of '{self.param_name}' was used by a step; call "
                                   "zero_grad() before the next backward")  # fmt: skip
        if self.factor != 1.0 and not self.is_zero:
            raise UnsupportedError(f"the gradient of '{self.param_name}' was scaled by {self.factor:g} after it "
                                   "left for the session; another micro-batch cannot be added to it")  # fmt: skip
        if self.is_zero:
            self.owner.forget(self.index)
        self.owner.accumulate(self.index, other)
        self.norm_before_factor, self.factor, self.is_zero = None, 1.0, False
        return self

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        handler = _HANDLERS.get(function)
        if handler is None:
            left = next(a for a in _flat(args) if isinstance(a, LeftGradient))
            raise UnsupportedError(f"{function} on the gradient of '{left.param_name}', which has left for the "
                                   "session: it can be scaled, added to, and asked for its 2-norm")  # fmt: skip
        return handler(*args, **(kwargs or {}))


def _flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _norm(tensor, order=2, dim=None, keepdim=False, *, dtype=None):
    if dim not in (None, []):
        raise UnsupportedError(f"a norm over dimensions {dim} of the gradient of '{tensor.param_name}', which has left for the session")
    value = tensor.norm_of(order)
    return value if dtype is None else value.to(dtype)


def _zero(tensor):
    tensor.is_zero, tensor.is_spent, tensor.factor = True, False, 1.0
    return tensor


def _unscale(tensors, found_inf, inverse_scale):
    for tensor in tensors:
        if isinstance(tensor, LeftGradient):
            if not tensor.is_zero and not tensor.owner.is_finite(tensor.index):
                found_inf.fill_(1)
            tensor.scale(inverse_scale)
        else:
            torch._amp_foreach_non_finite_check_and_unscale_([tensor], found_inf, inverse_scale)


def _each(method):
    def apply(tensors, others):
        several = isinstance(others, (list, tuple))
        for i, tensor in enumerate(tensors):
            other = others[i] if several else others
            method(tensor, other) if isinstance(tensor, LeftGradient) else tensor.mul_(other)

    return apply


def _divide(tensor, other):
    return tensor.scale(1.0 / float(other))


_HANDLERS = {
    aten.linalg_vector_norm.default: _norm,
    aten.norm.Scalar: _norm,
    aten.norm.ScalarOpt_dim: _norm,
    aten._foreach_norm.Scalar: lambda tensors, order=2, dtype=None: [_norm(t, order, dtype=dtype) for t in tensors],
    aten.mul_.Tensor: LeftGradient.scale,
    aten.mul_.Scalar: LeftGradient.scale,
    aten._foreach_mul_.Tensor: _each(LeftGradient.scale),
    aten._foreach_mul_.Scalar: _each(LeftGradient.scale),
    aten._foreach_mul_.ScalarList: _each(LeftGradient.scale),
    aten.div_.Tensor: _divide,
    aten.div_.Scalar: _divide,
    aten.add_.Tensor: LeftGradient.add,
    aten.add.Tensor: LeftGradient.add,
    aten.zero_.default: _zero,
    aten.detach.default: lambda tensor: tensor,
    aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
}
