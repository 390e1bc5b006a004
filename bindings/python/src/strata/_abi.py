"""strata.h by ctypes: its structs, enumerations and functions, and nothing more."""

import ctypes
import importlib.util
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from .errors import error

ABI_VERSION = 1
UNLIMITED = 2**64 - 1

STATUSES = ("ok", "invalid", "not_found", "does_not_fit", "out_of_memory", "io_error", "no_space", "corrupt",
            "unsupported", "cancelled", "timeout", "diverged", "lost_peer", "internal", "closed")  # fmt: skip
DTYPES = ("f32", "bf16", "f16")
OPTIMIZERS = ("adamw", "adam", "lion", "lamb", "adagrad", "sgd")
STATE_FORMATS = ("f32", "bf16", "int8")
PLACEMENTS = ("auto", "pinned", "nvme")
STATES = ("param", "m", "v")
HOLDS = ("states", "params")
DS_VERDICTS = ("taken", "auto", "meaningless", "refused", "unknown")


class Struct(ctypes.Structure):
    """Has its size in the first field."""

    def __init__(self, *args, **fields):
        super().__init__(*args, **fields)
        self.struct_size = ctypes.sizeof(self)


class SessionOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("optimizer", c_int32), ("has_momentum", c_int32), ("states", c_int32),
                ("placement", c_int32), ("pinned_bytes", c_uint64), ("nvme_bytes", c_uint64),
                ("nvme_dirs", POINTER(c_char_p)), ("n_nvme_dirs", c_size_t), ("chunk_elems", c_int64),
                ("threads", c_int32), ("rank", c_int32), ("ranks", c_int32), ("holds", c_int32),
                ("rounding_seed", c_uint64)]  # fmt: skip


class Param(Struct):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("dtype", c_int32), ("n_dims", c_int32),
                ("dims", POINTER(c_int64)), ("is_frozen", c_int32), ("reserved", c_int32)]  # fmt: skip


class Plan(Struct):
    _fields_ = [("struct_size", c_size_t), ("pinned_bytes", c_uint64), ("nvme_bytes", c_uint64), ("n_params", c_int64),
                ("n_chunks", c_int64), ("chunk_elems", c_int64)]  # fmt: skip


class Settings(Struct):
    _fields_ = [("struct_size", c_size_t), ("lr", c_double), ("beta1", c_double), ("beta2", c_double),
                ("eps", c_double), ("weight_decay", c_double), ("momentum", c_double), ("nesterov", c_int32),
                ("reserved", c_int32), ("grad_factor", c_double)]  # fmt: skip


class Update(Struct):
    _fields_ = [("struct_size", c_size_t), ("param", c_int64), ("values", c_void_p), ("gradient", c_void_p),
                ("gradient_dtype", c_int32), ("reserved", c_int32), ("settings", POINTER(Settings))]  # fmt: skip


class Piece(Struct):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("param", c_int64), ("offset", c_int64), ("n", c_int64),
                ("n_elems", c_int64)]  # fmt: skip


class Stats(Struct):
    _fields_ = [("struct_size", c_size_t), ("pinned_bytes", c_uint64), ("nvme_bytes", c_uint64),
                ("peak_pinned_bytes", c_uint64), ("peak_nvme_bytes", c_uint64), ("nvme_read_bytes", c_uint64),
                ("nvme_written_bytes", c_uint64), ("nvme_read_seconds", c_double),
                ("nvme_write_seconds", c_double)]  # fmt: skip


class Arrays(Struct):
    _fields_ = [("struct_size", c_size_t), ("n", c_int64), ("dtype", c_int32), ("gradient_dtype", c_int32),
                ("param", c_void_p), ("master", c_void_p), ("m", c_void_p), ("v", c_void_p),
                ("gradient", c_void_p)]  # fmt: skip


class Tensor(Struct):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("dtype", c_int32), ("n_dims", c_int32),
                ("dims", POINTER(c_int64)), ("n_elems", c_int64), ("is_read_only", c_int32),
                ("reserved", c_int32)]  # fmt: skip


class DsRow(Struct):
    _fields_ = [("struct_size", c_size_t), ("key", c_char_p), ("value", c_char_p), ("verdict", c_int32),
                ("is_default", c_int32), ("strata_key", c_char_p), ("strata_value", c_char_p),
                ("reason", c_char_p)]  # fmt: skip


class ActivationOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("pinned_bytes", c_uint64), ("nvme_bytes", c_uint64),
                ("nvme_dirs", POINTER(c_char_p)), ("n_nvme_dirs", c_size_t), ("page_bytes", c_uint64)]  # fmt: skip


class ActivationStats(Struct):
    _fields_ = [("struct_size", c_size_t), ("n_activations", c_uint64), ("activation_bytes", c_uint64),
                ("pinned_bytes", c_uint64), ("nvme_bytes", c_uint64), ("peak_pinned_bytes", c_uint64),
                ("peak_nvme_bytes", c_uint64), ("n_gets", c_uint64), ("n_late_gets", c_uint64),
                ("nvme_read_bytes", c_uint64), ("nvme_written_bytes", c_uint64), ("nvme_read_seconds", c_double),
                ("nvme_write_seconds", c_double)]  # fmt: skip


PieceFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(Piece), c_void_p)
DsRowFunction = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(DsRow))

# Functions that return a status: (arguments). The others: (result, arguments).
FUNCTIONS = {
    "strata_session_create": (POINTER(SessionOptions), POINTER(c_uint64)),
    "strata_session_add": (c_uint64, POINTER(Param)),
    "strata_session_rename": (c_uint64, POINTER(c_char_p), c_size_t),
    "strata_session_plan": (c_uint64, POINTER(Plan)),
    "strata_session_seal": (c_uint64, POINTER(c_void_p), c_size_t),
    "strata_session_step": (c_uint64, POINTER(Update), c_size_t),
    "strata_session_read": (c_uint64, POINTER(c_int64), POINTER(c_void_p), c_size_t),
    "strata_session_write": (c_uint64, POINTER(c_int64), POINTER(c_void_p), c_size_t),
    "strata_session_prefetch": (c_uint64, POINTER(c_int64), c_size_t),
    "strata_session_accumulate": (c_uint64, c_int64, c_void_p, c_int32, POINTER(c_double)),
    "strata_session_gradient": (c_uint64, c_int64, POINTER(c_void_p)),
    "strata_session_norm": (c_uint64, POINTER(c_double)),
    "strata_session_discard": (c_uint64, POINTER(c_int64), c_size_t),
    "strata_session_bind": (c_uint64, POINTER(c_void_p), c_size_t),
    "strata_session_visit": (c_uint64, c_int32, PieceFunction, c_void_p),
    "strata_session_fill": (c_uint64, c_int32, PieceFunction, c_void_p),
    "strata_session_steps": (c_uint64, POINTER(c_int64), POINTER(c_int64), c_size_t),
    "strata_session_set_steps": (c_uint64, c_int64, POINTER(c_int64), c_size_t),
    "strata_session_save": (c_uint64, c_char_p, c_int32),
    "strata_session_load": (c_uint64, c_char_p),
    "strata_session_stats": (c_uint64, POINTER(Stats)),
    "strata_session_notes": (c_uint64, c_char_p, c_size_t, POINTER(c_size_t)),
    "strata_session_close": (c_uint64,),
    "strata_activations_create": (POINTER(ActivationOptions), POINTER(c_uint64)),
    "strata_activations_put": (c_uint64, c_void_p, c_uint64, POINTER(c_uint64)),
    "strata_activations_get": (c_uint64, c_uint64, c_void_p, c_uint64),
    "strata_activations_prefetch": (c_uint64, c_uint64),
    "strata_activations_discard": (c_uint64, c_uint64),
    "strata_activations_stats": (c_uint64, POINTER(ActivationStats)),
    "strata_activations_close": (c_uint64,),
    "strata_tensor_from_dlpack": (c_void_p, c_int32, POINTER(Tensor)),
    "strata_ds_config_convert": (c_char_p, DsRowFunction, c_void_p),
    "strata_arrays_init": (POINTER(Arrays), c_int32),
    "strata_arrays_update": (POINTER(Arrays), c_int32, POINTER(Settings), c_int64),
}
TEXT_FUNCTIONS = {
    "strata_version": (c_char_p, ()),
    "strata_abi_version": (c_uint32, ()),
    "strata_status_name": (c_char_p, (c_int32,)),
    "strata_last_error": (c_char_p, ()),
}

_library = None


def library_path():
    """The file that STRATA_LIBRARY names, the library of the package strata-cuda, or the one in this package."""
    if path := os.environ.get("STRATA_LIBRARY"):
        return path
    if cuda := importlib.util.find_spec("strata_cuda"):
        path = pathlib.Path(cuda.submodule_search_locations[0]) / "libstrata_cuda.so"
        if path.exists():
            return str(path)
    return str(pathlib.Path(__file__).parent / "libstrata.so")


def load():
    """The library at library_path()."""
    global _library
    if _library is None:
        path = library_path()
        loaded = ctypes.CDLL(path)
        for name, arguments in FUNCTIONS.items():
            getattr(loaded, name).restype = c_int32
            getattr(loaded, name).argtypes = arguments
        for name, (result, arguments) in TEXT_FUNCTIONS.items():
            getattr(loaded, name).restype = result
            getattr(loaded, name).argtypes = arguments
        if loaded.strata_abi_version() < ABI_VERSION:
            raise ImportError(f"{path} has version {loaded.strata_abi_version()} of the interface; "
                              f"this package needs {ABI_VERSION}")  # fmt: skip
        _library = loaded
    return _library


def check(status):
    """Raises the error of a call that has failed."""
    if status != 0:
        text = load().strata_last_error().decode(errors="replace")
        raise error(load().strata_status_name(status).decode(), text)
