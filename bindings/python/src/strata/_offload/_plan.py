"""A step of an offloaded model without data: what it needs of every tier, before anything is allocated."""

import contextlib

import torch

from ..errors import InvalidError
from ._param import flat, use
from ._parking import storage_users
from ._saved import place_of


class DryParking:
    """A parameter that has a size and no memory."""

    def __init__(self, param):
        self.param, self.home, self.is_here = param, param.detach(), False
        self.bytes = param.numel() * param.element_size()
        self.version, self.storage = 0, self.home.untyped_storage()
        self._users = storage_users(self.storage)

    def allocate(self):
        self.is_here = True

    def park(self):
        self.is_here = False

    def show(self):
        pass

    agrees = show

    def raw_version(self):
        return 0

    def is_held(self):
        return storage_users(self.storage) > self._users

    has_alias = is_held

    def is_written(self):
        return False

    def address_of(self, tensor):
        return 0


class DryUses(torch.overrides.TorchFunctionMode):
    """Sees what functions use parameters that are replaced, and views of them."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return use(function, args, kwargs or {}, parameters_by_memory)


def parameters_by_memory(args, kwargs):
    """Returns, for each Offload, the numbers of the parameters whose memory the arguments share."""
    found = {}
    for tensor in flat((args, kwargs)):
        owner, index = place_of(tensor)
        if owner is not None and owner.is_dry():
            found.setdefault(owner, []).append(index)
    return found


class DrySession:
    """Reads and takes over nothing."""

    is_dry = True

    def read(self, params, addresses):
        pass

    def write(self, params, addresses):
        pass

    def prefetch(self, params):
        pass

    def accumulate(self, param, address, dtype):
        return 0.0

    def discard(self, params=None):
        pass


class SavedBytes:
    """Storages that autograd saves for backward, without those of parameters."""

    def __init__(self, params):
        self._skipped = {id_of(param) for param in params}
        self._found = {}
        self.peak = 0

    def pack(self, tensor):
        if id_of(tensor) not in self._skipped:
            self._found[id_of(tensor)] = tensor.untyped_storage().nbytes()
            self.peak = max(self.peak, sum(self._found.values()))
        return tensor

    def clear(self):
        self._found.clear()


def id_of(tensor):
    return tensor.untyped_storage()._cdata


@contextlib.contextmanager
def replaced(model, fakes):
    """The model with other tensors in the places of its parameters and buffers."""
    places = [(of, key) for module in model.modules() for of in (module._parameters, module._buffers) for key in of]
    real = [of[key] for of, key in places]
    try:
        for (of, key), tensor in zip(places, real):
            if tensor is not None:
                of[key] = fakes[id(tensor)]
        yield
    finally:
        for (of, key), tensor in zip(places, real):
            of[key] = tensor


def call(model, batch):
    """The model's output for a batch: a dict of keywords, a tuple of arguments, or one argument."""
    if hasattr(batch, "keys"):
        return model(**batch)
    return model(*batch) if isinstance(batch, (list, tuple)) else model(batch)


def loss_of(output):
    loss = getattr(output, "loss", None)
    if loss is None:
        loss = output if isinstance(output, torch.Tensor) else output[0]
    return loss if loss.dim() == 0 else loss.float().sum()


def plan(model, batch, loss=None):
    """What two steps of `model`, which was given to strata.offload(), need with `batch`; nothing is computed.

    batch: a dict of keywords, a tuple of arguments, or one argument of the model; its values do not matter.
    loss: a function of the model's output; None: the output's `loss`, or the sum of its first tensor.

    Returns {"device_bytes": of parameters at a time, "saved_bytes": of activations for backward, "pinned_bytes",
    "nvme_bytes": of states and buffers, "modules": uses of modules in a step}. Errors: DoesNotFitError, with budgets that
    fit.
    """
    offload = getattr(model, "strata_offload", None)
    if offload is None:
        raise InvalidError("strata.plan needs a model that was given to strata.offload()")
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map

    session = offload.make_session()
    planned = {"pinned_bytes": 0, "nvme_bytes": 0}
    if session is not None:
        try:
            planned = session.plan()
        finally:
            session.close()
    mode = FakeTensorMode(allow_non_fake_inputs=True)  # a loss may have some
    fakes = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        fake = mode.from_tensor(offload.home_of(tensor))
        is_param = isinstance(tensor, torch.nn.Parameter)
        fakes[id(tensor)] = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad) if is_param else fake
    saved = SavedBytes(fakes.values())
    with (
        mode,
        replaced(model, fakes),
        offload.dry([fakes[id(param)] for param in offload.params], DryParking, DrySession()),
        DryUses(),
    ):
        given = tree_map(lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x, batch)
        for _ in range(2):
            with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
                output = call(model, given)
                torch.autograd.backward((loss or loss_of)(output))  # not the method, which would run without DryUses
            saved.clear()
            uses = offload.end_dry_step()
        device = offload.peak_device_bytes
    return {"device_bytes": device, "saved_bytes": saved.peak, "pinned_bytes": planned["pinned_bytes"],
            "nvme_bytes": planned["nvme_bytes"], "modules": uses}  # fmt: skip
