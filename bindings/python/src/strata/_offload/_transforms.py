"""torch.func's transforms wrap their inputs in C++, which asks no parameter: here each comes before it is wrapped.

It stays while a wrapper refers to it."""

from torch._functorch import eager_transforms, vmap

from ._param import SEEN, use


def _seen(wrap):
    def wrap_what_is_here(tensor, *args):
        return use(wrap, (tensor, *args), {}) if isinstance(tensor, SEEN) else wrap(tensor, *args)

    return wrap_what_is_here


for _module, _name in ((eager_transforms, "_wrap_for_grad"), (eager_transforms, "_wrap_functional_tensor"),
                       (vmap, "_add_batch_dim")):  # fmt: skip
    if hasattr(_module, _name):
        setattr(_module, _name, _seen(getattr(_module, _name)))
