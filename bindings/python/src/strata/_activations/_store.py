"""Activations of strata.h as an object; needs no tensor library."""

import collections
import ctypes
import weakref

from .. import _abi
from .._abi import check
from .._session import budget_of, paths_of
from .._sizes import to_bytes


class ActivationStore:
    """Bytes in RAM and on NVMe, by id. Any thread may use it. Errors are exceptions of strata.errors."""

    def __init__(self, pinned=None, nvme=None, nvme_bytes=None, page_bytes=None):
        lib = _abi.load()
        dirs = [] if nvme_bytes is not None and to_bytes(nvme_bytes, "nvme_bytes") == 0 else paths_of(nvme)
        dirs = [path.encode() for path in dirs]
        options = _abi.ActivationOptions()
        options.pinned_bytes = budget_of(pinned, "pinned")
        options.nvme_bytes = 0 if nvme_bytes is None else to_bytes(nvme_bytes, "nvme_bytes")
        options.page_bytes = 0 if page_bytes is None else to_bytes(page_bytes, "page_bytes")
        if dirs:
            options.nvme_dirs = (ctypes.c_char_p * len(dirs))(*dirs)
            options.n_nvme_dirs = len(dirs)
        handle = ctypes.c_uint64()
        check(lib.strata_activations_create(ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle.value
        self._dropped = collections.deque()
        self._put, self._get, self._discard = (
            lib.strata_activations_put,
            lib.strata_activations_get,
            lib.strata_activations_discard,
        )
        # Also when the interpreter ends. A forked child is refused, and its parent goes on.
        self._close = weakref.finalize(self, lib.strata_activations_close, self._handle)

    def put(self, address, n):
        """Copies `n` bytes and returns their id."""
        self._discard_dropped()
        made = ctypes.c_uint64()
        check(self._put(self._handle, address, n, ctypes.byref(made)))
        return made.value

    def get(self, which, address, n):
        """Copies the bytes of an id to `address`."""
        self._discard_dropped()
        check(self._get(self._handle, which, address, n))

    def discard(self, which):
        """Forgets an id, at the next call. An id that is not there, or a store that was closed, is no error.

        For destructors, which the collector may run between a call that fails and the call for the text of its error:
        any other call there would clear that text."""
        self._dropped.append(which)

    def _discard_dropped(self):
        while True:
            try:
                which = self._dropped.popleft()
            except IndexError:
                return
            self._discard(self._handle, which)

    def stats(self):
        """{"pinned_bytes", ...}: the fields of strata_activation_stats."""
        self._discard_dropped()
        stats = _abi.ActivationStats()
        check(_abi.load().strata_activations_stats(self._handle, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, _ in stats._fields_[1:]}

    def close(self):
        """Gives back memory and files. Calling it again does nothing."""
        self._close()
