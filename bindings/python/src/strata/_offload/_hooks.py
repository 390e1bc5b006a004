"""Hooks of modules that are offloaded. A copy of a module, also one that was saved, has nothing to do with strata."""


class Nothing:
    """Takes the place of a hook in a copy of its module."""

    def __call__(self, *_):
        return None


class Hook:
    """Calls a method of an Offload with the number of a unit."""

    def __init__(self, method, unit=None):
        self._method, self._unit = method, unit

    def __call__(self, *_):
        self._method(self._unit)

    def __reduce__(self):
        return Nothing, ()
