"""Sessions for trainers that compute with NumPy, by DLPack."""

import sys
import unittest

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)

import strata

LR = 0.125


def made(*shape, dtype=numpy.float32):
    return (numpy.arange(numpy.prod(shape)).reshape(shape) % 7).astype(dtype) / 8


class DlpackTest(unittest.TestCase):
    def setUp(self):
        self.values = [made(10, 20), made(7), made(3, dtype=numpy.float16)]
        self.gradients = [made(10, 20) + 1, None, made(3, dtype=numpy.float32) + 1]
        self.session = strata.Session(pinned="64MiB", threads=1)
        for i, value in enumerate(self.values):
            self.session.add_tensor(f"w{i}", value)
        self.session.seal(self.values)
        self.addCleanup(self.session.close)

    def test_a_step_updates_arrays_where_they_are(self):
        before = [value.copy() for value in self.values]
        self.session.update(self.values, self.gradients, lr=LR)
        numpy.testing.assert_allclose(self.values[0], before[0] - LR, atol=1e-6)
        numpy.testing.assert_array_equal(self.values[1], before[1])
        numpy.testing.assert_allclose(self.values[2], before[2] - LR, atol=1e-3)
        self.assertEqual(self.session.steps(), (1, [1, 0, 1]))

    def test_tensors_of_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        value, gradient = torch.ones(5, dtype=torch.bfloat16), torch.ones(5)
        session = strata.Session(pinned="64MiB", threads=1)
        session.add_tensor("w", value)
        session.seal([value])
        session.update([value], [gradient], lr=LR)
        self.assertEqual(value.tolist(), [1 - LR] * 5)
        session.close()

    def refuses(self, kind, text, values=None, gradients=None):
        with self.assertRaisesRegex(kind, text):
            self.session.update(values or self.values, gradients or self.gradients, lr=LR)

    def test_what_cannot_be_used_is_refused_by_name(self):
        other = list(self.values)
        other[0] = made(20, 10)
        self.refuses(ValueError, r"parameter 'w0' is f32 \(20, 10\); it was added as f32 \(10, 20\)", other)
        other[0] = made(20, 10).T
        self.refuses(NotImplementedError, "parameter 'w0': the DLPack tensor has stride", other)
        other[0] = made(10, 20, dtype=numpy.float64)
        self.refuses(NotImplementedError, "type code 2 with 64 bits", other)
        other[0] = made(10, 20, dtype=numpy.float16)
        self.refuses(ValueError, "parameter 'w0' is f16", other)
        other[0] = "text"
        self.refuses(ValueError, "parameter 'w0' is str, which is neither an address nor a DLPack tensor", other)
        gradients = list(self.gradients)
        gradients[2] = made(4)
        self.refuses(ValueError, r"the gradient of parameter 'w2' is f32 \(4,\)", None, gradients)
        self.refuses(ValueError, "3 values and 2 gradients for 3 parameters", None, gradients[:2])
        with self.assertRaisesRegex(ValueError, "'w3' is an address"):
            self.session.add_tensor("w3", 4096)
        read_only = made(10, 20)
        read_only.flags.writeable = False
        other[0] = read_only
        with self.assertRaises((strata.errors.StrataError, BufferError)):  # NumPy exports none before 2.1
            self.session.update(other, self.gradients, lr=LR)


if __name__ == "__main__":
    unittest.main()
