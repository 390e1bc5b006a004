"""The batches of a run, computed without strata: the tokens of a packed file (text/README.md, "Token cache") in
the order in which `data.packing=stream` trains on them (text/README.md, "Datasets")."""
import array
import itertools
import pathlib
import struct

ROUNDS = 6  # rounds of the Feistel network
WORD = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011): four words of counter and two of key give four words."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & WORD, p0 >> 32 ^ c[3] ^ k1, p0 & WORD]
        k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
    return c


def permuted(i, n, seed, epoch):
    """Element i of a permutation of range(n): a Feistel network over the smallest even number of bits that holds
    n, repeated until its result is below n (text/src/data/permutation.h)."""
    half_bits = max(1, ((n - 1).bit_length() + 1) // 2)
    while True:
        left, right = i >> half_bits, i & (1 << half_bits) - 1
        for number in range(ROUNDS):
            mixed = philox((right, number, epoch & WORD, epoch >> 32), (seed & WORD, seed >> 32))[0]
            left, right = right, left ^ mixed & (1 << half_bits) - 1
        i = left << half_bits | right
        if i < n:
            return i


def packed_tokens(path):
    data = pathlib.Path(path).read_bytes()
    magic, version, width, n_tokens = struct.unpack_from("<8sIIQ", data)
    if (magic, version) != (b"STRATOK\n", 2):
        raise ValueError(f"{path} is no packed file of version 2: it begins with {data[:12]!r}")
    return array.array({2: "H", 4: "I"}[width], data[128 : 128 + width * n_tokens])


def rows(path, seq, seed):
    """Yields the samples of a run without end, each of seq + 1 tokens: the first `seq` are the inputs and the last
    `seq` the targets."""
    tokens = packed_tokens(path)
    n_windows = (len(tokens) - 1) // seq
    for k in itertools.count():
        first = permuted(k % n_windows, n_windows, seed, k // n_windows) * seq
        yield tokens[first : first + seq + 1]
