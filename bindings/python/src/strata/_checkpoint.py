"""Checkpoints of the form that the strata command reads and writes."""

import os

from .errors import InvalidError, UnsupportedError


def save_checkpoint(model, optimizer, folder, keep=0):
    """Writes `folder`/step-N: f32 masters and moments of what `optimizer`, one of strata.optim, trains, under the
    names that the parameters have in `model`. Other checkpoints in `folder` stay, of which the oldest beyond `keep`
    are then removed (0: none). Settings such as lr are not part of it. Returns the path.

    Of a Hugging Face model the command goes on from it: `strata train --init DIR model.states=PATH`, where DIR is what
    model.save_pretrained() wrote."""
    sealed = _sealed_by_name(model, optimizer)
    sealed.session.save(folder, keep)
    return os.path.join(os.fspath(folder), f"step-{sealed.session.steps()[0]:08}")


def load_checkpoint(model, optimizer, folder):
    """Reads such a checkpoint (the path that save_checkpoint() returned, or what `strata export --states` wrote) into
    model and optimizer: parameters, states and step counts. Errors: those of strata.Session.load()."""
    sealed = _sealed_by_name(model, optimizer)
    sealed.before_load()
    sealed.session.load(folder)
    sealed.after_load()


def _sealed_by_name(model, optimizer):
    """The session of all that the optimizer trains, with the model's names."""
    from .optim._optimizer import Optimizer

    while not isinstance(optimizer, Optimizer):  # Accelerate's, for example
        inner = getattr(optimizer, "optimizer", None)
        if inner is None:
            raise InvalidError(f"the optimizer is {type(optimizer).__name__}, which is not one of strata.optim")
        optimizer = inner
    sealed = optimizer.sealed()
    name_of = {id(param): name for name, param in model.named_parameters()}
    missing = [name for param, name in zip(sealed.params, sealed.names) if id(param) not in name_of]
    if missing:
        raise InvalidError(f"{len(missing)} parameters of the optimizer are not the model's, the first is {missing[0]}")
    for param, like in zip(sealed.params, sealed.likes):
        if not like.is_contiguous():
            raise UnsupportedError(f"parameter '{name_of[id(param)]}' has the strides {like.stride()}; "
                                   "a checkpoint needs contiguous parameters")  # fmt: skip
    sealed.names = [name_of[id(param)] for param in sealed.params]
    sealed.session.rename(sealed.names)
    sealed.bind()
    return sealed
