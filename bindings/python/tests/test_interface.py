"""_abi.py says what strata.h says."""

import ctypes
import pathlib
import re
import unittest

from strata import _abi

HEADER = (pathlib.Path(__file__).parents[3] / "capi/include/strata.h").read_text()
TEXT = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
STRUCTS = {"strata_tensor": _abi.Tensor, "strata_session_options": _abi.SessionOptions, "strata_param": _abi.Param, "strata_plan": _abi.Plan,
           "strata_settings": _abi.Settings, "strata_update": _abi.Update, "strata_piece": _abi.Piece,
           "strata_stats": _abi.Stats, "strata_arrays": _abi.Arrays,
           "strata_activation_options": _abi.ActivationOptions, "strata_activation_stats": _abi.ActivationStats,
           "strata_ds_row": _abi.DsRow}  # fmt: skip
ENUMS = {"strata_status": _abi.STATUSES, "strata_dtype": _abi.DTYPES, "strata_optimizer": _abi.OPTIMIZERS,
         "strata_state_format": _abi.STATE_FORMATS, "strata_placement": _abi.PLACEMENTS, "strata_state": _abi.STATES,
         "strata_holds": _abi.HOLDS, "strata_ds_verdict": _abi.DS_VERDICTS}  # fmt: skip
TYPES = {"size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
         "double": ctypes.c_double, **dict.fromkeys(ENUMS, ctypes.c_int32)}  # fmt: skip


def fields_of(body):
    """[(name, type)] of the declarations in a struct; None for the type of a pointer."""
    found = []
    for line in filter(str.strip, body.split(";")):
        kind, first = re.match(r"\s*(?:const )?(\w+)(.*)", line, re.DOTALL).groups()
        for declarator in first.split(","):
            found.append((re.search(r"(\w+)\s*$", declarator)[1], None if "*" in declarator else TYPES[kind]))
    return found


class InterfaceTest(unittest.TestCase):
    def test_structs_have_the_same_fields(self):
        found = dict((name, body) for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", TEXT, re.DOTALL))
        self.assertEqual(set(found), set(STRUCTS))
        for name, body in found.items():
            expected = fields_of(body)
            self.assertEqual([field for field, _ in STRUCTS[name]._fields_], [field for field, _ in expected], name)
            for (field, kind), (_, wanted) in zip(STRUCTS[name]._fields_, expected):
                self.assertEqual(ctypes.sizeof(kind), ctypes.sizeof(wanted or ctypes.c_void_p), f"{name}.{field}")
                if wanted is not None:
                    self.assertIs(kind, wanted, f"{name}.{field}")

    def test_functions_are_all_there(self):
        found = dict(
            re.findall(
                r"^(?:strata_status|const char\*|uint32_t) (strata_\w+)\((.*?)\);", TEXT, re.MULTILINE | re.DOTALL
            )
        )
        ours = {**_abi.FUNCTIONS, **{name: arguments for name, (_, arguments) in _abi.TEXT_FUNCTIONS.items()}}
        self.assertEqual(set(found), set(ours))
        for name, arguments in found.items():
            self.assertEqual(0 if arguments == "void" else arguments.count(",") + 1, len(ours[name]), name)

    def test_enumerations_have_the_same_number_of_values(self):
        found = dict(re.findall(r"typedef int32_t (\w+);\s*enum \{(.*?)\};", TEXT, re.DOTALL))
        self.assertEqual(set(found), set(ENUMS))
        for name, body in found.items():
            self.assertEqual(
                [int(value) for value in re.findall(r"= (\d+)", body)], list(range(len(ENUMS[name]))), name
            )

    def test_the_library_has_the_version_of_this_package(self):
        self.assertEqual(_abi.load().strata_abi_version(), _abi.ABI_VERSION)
        self.assertIn(f"#define STRATA_ABI_VERSION {_abi.ABI_VERSION}\n", HEADER)


if __name__ == "__main__":
    unittest.main()
