"""Which parameters are here, within a budget, whoever uses them."""

import contextlib
import threading

import torch

from .. import _device
from ..errors import DoesNotFitError
from ._order import UseOrder
from ._saved import STORAGES


class Presence:
    """A part of Offload: parameters come and go. Any thread may use them.

    A use is of one function, during which its parameters are pinned. A unit is in use while its module computes; its
    parameters go only if there is no other room. Memory that somebody else has, such as a view or a graph, stays."""

    def _init_presence(self, units, n_params):
        self._lock = threading.RLock()
        self._unpinned = threading.Condition(self._lock)
        self._units, self.parking = units, []
        self._units_of = [[u for u, unit in enumerate(units) if i in unit] for i in range(n_params)]
        self._pins = [0] * n_params
        self._threads = {}  # that pin something: how much
        self._waiting = set()
        self._in_use, self._here, self._stale = {}, {}, set()  # units; parameters, in order of use; of the step before
        self._order, self._staging = UseOrder(), {}  # the staging memory of each device: for parameters that come to a GPU
        self._last_unit = None
        self._device_now = self.peak_device_bytes = 0

    def _check_device(self, parking):
        """Raises if the parameters of a module do not fit together."""
        if self.device_bytes is None:
            return
        largest = max(self._units, key=lambda unit: sum(parking[i].bytes for i in unit), default=[])
        needed = sum(parking[i].bytes for i in largest)
        if needed > self.device_bytes:
            raise DoesNotFitError(f"device is {self.device_bytes} bytes; {', '.join(self.names[i] for i in largest)} are needed "
                                  f"together: {needed} bytes")  # fmt: skip

    def take_over(self):
        """All parameters are here, and the session has their values: they leave."""
        for index, parking in enumerate(self.parking):
            if parking.home.device != parking.param.device or not parking.is_held():
                self._free(index)
            else:  # somebody has its memory
                parking.is_exposed = parking.has_alias()
                parking.agrees()
                self._here[index] = True
                self._device_now += parking.bytes
        self.peak_device_bytes = self._device_now

    # ---- uses ----

    def begin_unit(self, unit):
        """The module of a unit begins to compute: its parameters come together, as far as there is room."""
        if unit is None:
            return
        with self._lock:
            self._use_unit(unit)
            self._in_use[unit] = self._in_use.get(unit, 0) + 1
            self._bring(self._units[unit], together=not self._session.is_dry)  # a plan does not see all that backward does

    def end_unit(self, unit):
        with self._lock:
            left = self._in_use.get(unit, 0) - 1
            if left > 0:
                self._in_use[unit] = left
            else:
                self._in_use.pop(unit, None)

    def begin_use(self, indices):
        """Pins parameters for a function that uses them. If there is no room, waits for other threads."""
        with self._lock:
            self.session()
            self._bring(indices)
            me = threading.get_ident()
            for index in indices:
                self._pins[index] += 1
            self._threads[me] = self._threads.get(me, 0) + len(indices)

    def end_use(self, indices):
        with self._lock:
            me = threading.get_ident()
            for index in indices:
                self._pins[index] -= 1
            self._threads[me] -= len(indices)
            if self._threads[me] == 0:
                del self._threads[me]
            self._unpinned.notify_all()

    def may_restore(self, index, tensor):
        parking = self.parking[index]
        return parking.is_here and tensor.dtype == parking.home.dtype and not tensor.is_neg()

    def restore(self, saved):
        """Returns the values of a parameter that a graph saved and backward needs."""
        with self._lock:
            index, parking = saved.index, self.parking[saved.index]
            if parking.raw_version() != saved.version:
                raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace "
                                   f"operation: parameter '{self.names[index]}' is at version {parking.raw_version()}; "
                                   f"expected version {saved.version} instead")  # fmt: skip
            unit = self._units_of[index][0] if self._units_of[index] else None
            if unit is not None and unit != self._last_unit:
                self._use_unit(unit)
            self._bring([index])
            with self._as_itself():
                return parking.home.as_strided(*saved.geometry)

    def _use_unit(self, unit):
        self._last_unit = unit
        self._order.use(unit)
        coming = {i for later in self._order.next_units(self.prefetch) for i in self._units[later]
                  if not self.parking[i].is_here or i in self._stale}  # fmt: skip
        if coming:
            self._session.prefetch(sorted(coming))

    # ---- coming ----

    def _bring(self, indices, together=False):
        """Makes parameters be here, with the session's values. `together`: if there is no room, they may come later."""
        wanted = dict.fromkeys(indices)
        while True:
            missing = [i for i in wanted if not self.parking[i].is_here or i in self._stale]
            absent = [i for i in missing if not self.parking[i].is_here]
            if not missing or self._make_room(wanted, sum(self.parking[i].bytes for i in absent)):
                break
            if together:
                return
            self._wait_for_others(wanted)  # they may bring, or free, some of these
        for index in wanted:
            if self._here.pop(index, None):
                self._here[index] = True  # the last one used
        if missing:
            self._fetch(missing, absent)

    def _fetch(self, missing, absent):
        with self._as_itself():
            for index in absent:
                self.parking[index].allocate()
                self._device_now += self.parking[index].bytes
                self._here[index] = True
            self.peak_device_bytes = max(self.peak_device_bytes, self._device_now)
            try:
                self._read(missing)
            except BaseException:
                for index in absent:
                    self._park(index)
                raise
            for index in missing:
                self.parking[index].show()
                self.parking[index].agrees()
            self._stale.difference_update(missing)

    @staticmethod
    @contextlib.contextmanager
    def _as_itself():
        """Whatever mode or transform is on, what runs inside is done to the parameters themselves."""
        with torch._C.DisableTorchFunction(), torch._C._DisableFuncTorch(), torch.inference_mode(False), torch.no_grad():
            yield

    def _read(self, missing):
        """Copies parameters from the session to where they are here."""
        homes = [self.parking[i].home for i in missing]
        if self._session.is_dry or _device.is_host(homes[0]):
            self._session.read(missing, [self.parking[i].address_of(home) for i, home in zip(missing, homes)])
            return
        staging = self._staging.setdefault(homes[0].device, _device.Staging(homes[0].device))
        sizes = [-(-self.parking[i].bytes // 64) * 64 for i in missing]  # each begins at an address for any dtype
        parts = [part[: self.parking[i].bytes] for i, part in zip(missing, staging.take(sum(sizes)).split(sizes))]
        self._session.read(missing, [part.data_ptr() for part in parts])
        for part, home in zip(parts, homes):
            _device.copy(home, _device.as_tensor(part, home))
        staging.queued()

    # ---- leaving ----

    def _make_room(self, wanted, needed):
        """Frees others until there is room; false if there is not enough."""
        if self.device_bytes is None:
            return True
        missing, leaving = self._device_now + needed - self.device_bytes, []
        for index in self._least_wanted_first(wanted) if missing > 0 else ():
            if self.parking[index].is_held():
                continue
            leaving.append(index)
            missing -= self.parking[index].bytes
            if missing <= 0:
                break
        self.sync(leaving)
        for index in leaving:
            self._park(index)
        return missing <= 0

    def _least_wanted_first(self, wanted):
        """The parameters that may leave: first those whose units are used last from here on, at the end those in use."""
        idle, in_use = [], []
        for index in self._here:
            if index not in wanted and self._pins[index] == 0:
                is_idle = not any(unit in self._in_use for unit in self._units_of[index])
                (idle if is_idle else in_use).append(index)
        first_units = {index: self._units_of[index][0] if self._units_of[index] else -1 for index in idle}
        distances = {unit: self._order.distance(unit) for unit in first_units.values()}
        return sorted(idle, key=lambda index: -distances[first_units[index]]) + in_use

    def _wait_for_others(self, wanted):
        """Waits until another thread unpins something; raises if none will."""
        me = threading.get_ident()
        if not any(thread != me and thread not in self._waiting for thread in self._threads):
            held = next((f", such as '{self.names[i]}'" for i in self._here if i not in wanted), "")
            first, needed = next(iter(wanted)), sum(self.parking[i].bytes for i in wanted)
            raise DoesNotFitError(f"device is {self.device_bytes} bytes, of which {self._device_now} are in use by views, graphs or "
                                  f"functions that have parameters{held}; '{self.names[first]}' and what is used with it need "
                                  f"{needed} bytes")  # fmt: skip
        self._waiting.add(me)
        try:
            self._unpinned.wait()
        finally:
            self._waiting.discard(me)

    def _park(self, index):
        self._free(index)
        del self._here[index]
        self._device_now -= self.parking[index].bytes

    def _free(self, index):
        parking = self.parking[index]
        with self._as_itself():
            before = parking.storage
            parking.park()
            if parking.storage is not before:
                del STORAGES[before._cdata]
                STORAGES[parking.storage._cdata] = (self._me, index)

    # ---- writes ----

    def sync(self, indices=None):
        """Gives the session what was written to parameters since they agreed with it."""
        if self._session is None:
            return
        with self._lock:
            indices = list(self._here) if indices is None else indices
            written = [i for i in indices if self.parking[i].is_written() and i not in self._stale]
            if not written:
                return
            sources = [_device.on_host(self.parking[i].home) for i in written]
            self._session.write(written, [source.data_ptr() for source in sources])
            for index in written:
                self.parking[index].agrees()

    def all_changed(self):
        """The session's parameters are others now. Memory that somebody else has follows at once."""
        with self._lock:
            self._stale = set(self._here)
            for index in self._here:
                self.parking[index].version = self.parking[index].raw_version()
            held = [index for index in self._here if self.parking[index].is_held()]
            if held:
                self._bring(held)
