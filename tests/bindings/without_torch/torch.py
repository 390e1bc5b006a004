# First on PYTHONPATH, it hides the torch of a machine, which is then as scripts/setup.sh leaves it.
raise ModuleNotFoundError("torch is hidden", name="torch")
