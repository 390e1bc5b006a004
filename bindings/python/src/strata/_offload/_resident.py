"""A model of which nothing leaves, since PyTorch may hold all of it: only the optimizer's states are in a session."""

import contextlib
import weakref

from .._registry import offloads
from .._session import Session
from ..errors import UnsupportedError
from ..optim._tensors import DTYPES


class Resident:
    """What strata.offload() makes of a model whose `device` has no limit. It has no part in the model's computation."""

    leaves = False

    def __init__(self, model, options):
        self._options = {key: value for key, value in options.items() if value is not None}
        self._model, self._optimizer = weakref.ref(model), None
        self.params = list(model.parameters())
        self._index = {id(param): index for index, param in enumerate(self.params)}
        self.peak_device_bytes = 0
        for param in self.params:
            offloads[id(param)] = self

    def index_of(self, param):
        index = self._index.get(id(param))
        return index if index is not None and self.params[index] is param else None

    def join(self, optimizer):
        """An optimizer of this model, which makes a session with these options for its states."""
        if self._optimizer is not None and self._optimizer() not in (None, optimizer):
            raise UnsupportedError("a model that is offloaded can have one optimizer")
        self._optimizer = weakref.ref(optimizer)
        optimizer.use_options(self._options)

    def check_group(self, params):
        pass

    def make_session(self):
        """A session with the states of what is trained, not sealed; None if nothing is."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        if optimizer is None:
            return None
        name, momentum, options = optimizer.session_options()
        session = Session(name, momentum=momentum, **options)
        of_optimizer = {id(param) for group in optimizer.param_groups for param in group["params"]}
        for own, param in self._model().named_parameters():
            if id(param) in of_optimizer and param.requires_grad:
                session.add(own, DTYPES[param.dtype], list(param.shape))
        return session

    def stats(self):
        """Counters of the session of the states, and bytes of the parameters."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        of_states = optimizer.sealed().session.stats() if optimizer is not None else {}
        return {**of_states, "peak_device_bytes": self._device_bytes(), "misses": 0}

    def _device_bytes(self):
        return sum(param.numel() * param.element_size() for param in self.params)

    # ---- without data ----

    def home_of(self, tensor):
        return tensor

    @contextlib.contextmanager
    def dry(self, params, make_parking, session):
        """Runs as it is."""
        self.peak_device_bytes = self._device_bytes()
        yield

    def end_dry_step(self):
        return 0

    def __deepcopy__(self, _):
        raise UnsupportedError(
            "a model that is offloaded cannot be copied; build another one and load its state_dict()"
        )

    __reduce_ex__ = __deepcopy__
