"""Sessions without any tensor library."""

import array
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest

import strata
from strata import _abi

N = 1000


def address(values):
    return values.buffer_info()[0]


class Trainer:
    """One parameter in an array of floats."""

    def __init__(self, **options):
        self.weight = array.array("f", [1.0] * N)
        self.gradient = array.array("f", [0.5] * N)
        self.session = strata.Session(**{"pinned": "64MiB", **options})
        self.session.add("weight", "f32", [10, N // 10])
        self.session.seal([address(self.weight)])
        self.settings = _abi.Settings(lr=0.125, beta1=0.9, beta2=0.999, eps=1e-8, grad_factor=1)

    def step(self):
        update = _abi.Update(values=address(self.weight), gradient=address(self.gradient))
        update.settings = ctypes.pointer(self.settings)
        self.session.step((_abi.Update * 1)(update), 1)


class SessionTest(unittest.TestCase):
    def test_torch_is_not_imported(self):
        code = "import sys, strata; strata.Session(pinned='1MiB').close(); assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_a_step(self):
        trainer = Trainer()
        trainer.step()
        self.assertEqual(set(trainer.weight), {0.875})
        self.assertEqual(trainer.session.steps(), (1, [1]))
        self.assertEqual(trainer.session.stats()["peak_pinned_bytes"], trainer.session.plan()["pinned_bytes"])

    def test_states_can_be_read_and_written(self):
        trainer, other = Trainer(), Trainer()
        trainer.step()
        found = array.array("f", [0.0] * N)

        def read(param, offset, n, at):
            ctypes.memmove(address(found) + 4 * offset, at, 4 * n)

        trainer.session.visit("m", read)
        self.assertAlmostEqual(found[0], 0.05, 6)
        other.session.fill("m", lambda param, offset, n, at: ctypes.memmove(at, address(found) + 4 * offset, 4 * n))
        other.session.visit("m", read)
        self.assertAlmostEqual(found[N - 1], 0.05, 6)

    def test_an_exception_in_a_callback_arrives(self):
        trainer = Trainer()

        def fail(*_):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            trainer.session.visit("v", fail)
        trainer.step()

    def test_checkpoints(self):
        trainer, other = Trainer(), Trainer()
        with tempfile.TemporaryDirectory() as folder:
            trainer.step()
            trainer.session.save(folder)
            trainer.step()
            other.session.load(folder + "/step-00000001")
            other.step()
            self.assertEqual(other.weight, trainer.weight)
            with self.assertRaises(strata.errors.NotFoundError):
                other.session.load(folder + "/step-00000007")

    def test_errors_are_exceptions_that_name_the_problem(self):
        errors = strata.errors
        for options, kind, text in (
            ({"optimizer": "adan"}, ValueError, "'adan'"),
            ({"pinned": "8 bananas"}, ValueError, "8 bananas"),
            ({"pinned": -1}, ValueError, "-1"),
            ({"placement": "nvme"}, errors.InvalidError, "no folder in nvme_dirs"),
            ({"pinned": 4096}, MemoryError, "pinned"),
            ({"nvme": "/proc/strata", "placement": "nvme"}, OSError, "/proc/strata"),
        ):
            with self.assertRaises(kind, msg=str(options)) as caught:
                Trainer(**options)
            self.assertIsInstance(caught.exception, errors.StrataError)
            self.assertIn(text, str(caught.exception))

    def test_a_closed_session_says_so(self):
        trainer = Trainer()
        trainer.session.close()
        trainer.session.close()
        with self.assertRaises(strata.errors.ClosedError):
            trainer.step()

    def test_a_forked_child_is_refused_and_ends_cleanly(self):
        trainer = Trainer()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                trainer.step()
            except strata.errors.UnsupportedError:
                code = 0
            sys.stdout.flush()
            os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        trainer.step()

    def test_the_interpreter_may_end_in_any_order(self):
        code = """
import sys, strata
sys.path.insert(0, {tests!r})
import test_session
kept = [test_session.Trainer(placement='nvme', nvme={folder!r}) for _ in range(3)]
kept[0].step()
cycle = {{'trainer': kept[1]}}
cycle['self'] = cycle
del kept[0]
"""
        with tempfile.TemporaryDirectory() as folder:
            code = code.format(tests=os.path.dirname(os.path.abspath(__file__)), folder=folder)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
