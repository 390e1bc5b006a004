"""The parts that the claims of adapters share: programs of tests/oracle that print rows of figures with their limits."""
import subprocess
import sys

import claim
import interleaved

BAR = "<= 1 of the limit, in every figure of every case; files: 0 differing bits and keys"
UNIT = "worst figure / its limit"


def run(name, program):
    """The output of tests/oracle/PROGRAM with its options."""
    script, *options = program
    command = [interleaved.PYTHON, f"tests/oracle/{script}", "--probe", claim.need("tests/oracle/oracle_probe"), "--json", *options]
    done = subprocess.run(command, cwd=claim.ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        claim.report(name, None, UNIT, BAR, None, {"skip_reason": f"{interleaved.PYTHON} has no torch, transformers or PEFT"})
    if done.returncode not in (0, 1):
        sys.exit(f"{script} ended with {done.returncode}")
    return claim.last_json(done.stdout)


def report(name, programs):
    """Runs the programs one after the other and prints the line."""
    detail, figures, holds, problems = {}, [], True, []
    for program in programs:
        result = run(name, program)
        rows, limits = result["rows"], {}
        for row in rows:
            limits |= row.get("limits", {})
            figures += [row["figures"][figure] / limit for figure, limit in row.get("limits", {}).items() if limit and figure in row["figures"]]
        worst = {figure: max((row["figures"].get(figure, 0) for row in rows), default=None) for figure in limits}
        detail[program[0]] = {"rows": len(rows), "worst": worst, "limits": result.get("limits", limits)}
        if refused := [f"{row['case']} {row['adapter']}: {row['refused']}" for row in rows if row.get("refused")]:
            detail[program[0]]["refused"] = refused
        problems += [f"{row['case']} {row['adapter']}: {problem}" for row in rows for problem in row["problems"]]
        holds = holds and result["ok"]
    detail |= {"peft": result["peft"], "transformers": result["transformers"], "problems": problems}
    claim.report(name, round(max(figures), 4) if figures else None, UNIT, BAR, holds, detail)
