"""Chat templates that packages of PyPI ship, by name: "trl-gemma" and so on."""
import ast
import pathlib
import re
import subprocess
import sys
import zipfile

PACKAGES = {"trl": "1.16.0", "unsloth": "2026.10.9"}


class Absent(Exception):
    """A package cannot be downloaded."""


def wheel_of(package, folder):
    version = PACKAGES[package]
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", folder, f"{package}=={version}"],
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode != 0:
        raise Absent(f"pip cannot download {package} {version}: {done.stderr.strip()[-200:]}")
    return next(pathlib.Path(folder).glob(f"{package}-{version}-*.whl"))


def text_of(value, known):
    """The string that an expression of literals, of names of others and of + is, or None."""
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = text_of(left, known), text_of(right, known)
            return None if None in parts else "".join(parts)
    return None


def templates_in(source):
    """Templates that a Python file assigns to names. Those of Ollama are Go's."""
    known = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (text := text_of(node.value, known)):
            known[node.targets[0].id] = text
    return {name: text for name, text in known.items() if re.fullmatch(r"[a-z0-9_]+_template", name) and "ollama" not in name and "{%" in text}


def of_packages(folder, packages=PACKAGES):
    """The templates of the packages, which are downloaded into `folder`. Raises Absent."""
    found = {}
    for package in packages:
        with zipfile.ZipFile(wheel_of(package, folder)) as files:
            for name in files.namelist():
                if name.endswith(".jinja"):
                    found[f"{package}-{pathlib.Path(name).stem}"] = files.read(name).decode()
                elif name == "unsloth/chat_templates.py":
                    found |= {f"{package}-{own}": text for own, text in templates_in(files.read(name).decode()).items()}
    return found
