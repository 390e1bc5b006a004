"""Autograd saves numbers in the place of parameters, so that their memory can go until backward needs it."""

import weakref

import torch


def storage_of(tensor):
    """The key that two tensors that share memory have in common; None for those that have no storage."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


# The key is the address of a storage, the value a weak reference to the Offload and the parameter's number.
STORAGES = {}


def place_of(tensor):
    """(the Offload, the parameter's number) of the parameter whose memory a tensor has, or (None, None)."""
    place = STORAGES.get(storage_of(tensor))
    owner = place and place[0]()
    return (owner, place[1]) if owner is not None else (None, None)


class SavedParam:
    """A parameter, or a view of one, in a graph. The graph needs the Offload also if nobody else refers to it any more."""

    __slots__ = ("_owner", "_kept", "index", "version", "geometry", "dtype")

    def __init__(self, owner, index, tensor):
        self._owner, self._kept, self.index = weakref.ref(owner), owner, index
        self.version = owner.parking[index].raw_version()
        self.geometry, self.dtype = (tensor.size(), tensor.stride(), tensor.storage_offset()), tensor.dtype

    def get(self):
        owner = self._owner()
        try:
            return owner.restore(self)
        except BaseException:
            self._kept = None  # autograd loses the objects whose hook has raised: the model would never be freed
            raise


class SavedTensor:
    """Another tensor, as autograd would keep it: with the check that nobody has written to it since."""

    __slots__ = ("tensor", "unpack", "watched", "version")

    def __init__(self, tensor, hooks):
        self.version = tensor._version
        # A result that refers to its own graph would keep it alive if no backward comes; autograd gives what it unpacks
        # its place in the graph again.
        self.tensor, self.unpack = (tensor.detach(), None) if hooks is None else (hooks[0](tensor), hooks[1])
        self.watched = self.tensor if hooks is None else None  # as with these hooks alone

    def get(self):
        if self.watched is not None and self.watched._version != self.version:
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: "
                               f"[{self.tensor.type()} {list(self.tensor.shape)}] is at version {self.watched._version}; "
                               f"expected version {self.version} instead")  # fmt: skip
        return self.tensor if self.unpack is None else self.unpack(self.tensor)


class _Saving:
    """The hooks of one function: `with` it, and watch its results."""

    __slots__ = ("_hooks", "_is_on", "_made")

    def __enter__(self):
        self._made, self._is_on = [], False
        # torch.func's derivatives have no hooks: what they save stays here, since a graph that has it holds it.
        if not torch.is_grad_enabled() or not torch._C._autograd._saved_tensors_hooks_is_enabled():
            return self
        self._hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        # Checkpointing keeps nothing, and counts what is saved.
        if self._hooks is None or self._hooks[0].__module__ != "torch.utils.checkpoint":
            torch._C._autograd._push_saved_tensors_default_hooks(self._pack, _unpack)
            self._is_on = True
        return self

    def __exit__(self, *_):
        if self._is_on:
            torch._C._autograd._pop_saved_tensors_default_hooks()

    def _pack(self, tensor):
        owner, index = place_of(tensor)
        if owner is not None and owner.may_restore(index, tensor):
            return SavedParam(owner, index, tensor)
        made = SavedTensor(tensor, self._hooks)
        self._made.append(made)
        return made

    def watch(self, results):
        """Results that are saved are given to hooks without their version."""
        if not self._made:
            return
        by_storage = {}
        for result in results:
            by_storage.setdefault(storage_of(result), result)
        for made in self._made:
            if made.watched is not None:
                result = by_storage.get(storage_of(made.tensor))
                if result is not None:
                    made.watched, made.version = result.detach(), result._version


def _unpack(made):
    return made.get()


saving = _Saving
