#!/usr/bin/env python3
"""Writes docs/python.md, the reference of the Python package, from its docstrings. Nothing is imported, so that neither
the library nor PyTorch is needed.

    scripts/python_reference.py > docs/python.md
    scripts/python_reference.py --check docs/python.md   # 1 if it is not what this would write"""
import ast
import inspect
import pathlib
import re
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "bindings/python/src/strata"

# Heading, module, and the classes and functions of it, each with the methods that users call.
OPTIMIZER_METHODS = ["step", "plan", "stats", "set_default", "state_dict", "load_state_dict", "close"]
PARTS = [
    ("Optimizers", "strata.optim", "optim/_optimizer.py", ["AdamW", "Adam", "SGD", "Adagrad", "Lion", "LAMB"]),
    (None, "strata.optim", "optim/_compat.py", ["DeepSpeedCPUAdam", "CPUOffloadOptimizer"]),
    ("Parameters and gradients", "strata", "_offload/_model.py", ["offload"]),
    (None, "strata", "_offload/_plan.py", ["plan"]),
    ("Activations", "strata", "_activations/_hooks.py", ["offload_activations"]),
    ("Checkpoints", "strata", "_checkpoint.py", ["save_checkpoint", "load_checkpoint"]),
    ("Configurations of DeepSpeed", "strata", "_ds_config.py", ["from_ds_config", "DsConfig"]),
    ("Sessions", "strata", "_session.py", ["Session"]),
    ("Exceptions", "strata.errors", "errors.py", ["StrataError", "InvalidError", "NotFoundError", "DoesNotFitError",
     "OutOfMemoryError", "StorageError", "UnsupportedError", "DivergedError", "ClosedError"]),
]  # fmt: skip


def tree_of(file):
    return ast.parse((PACKAGE / file).read_text())


def definitions(tree):
    return {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


def bullet_list(lines):
    """Lines "name: text", continued by indented ones, as a list."""
    items = []
    for line in lines:
        if re.match(r"[a-z_0-9]+(, [a-z_0-9]+)*( and the rest)?: ", line):
            names, _, text = line.partition(": ")
            items.append(f"- `{names}`: {text}" if re.fullmatch(r"[a-z_0-9]+", names) else f"- {names}: {text}")
        else:
            items.append(f"  {line.strip()}")
    return items


def as_markdown(docstring):
    """The docstring of a function or class: lists of names become lists, aligned columns and indented code stay."""
    blocks = []
    for block in inspect.cleandoc(docstring or "").split("\n\n"):
        lines = block.split("\n")
        is_table = sum(re.search(r"\S   *\S", line) is not None for line in lines) > 1
        if all(line.startswith("    ") for line in lines):
            kind = "text" if is_table else "python"
            blocks.append(f"```{kind}\n" + "\n".join(line[4:] for line in lines) + "\n```")
        elif is_table:
            blocks.append("```text\n" + block + "\n```")
        elif re.match(r"[a-z_0-9]+: ", lines[0]):
            blocks.append("\n".join(bullet_list(lines)))
        else:
            blocks.append(block)
    return "\n\n".join(blocks)


def signature(name, function, drop_self):
    arguments = function.args
    if drop_self:
        arguments.args = arguments.args[1:]
    text = f"{name}({ast.unparse(arguments)})"
    if len(text) <= 100:
        return text
    # One keyword after the other, broken between arguments.
    parts = re.split(r", (?=[*\w])", ast.unparse(arguments))
    lines, line = [], f"{name}("
    for i, part in enumerate(parts):
        piece = part + (", " if i + 1 < len(parts) else ")")
        if len(line) + len(piece) > 100:
            lines.append(line.rstrip())
            line = " " * (len(name) + 1)
        line += piece
    return "\n".join([*lines, line])


def of_function(title, function, drop_self=False):
    text = f"```python\n{signature(title, function, drop_self)}\n```\n"
    doc = as_markdown(ast.get_docstring(function, clean=False))
    return text + (f"\n{doc}\n" if doc else "")


def methods_of(node, names, *parts):
    found = {name: method for part in (*parts, node) for name, method in definitions(part).items()}
    text = ""
    for name in names:
        if name in found and ast.get_docstring(found[name]):
            text += "\n" + of_function(f".{name}", found[name], drop_self=True)
    return text


def bases_of(node):
    return ", ".join(ast.unparse(base) for base in node.bases)


def of_class(module, node):
    title = f"{module}.{node.name}"
    doc = as_markdown(ast.get_docstring(node, clean=False))
    made = definitions(node).get("__init__")
    if module == "strata.errors":
        return f"| `{node.name}` | {bases_of(node)} | {' '.join(doc.split())} |\n"
    text = f"\n### {title}\n\n"
    if made is not None and node.name != "DsConfig":
        text += f"```python\n{signature(title, made, drop_self=True)}\n```\n\n"
    text += f"{doc}\n"
    # Session.step() takes structs of the C interface; update() is for users.
    public = [name for name in definitions(node) if not name.startswith("_") and (node.name, name) != ("Session", "step")]
    return text if module == "strata.optim" else text + methods_of(node, public)


def of_part(heading, module, file, names):
    found = definitions(tree_of(file))
    text = f"\n## {heading}\n" if heading else ""
    if heading == "Optimizers":
        text += "\n" + as_markdown(ast.get_docstring(tree_of("optim/__init__.py"), clean=False)) + "\n"
        state_dicts = definitions(tree_of("optim/_state_dict.py"))["StateDicts"]
        text += "\nAll optimizers have these methods:\n" + methods_of(found["Optimizer"], OPTIMIZER_METHODS, state_dicts)
    if module == "strata.errors":
        text += "\n`strata.errors`. Each is also the built-in exception that fits.\n\n"
        text += "| exception | is a | meaning |\n| --- | --- | --- |\n"
    for name in names:
        node = found[name]
        if isinstance(node, ast.FunctionDef):
            text += f"\n### {module}.{name}\n\n" + of_function(f"{module}.{name}", node)
        else:
            text += of_class(module, node)
    if heading == "Activations":
        text += methods_of(found["ActivationOffload"], ["stats", "close"])
    return text


def reference():
    text = ("# Python\n\nThe package `strata`, written by `scripts/python_reference.py` from its docstrings. "
            "[trainers.md](trainers.md) is the guide,\nand [bindings/python](../bindings/python/README.md) says how to "
            "install it. `import strata` does not import torch.\n")  # fmt: skip
    return text + "".join(of_part(*part) for part in PARTS)


def main():
    text = reference()
    if sys.argv[1:2] != ["--check"]:
        sys.stdout.write(text)
        return
    if pathlib.Path(sys.argv[2]).read_text() != text:
        sys.exit(f"{sys.argv[2]} is not what the docstrings say: scripts/python_reference.py > docs/python.md")
    print(f"{sys.argv[2]} is what the docstrings say")


main()
