"""Facts about tensors that the optimizers need."""

import torch

from .. import _device
from ..errors import InvalidError, UnsupportedError

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
DTYPE_INDEX = {dtype: index for index, dtype in enumerate(DTYPES)}


def is_dense(tensor):
    """Whether the elements fill their memory without gaps or overlap, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def memory_order(tensor):
    """The strides that matter: two tensors of one shape with equal ones have their elements in the same order."""
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape) if size != 1)


def check_param(param, name):
    """Raises if an optimizer cannot update the parameter."""
    _device.check(param.device, f"parameter '{name}' is on")
    if param.dtype not in DTYPES:
        raise UnsupportedError(f"parameter '{name}' is {param.dtype}; it must be float32, bfloat16 or float16")
    if param.is_neg():
        raise UnsupportedError(f"parameter '{name}' is a negative view, whose memory has other values; clone it")
    if param.layout != torch.strided or not is_dense(param):
        raise UnsupportedError(f"parameter '{name}' is {param.layout} with strides {tuple(param.stride())}; "
                               "its elements must fill their memory")  # fmt: skip


def dense_gradient(param, name, like=None):
    """The gradient in the memory order of the parameter, or of `like`, copied only if it is in another one."""
    like = param if like is None else like
    gradient = param.grad
    if gradient.layout != torch.strided:
        raise UnsupportedError(
            f"the gradient of parameter '{name}' is {gradient.layout}; only dense ones are supported"
        )
    if gradient.device != param.device or gradient.dtype not in DTYPES:
        raise UnsupportedError(f"the gradient of parameter '{name}' is {gradient.dtype} on {gradient.device}; it must be "
                               f"float32, bfloat16 or float16 on {param.device}")  # fmt: skip
    if gradient.shape != param.shape:
        raise InvalidError(f"the gradient of parameter '{name}' has the shape {tuple(gradient.shape)}, "
                           f"the parameter {tuple(param.shape)}")  # fmt: skip
    if gradient.is_neg():  # its memory has the negative values
        gradient = gradient.resolve_neg()
    if memory_order(gradient) == memory_order(like):
        return gradient
    return torch.empty_strided(like.shape, like.stride(), dtype=gradient.dtype, device=gradient.device).copy_(gradient)


if hasattr(torch.autograd.graph, "increment_version"):

    def mark_written(params):
        """Tells autograd that the parameters have changed."""
        torch.autograd.graph.increment_version(params)

else:

    def mark_written(params):
        with torch.no_grad():
            for param in params:
                param.detach().view(-1)[:0].zero_() if param.is_contiguous() else param.detach()[:0].zero_()
