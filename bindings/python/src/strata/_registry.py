"""Which parameters belong to a model of strata.offload(), whose own modules need a later torch than strata.optim."""

import weakref

offloads = weakref.WeakValueDictionary()  # keyed by id of a parameter, as long as its model lives
optimizers = weakref.WeakSet()


def offload_of(param):
    """The Offload that has the parameter, or None."""
    found = offloads.get(id(param))
    return found if found is not None and found.index_of(param) is not None else None


def optimizers_of(params):
    """The optimizers of strata.optim that have one of the parameters."""
    wanted = {id(param) for param in params}
    return [of for of in list(optimizers) if any(id(p) in wanted for group in of.param_groups for p in group["params"])]
