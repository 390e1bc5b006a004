"""The build's own nvcc commands, for one architecture, and what the compiler made of them. Nothing is executed, so no GPU
is needed."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess


def entries():
    """The CUDA files of the build in CLAIMS_BUILD; empty if it has none."""
    commands = pathlib.Path(os.environ["CLAIMS_BUILD"]) / "compile_commands.json"
    return [entry for entry in json.loads(commands.read_text()) if entry["file"].endswith(".cu")] if commands.exists() else []


def command_for(entry, architecture, output):
    """The build's own compile command, changed to one architecture and to print the compiler's report."""
    words, kept = shlex.split(entry["command"]), []
    skip = 0
    for word in words[next(i for i, word in enumerate(words) if word.endswith("nvcc")) :]:
        if skip:
            skip -= 1
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = 1
        elif word not in ("-MD", "-c") and not word.startswith(("--generate-code", "-gencode", "-arch", "-forward-unknown")):
            kept.append(word)
    code = f"arch=compute_{architecture},code=sm_{architecture}"
    return [*kept, "-cubin", "-gencode", code, "-Xptxas", "-v", "-o", output]


def short(name):
    full = subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()
    inside = re.search(r"<(.*)>\(", full)
    plain = re.sub(r"\(anonymous namespace\)", "", full.split("<")[0].split("(anonymous namespace)::")[-1].split("(")[0])
    arguments = re.sub(r"strata::(kernels::|cpuopt::|cuda::|detail::|\(anonymous namespace\)::)*|\(|\)", "", inside.group(1)) if inside else ""
    return plain.rsplit("::", 1)[-1].split(" ")[-1] + (f"<{arguments}>" if inside else "")


def cuobjdump():
    """NVIDIA's disassembler: of the toolkit, or of the Triton that comes with the PyTorch of bench/peers. None if there is none."""
    root = pathlib.Path(__file__).resolve().parents[2]
    packed = sorted(root.glob("build/peers/venv/lib/python*/site-packages/triton/backends/nvidia/bin/cuobjdump"))
    return os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or next((str(path) for path in packed), None)


def listing(cubin):
    """{mangled name of a kernel: its SASS as (address, predicate or '', instruction such as 'LDG.E.128.CONSTANT R4, [R2.64]')}."""
    found, kernel = {}, None
    for line in subprocess.run([cuobjdump(), "-sass", cubin], capture_output=True, text=True, check=True).stdout.splitlines():
        if match := re.search(r"Function : (\S+)", line):
            kernel = found.setdefault(match[1], [])
        elif kernel is not None and (match := re.search(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\d+) )?(.*?) ;", line)):
            kernel.append((int(match[1], 16), match[2] or "", match[3].strip()))
    return found


def instructions(cubin):
    """{mangled name of a kernel: its SASS instructions}."""
    return {name: [text for _, _, text in code] for name, code in listing(cubin).items()}


def kernels_in(report):
    """(mangled name, registers, stack, spilled bytes) of every kernel, from the compiler's report."""
    found = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
                       r".*?Used (\d+) registers", report, re.DOTALL)  # fmt: skip
    return [(name, int(used), int(stack), int(stores) + int(loads)) for name, stack, stores, loads, used in found]
