"""Measures the machine's rates, its profile and PyTorch's rates for comparison; and runs the sanitizers."""
import json
import pathlib
import shutil
import sys

from processes import TAIL, CheckFailed

PARTS = ("peak", "attention_mma", "attention_wgmma", "attention_cudnn", "matrix", "link", "dram")  # the parts of machine_rates


def parsed(text, what):
    """Parses one JSON object. Raises CheckFailed if `text` is not one."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CheckFailed(f"{what} printed no JSON: {error}: {text.strip()[:300]!r}") from error
    if not isinstance(value, dict):
        raise CheckFailed(f"{what} printed {json.dumps(value)[:300]}, expected a JSON object")
    return value


def rate_of(check, part, program="machine_rates"):
    """The rows of one part of machine_rates or kernel_rates; rows from before a failure are kept beside the error."""
    quick = ("--gib", "0.125", "--rounds", "2") if check.machine.quick else ()
    done = check.run(part, [check.machine.build / "bench" / program, "--only", part, *quick], 2 * check.machine.case_limit)
    result = {"rows": []}
    for line in done.out.splitlines():
        try:
            record = parsed(line, program)
        except CheckFailed as failure:
            result.setdefault("error", str(failure))
            continue
        if "machine" in record:
            result["machine"] = record["machine"]
        elif record.get("part") == part and isinstance(record.get("row"), dict):
            result["rows"].append(record["row"])
        else:
            result.setdefault("error", str(record.get("error", f"{program} printed {line[:300]}")))
    if not done.ok:
        result.setdefault("error", f"{done.describe_exit()}: {done.output_tail()}")
    if not result["rows"]:
        result.setdefault("error", f"{program} printed no row")
    if result["rows"] and all("skipped" in row for row in result["rows"]) and "error" not in result:
        result["skipped"] = result["rows"][0]["skipped"]
    return result


def rates(check):
    for part in PARTS:
        check.run_item(part, lambda: rate_of(check, part))


def bf16_peak(check):
    """FLOP/s of bf16 GEMMs on random data, measured now."""
    measured = rate_of(check, "peak")
    if "error" in measured:
        raise CheckFailed(measured["error"])
    return measured["rows"][-1]["rate"]["gflop_per_s"] * 1e9


def cache_home(machine):
    """The environment in which programs find this machine's profile."""
    (machine.out / "cache-home" / "strata").mkdir(parents=True, exist_ok=True)
    return {"XDG_CACHE_HOME": str(machine.out / "cache-home")}


def profile_path(machine):
    return pathlib.Path(cache_home(machine)["XDG_CACHE_HOME"]) / "strata" / ("machine-cuda.toml" if machine.gpu else "machine.toml")


def bench(check, log, out, *more):
    machine = check.machine
    return parsed(check.run(log, [machine.strata, "bench", "--json", "--backend", machine.backend, "--out", out, *more]).require_stdout(), "strata bench")


def profile(check):
    """Measures the profile that plans for this machine and the forecasts of the scenarios are based on."""
    machine = check.machine
    check.run_item("machine", lambda: bench(check, "bench", profile_path(machine), "--nvme-dir", machine.out / "nvme",
                                        *(("--quick",) if machine.quick else ())))  # fmt: skip
    if not machine.gpu:
        check.skip("choices", "no GPU")
        return

    def choices():
        device = bench(check, "bench choices", machine.out / "choices.toml", "--quick")["device"]
        return {key: device.get(key) for key in ("tflops_8bit", "wgmma_attention_tflops", "cudnn_attention_tflops")}

    check.run_item("choices", choices)


def peers(check):
    """PyTorch's GEMMs and attention, in the shapes in which strata bench measures its own."""

    def torch():
        done = check.run("torch", [sys.executable, pathlib.Path(__file__).parents[1] / "gpu_peers.py"], 180)
        if done.ok:
            return parsed(done.out, "gpu_peers.py")
        if done.code == 1 and done.err.startswith(("no PyTorch", "PyTorch sees no GPU")):
            return {"skipped": done.output_tail()[-300:]}
        raise CheckFailed(f"{done.describe_exit()}: {done.output_tail()}")

    check.run_item("torch", torch)


def bindings(check):
    """The Python package with this machine's PyTorch: tests with tensors on the GPU, and a trainer's steps."""
    root, machine = pathlib.Path(__file__).parents[2], check.machine
    environment = {"PYTHONPATH": str(root / "bindings/python/src"), "STRATA_LIBRARY": str(machine.build / "capi/libstrata.so")}

    def tests():
        done = check.run("test_cuda", [sys.executable, root / "bindings/python/tests/test_cuda.py", "-v"], 120, environment)
        if done.code == 77:
            return {"skipped": done.out.strip()}
        done.require_stdout()
        return {"output": done.err.strip()[-TAIL:]}

    def trainer():
        small = ("--layers", "2", "--hidden", "256", "--batch", "2") if machine.quick else ()
        done = check.run("trainer", [sys.executable, root / "scripts/gpu_trainer.py", *small], 150, environment)
        if done.code == 1 and done.err.startswith(("no ", "PyTorch sees no GPU")):
            return {"skipped": done.output_tail()[-300:]}
        return parsed(done.require_stdout(), "gpu_trainer.py")

    check.run_item("tests", tests)
    check.run_item("trainer", trainer)


# racecheck finds hazards inside a kernel of cuDNN's, too, which is not ours.
SANITIZED = {"memcheck": "*Norms*/bf16:*AttentionTest.IsClose*/bf16_*", "racecheck": "*AttentionTest.IsClose*/bf16_*-*cudnn*", "initcheck": "*Norms*/f32"}


def sanitized(check, tool, mode):
    test = check.machine.build / "tests/kernels/device_ops_test"
    done = check.run(mode, [tool, "--tool", mode, "--error-exitcode", "9", test, f"--gtest_filter={SANITIZED[mode]}"], 180)
    said = done.out + done.err
    if done.ok and "[  PASSED  ] 0 tests" in said:
        raise CheckFailed(f"{SANITIZED[mode]} matches no test")
    if done.ok:
        return {"found": 0}
    if "Device not supported" in said or "not supported" in said and "ERROR SUMMARY" not in said:
        return {"skipped": "compute-sanitizer does not support this device"}
    raise CheckFailed(f"{done.describe_exit()}: {said.strip()[-600:]}")


def sanitizer(check):
    """Runs ops under compute-sanitizer: accesses out of bounds, races and reads of uninitialized memory."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for mode in SANITIZED:
        if not check.machine.gpu or not pathlib.Path(tool).exists():
            check.skip(mode, "no compute-sanitizer" if check.machine.gpu else "no GPU")
        else:
            check.run_item(mode, lambda: sanitized(check, tool, mode))
