#!/usr/bin/env python3
"""The refresh of GaLore's basis as galore-torch has it, torch.linalg.svd of the whole gradient, beside
bench/subspace_refresh.cpp. Exits with 77 if torch is missing.

    svd_refresh.py make FOLDER KIND ROWS COLUMNS
        writes two gradients in raw f32, FOLDER/before and FOLDER/now. KIND: `decaying`, singular values that fall like
        those of gradients, half of whose directions `now` shares with `before`; or `noise`, independent values
    svd_refresh.py serve NOW ROWS COLUMNS THREADS
        times the SVD for each line on stdin, and prints the seconds as JSON; at the end of stdin, torch's version
    svd_refresh.py energy NOW BASES ROWS COLUMNS RANK
        prints the energy that each basis in BASES captures over that of the exact one, in float64, and how far it is
        from an orthonormal one"""
import json
import pathlib
import sys
import time

try:
    import numpy
    import torch
except ImportError as why:
    print(f"{sys.executable}: {why}", file=sys.stderr)
    sys.exit(77)


def read(path, *shape, offset=0):
    n = 1
    for extent in shape:
        n *= extent
    return torch.from_numpy(numpy.fromfile(path, dtype=numpy.float32, count=n, offset=4 * offset).reshape(shape))


def decaying_sum(rows, columns, generator):
    """Directions at random, with values that fall like a power of their number."""
    n = min(rows, columns)
    left = torch.linalg.qr(torch.randn(rows, n, generator=generator))[0]
    right = torch.linalg.qr(torch.randn(columns, n, generator=generator))[0]
    return left * (1 + torch.arange(n)) ** -0.7 @ right.T


def make(folder, kind, rows, columns):
    generator = torch.Generator().manual_seed(7)
    if kind == "decaying":
        shared, before, now = (decaying_sum(rows, columns, generator) for _ in range(3))
        gradients = {"before": shared + before, "now": shared + now}
    else:
        gradients = {name: torch.randn(rows, columns, generator=generator) for name in ("before", "now")}
    for name, gradient in gradients.items():
        (1e-3 * gradient).numpy().astype(numpy.float32).tofile(pathlib.Path(folder) / name)


def serve(now, rows, columns, threads):
    torch.set_num_threads(threads)
    gradient = read(now, rows, columns)
    for _ in sys.stdin:
        begin = time.perf_counter()
        torch.linalg.svd(gradient, full_matrices=False)
        print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)
    print(json.dumps({"version": torch.__version__}))


def energy(now, bases, rows, columns, rank):
    gradient = read(now, rows, columns).double()
    exact = torch.linalg.svdvals(gradient)[:rank].square().sum()
    found = {}
    for number, name in enumerate(("cold", "warm")):
        short = min(rows, columns)
        shape = (rank, columns) if rows >= columns else (rows, rank)
        basis = read(bases, *shape, offset=number * rank * short).double()
        basis = basis if rows >= columns else basis.T
        projected = gradient @ basis.T if rows >= columns else basis @ gradient
        found[name] = {"of_exact": float(projected.square().sum() / exact),
                       "not_orthonormal": float((basis @ basis.T - torch.eye(rank, dtype=torch.float64)).abs().max())}
    print(json.dumps(found))


def main():
    command, *words = sys.argv[1:]
    numbers = [int(word) if word.isdecimal() else word for word in words]
    {"make": make, "serve": serve, "energy": energy}[command](*numbers)


main()
