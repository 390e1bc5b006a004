#!/usr/bin/env python3
"""Compares the table of `strata config convert` with the configuration that DeepSpeed reads.

    bench/peers/ds_config_fields.py [--strata PROGRAM] [--deepspeed FOLDER]

Every field of DeepSpeed's pydantic models must have a row; so must the keys that it reads by get_scalar_param() and
the like, and the parameters of its schedulers and optimizers. The sources of DeepSpeed are read, not run, so that
torch is not needed: `pip install --no-deps --target FOLDER deepspeed` suffices. Exits with 1 if a row is missing.
"""

import argparse
import ast
import importlib.util
import pathlib
import subprocess
import sys

BASE = "DeepSpeedConfigModel"
# Models that a configuration for training begins with, and where they are in it. Those inside them follow.
PLACES = {
    "DeepSpeedZeroConfig": "zero_optimization",
    "DeepSpeedFP16Config": "fp16",
    "DeepSpeedBF16Config": "bf16",
    "DeepSpeedMonitorConfig": "",
    "DeepSpeedThroughputTimerConfig": "timers.throughput",
    "CommsLoggerConfig": "comms_logger",
    "CompileConfig": "compile",
    "HybridEngineConfig": "hybrid_engine",
    "TPTrainingConfig": "tensor_parallel",
    "WeightQuantConfig": "weight_quantization",
}
# Only these keys of inference are used in training.
FROM_INFERENCE = ("WeightQuantConfig", "BaseQuantConfig")

# (file, dictionary) of get_scalar_param(dictionary, KEY, default) and dictionary.get(KEY), and the section it is.
READ_FROM = {
    ("runtime/config.py", "param_dict"): "",
    ("runtime/config.py", "checkpoint_params"): "checkpoint",
    ("runtime/config.py", "par_write_params"): "checkpoint.parallel_write",
    ("runtime/config.py", "data_types_params"): "data_types",
    ("runtime/activation_checkpointing/config.py", "act_chkpt_config_dict"): "activation_checkpointing",
    ("runtime/swap_tensor/aio_config.py", "aio_dict"): "aio",
    ("runtime/model_checkpointing/config.py", "checkpoint_dict"): "checkpoint",
    ("runtime/model_checkpointing/config.py", "writer_dict"): "checkpoint.writer",
    ("profiling/config.py", "flops_profiler_dict"): "flops_profiler",
    ("autotuning/config.py", "autotuning_dict"): "autotuning",
    ("module_inject/auto_ep_config.py", "param_dict"): "expert_parallel",
}
# Classes whose constructors take a section, without what DeepSpeed itself passes.
CONSTRUCTORS = {
    "runtime/lr_schedules.py": "scheduler.params",
    "ops/adam/cpu_adam.py": "optimizer.params",
    "ops/adam/fused_adam.py": "optimizer.params",
    "ops/adagrad/cpu_adagrad.py": "optimizer.params",
    "ops/lamb/fused_lamb.py": "optimizer.params",
    "ops/lion/cpu_lion.py": "optimizer.params",
    "ops/lion/fused_lion.py": "optimizer.params",
}
PASSED = {"self", "optimizer", "params", "model_params", "adamw_mode"}


def joined(section, key):
    return f"{section}.{key}" if section else key


def names_in(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


class Sources:
    """The syntax trees of a DeepSpeed, its models, and its constants."""

    def __init__(self, root):
        self.trees = {path.relative_to(root).as_posix(): ast.parse(path.read_text()) for path in root.rglob("*.py")}
        self.classes = {}
        for file, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and (not file.startswith("inference/") or node.name in FROM_INFERENCE):
                    self.classes[node.name] = node
        self.constants = {file: dict(self._constants_of(tree)) for file, tree in self.trees.items()}

    @staticmethod
    def _constants_of(tree):
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        yield target.id, node.value.value

    def bases(self, name):
        return [base for node in [self.classes[name]] for base in map(ast.unparse, node.bases) if base in self.classes]

    def is_model(self, name):
        return any(base == BASE or self.is_model(base) for base in self.bases(name))

    def models(self):
        return {name for name in self.classes if self.is_model(name)}

    def fields(self, name):
        """(name and aliases, annotation) of each field, also of its bases."""
        for base in self.bases(name):
            if base != BASE:
                yield from self.fields(base)
        for node in self.classes[name].body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield [node.target.id, *self._aliases(node.value)], node.annotation

    @staticmethod
    def _aliases(value):
        keywords = value.keywords if isinstance(value, ast.Call) else []
        return [ast.literal_eval(word.value) for word in keywords if word.arg == "alias"]

    def text_of(self, node, file):
        """The text of a literal, or of the constant that a name stands for."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if not isinstance(node, ast.Name):
            return None
        beside = str(pathlib.PurePosixPath(file).parent / "constants.py")
        for place in (file, beside, "runtime/constants.py"):
            if node.id in self.constants.get(place, {}):
                return self.constants[place][node.id]
        return None


def model_keys(sources):
    """Keys of all fields, and the models that are in no place."""
    keys, seen = set(), set()

    def walk(name, section):
        seen.add(name)
        for names, annotation in sources.fields(name):
            inner = names_in(annotation) & sources.models()
            for key in names:
                if not inner:
                    keys.add(joined(section, key))
                for model in inner:
                    walk(model, joined(section, key))

    for name, section in PLACES.items():
        if name not in sources.classes:
            sys.exit(f"this DeepSpeed has no {name}: PLACES must be corrected")
        walk(name, section)
    bases = {base for name in seen for base in sources.bases(name)}
    return keys, sources.models() - seen - bases


def read_keys(sources):
    """Keys that are read from dictionaries."""
    keys = set()
    for file in {file for file, _ in READ_FROM}:
        for node in ast.walk(sources.trees[file]):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id in ("get_scalar_param", "get_list_param", "get_dict_param"):
                at, key = node.args[0], node.args[1]
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
                at, key = node.func.value, node.args[0]
            else:
                continue
            section = None
            if isinstance(at, ast.Name):
                section = READ_FROM.get((file, at.id))
            elif isinstance(at, ast.Subscript) and READ_FROM.get((file, ast.unparse(at.value))) == "":
                section = sources.text_of(at.slice, file)
            text = sources.text_of(key, file)
            if section is not None and text:
                keys.add(joined(section, text))
    return keys


def constructor_keys(sources):
    keys = set()
    for file, section in CONSTRUCTORS.items():
        for node in ast.walk(sources.trees[file]):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                keys.update(joined(section, arg.arg) for arg in node.args.args if arg.arg not in PASSED)
    return keys


def rows_of(program):
    lines = subprocess.run([program, "config", "convert", "--rows"], check=True, capture_output=True, text=True).stdout
    return {line.split("\t")[0] for line in lines.splitlines()}


def report(what, keys, rows):
    """Prints the keys without a row and returns how many there are."""
    patterns = [row[:-1] for row in rows if row.endswith(".*")]
    # A section that is read as a whole has rows below it.
    missing = sorted(key for key in keys if key not in rows and not any(key.startswith(p) for p in patterns)
                     and not any(row.startswith(key + ".") for row in rows))  # fmt: skip
    print(f"{what}: {len(keys)} keys, {len(missing)} without a row")
    for key in missing:
        print(f"  {key}")
    return len(missing)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/release/cli/strata", help="the program")
    parser.add_argument("--deepspeed", type=pathlib.Path, help="the folder of the package; default: the installed one")
    args = parser.parse_args()
    folder = args.deepspeed
    if folder is None:
        spec = importlib.util.find_spec("deepspeed")
        if spec is None:
            sys.exit("deepspeed is not installed; name its folder by --deepspeed")
        folder = pathlib.Path(spec.origin).parent
    sources = Sources(folder)
    rows = rows_of(args.strata)
    fields, homeless = model_keys(sources)
    missing = report("fields of pydantic models", fields, rows - {row for row in rows if row.endswith(".*")})
    missing += report("keys of dictionaries", read_keys(sources), rows)
    missing += report("parameters of schedulers and optimizers", constructor_keys(sources), rows)
    for name in sorted(homeless):
        print(f"the model {name} has no place in PLACES")
    print(f"{len(rows)} rows, of which {len(rows - fields)} are for other keys")
    return 1 if missing or homeless else 0


if __name__ == "__main__":
    sys.exit(main())
