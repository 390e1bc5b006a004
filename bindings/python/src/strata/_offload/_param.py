"""Parameters that come when something uses them.

Everything that Python does with a parameter passes through __torch_function__: a function of torch.nn.functional, a method,
`.data`, an optimizer. The parameter is there while the function runs, and what the function writes counts."""

import copy

import torch

from ..errors import InvalidError, UnsupportedError
from ._saved import place_of, saving

_Tensor = torch.Tensor
_ACCESS = {"get": "__get__", "set": "__set__", "delete": "__delete__"}


def _those_that_exist(of, names):
    return {getattr(of, name) for name in names.split() if hasattr(of, name)}


def _access(names, *kinds):
    return {getattr(getattr(_Tensor, name), _ACCESS[kind]) for name in names.split() if hasattr(_Tensor, name) for kind in kinds}


# These accesses need no values.
NO_VALUES = (
    _access("shape dtype device is_leaf grad_fn layout ndim is_cuda is_cpu is_meta is_sparse is_sparse_csr is_quantized "
            "is_mkldnn is_nested is_xpu is_mps names output_nr retains_grad _base _version itemsize nbytes requires_grad grad "
            "_backward_hooks _post_accumulate_grad_hooks", "get")
    | _access("grad _backward_hooks _post_accumulate_grad_hooks", "set", "delete")
    | _those_that_exist(_Tensor, "size dim ndimension numel nelement element_size get_device is_floating_point is_complex "
                        "is_signed is_inference is_neg is_conj __len__ register_hook register_post_accumulate_grad_hook "
                        "retain_grad has_names is_pinned is_same_size backward __hash__")
    | _those_that_exist(torch, "is_floating_point is_complex is_conj is_neg numel is_tensor is_same_size get_device")
)  # fmt: skip
# These accesses are answered by the memory that a parameter has while it is there.
OF_SHAPE = _those_that_exist(_Tensor, "stride is_contiguous storage_offset is_set_to dim_order is_non_overlapping_and_dense")
# These accesses give memory to which one can write without changing the parameter's version.
EXPOSE = _access("data", "get") | _those_that_exist(
    _Tensor, "data_ptr numpy __array__ untyped_storage storage _typed_storage __dlpack__")  # fmt: skip
OTHER_MEMORY = {"set_", "resize_", "resize_as_", "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_",
                "as_strided_", "share_memory_", "detach_", "rename_", "swap_tensors", "pin_memory_"}  # fmt: skip
CHANGES_REQUIRES_GRAD = (_Tensor.requires_grad_, _Tensor.requires_grad.__set__)


def owner_of(tensor):
    """(the Offload, the parameter's number), or None."""
    found = tensor.__dict__.get("_strata") if isinstance(tensor, torch.Tensor) else None
    if found is None:
        return None
    owner = found[0]()
    return None if owner is None else (owner, found[1])


def flat(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from flat(value)
        elif isinstance(value, dict):
            yield from flat(value.values())


def parameters_in(args, kwargs):
    """Returns, for each Offload, the numbers of its parameters among the arguments."""
    found = {}
    for tensor in flat((args, kwargs)) if kwargs else flat(args):
        place = owner_of(tensor)
        if place is not None:
            found.setdefault(place[0], []).append(place[1])
    return found


def _plainly(function, args, kwargs):
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **kwargs)


def use(function, args, kwargs, find=parameters_in):
    """Calls a function with arguments among which there are parameters, which `find` finds."""
    if function in NO_VALUES:
        return _plainly(function, args, kwargs)
    if function is torch.autograd.grad:
        return _grad(*args, **kwargs)
    found = find(args, kwargs)
    if not found:
        return _plainly(function, args, kwargs)
    ((owner, (index, *_)), *_) = found.items()
    if function in OF_SHAPE:
        return _plainly(function, (owner.parking[index].home, *args[1:]), kwargs)
    if function in CHANGES_REQUIRES_GRAD:
        owner.check_thawing(index, args[1] if len(args) > 1 else kwargs.get("requires_grad", True))
        result = _plainly(function, args, kwargs)
        owner.parking[index].count_users()
        return result
    if function is _Tensor.detach and owner.saves_state():
        return owner.copy_of(index)
    if getattr(function, "__name__", "") in OTHER_MEMORY:
        raise UnsupportedError(f"{function.__name__} would give parameter '{owner.names[index]}', which is offloaded, another "
                               "memory; change a model before it is offloaded")  # fmt: skip
    return _use_values(function, args, kwargs, found)


def _grad(outputs, inputs, *args, **kwargs):
    """torch.autograd.grad, with nodes of the graph in the places of parameters: backward uses others, which must be seen."""
    several = isinstance(inputs, (list, tuple))
    with torch.enable_grad():
        edges = [torch.autograd.graph.get_gradient_edge(tensor) if isinstance(tensor, SEEN) else tensor
                 for tensor in (inputs if several else [inputs])]  # fmt: skip
    if isinstance(outputs, SEEN) or any(isinstance(tensor, SEEN) for tensor in flat((outputs,))):
        return _plainly(torch.autograd.grad, (outputs, edges, *args), kwargs)
    return torch.autograd.grad(outputs, edges, *args, **kwargs)


def _use_values(function, args, kwargs, found):
    begun = []
    try:
        for owner, indices in found.items():
            owner.begin_use(indices)
            begun.append((owner, indices))
            if function in EXPOSE:
                owner.parking[indices[0]].is_exposed = True
        if function == _Tensor.data.__set__:
            return _set_data(found, args)
        with saving() as saved, torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **kwargs)
            saved.watch(flat((result,)))
        return _as_views(result)
    finally:
        for owner, indices in begun:
            owner.end_use(indices)


def _set_data(found, args):
    """param.data = tensor: its values become the parameter's."""
    param, given = args
    place = owner_of(param)
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        if place is None:  # another tensor gets the parameter's memory
            ((owner, (index, *_)), *_) = found.items()
            owner.parking[index].is_exposed = True
            param.data = given.data
            return
        owner, index = place
        parking = owner.parking[index]
        if given.dtype != parking.home.dtype or given.shape != parking.home.shape or given.device != parking.home.device:
            home = parking.home
            raise InvalidError(f"parameter '{parking.name}' was {home.dtype} {tuple(home.shape)} on {home.device} when it was "
                               f"offloaded, and is to be {given.dtype} {tuple(given.shape)} on {given.device}; change a model "
                               "before it is offloaded")  # fmt: skip
        parking.home.copy_(given.detach())
        parking.is_exposed = True


class OffloadedView(torch.Tensor):
    """A tensor with the memory of a parameter: a view, what detach() gives, or `.data`. What is done with it is seen, too."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.autograd.grad:
            return _grad(*args, **kwargs)
        if function in EXPOSE:
            _expose(args[0])
        with saving() as saved, torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **kwargs)
            saved.watch(flat((result,)))
        return _as_views(result)

    def __reduce_ex__(self, protocol):
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        return copy.deepcopy(_plainly(torch.Tensor.as_subclass, (self, torch.Tensor), {}), memo)


def _expose(tensor):
    """Notes that somebody gets memory to which one can write without changing the version."""
    owner, index = place_of(tensor)
    if owner is not None:
        owner.parking[index].is_exposed = True


def _as_views(result):
    """What has the memory of parameters is such as strata sees, too."""
    for tensor in flat((result,)):
        if type(tensor) is torch.Tensor and place_of(tensor)[0] is not None:
            tensor.__class__ = OffloadedView
    return result


class OffloadedParameter(torch.nn.Parameter):
    """A parameter whose memory is an Offload's."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return use(function, args, kwargs or {})

    def __deepcopy__(self, memo):
        made = memo[id(self)] = self._copy()
        return made

    def __reduce_ex__(self, protocol):
        return self._copy().__reduce_ex__(protocol)

    def _copy(self):
        owner, index = owner_of(self)
        return torch.nn.Parameter(owner.copy_of(index), requires_grad=self.requires_grad)


SEEN = (OffloadedParameter, OffloadedView)
