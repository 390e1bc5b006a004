"""Tensors of any library that exports them by DLPack: NumPy, JAX, PyTorch, and others."""

import ctypes
import operator

from . import _abi
from .errors import InvalidError, StrataError, UnsupportedError, error


def _of_capsule(name, result):
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, (ctypes.py_object,)
    return function


_name_of = _of_capsule("PyCapsule_GetName", ctypes.c_char_p)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class HostTensor:
    """Where a tensor's values are, in memory of the host; it keeps them alive. An address has no dtype or shape."""

    def __init__(self, given, what, writes=False):
        self.dtype = self.shape = self._capsule = None
        if hasattr(given, "__index__") and not hasattr(given, "__dlpack__"):
            self.address = operator.index(given)
            return
        if not hasattr(given, "__dlpack__"):
            raise InvalidError(f"{what} is {type(given).__name__}, which is neither an address nor a DLPack tensor")
        try:
            self._capsule = given.__dlpack__(max_version=(1, 0))
        except TypeError:  # it knows no versions
            self._capsule = given.__dlpack__()
        name = _name_of(self._capsule)
        tensor = _abi.Tensor()
        self._describe(_pointer_of(self._capsule, name), name == b"dltensor_versioned", tensor, what)
        if writes and tensor.is_read_only:
            raise UnsupportedError(f"{what} is read-only")
        self.address, self.dtype = tensor.data, tensor.dtype
        self.shape = tuple(tensor.dims[i] for i in range(tensor.n_dims))

    @staticmethod
    def _describe(managed, is_versioned, tensor, what):
        try:
            _abi.check(_abi.load().strata_tensor_from_dlpack(managed, int(is_versioned), ctypes.byref(tensor)))
        except StrataError as failure:
            raise error(failure.status, f"{what}: {failure}") from None
