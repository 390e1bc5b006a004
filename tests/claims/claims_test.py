#!/usr/bin/env python3
"""Tests bench/claims.sh and bench/claims/claim.py with invented claims, in a copy of the files they need."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "claims"))
import claim  # noqa: E402
import interleaved  # noqa: E402
import sample_order  # noqa: E402


class ClaimsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        for path in ("bench/claims.sh", "bench/claims/claim.py", "scripts/steps.sh"):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.root / path)
        (self.root / "build").mkdir()

    def add(self, name, *lines):
        path = self.root / "bench" / "claims" / name
        path.write_text("\n".join(["#!/usr/bin/env python3", "import claim", *lines]) + "\n")
        path.chmod(0o755)

    def run_claims(self, *names):
        """Runs bench/claims.sh and returns (exit code, stdout)."""
        command = ["bash", "bench/claims.sh", "--build", "build", *names]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        return done.returncode, done.stdout

    def assert_counts(self, said, run, hold, do_not, broke, without):
        self.assertIn(f"claims: {run} run: {hold} hold, {do_not} do not, {broke} broke; {without} without a verdict", said)

    def test_a_median_that_misses_its_bar_fails_though_some_rounds_reach_it(self):
        self.add("slow", "values = [0.5, 0.94, 1.6]", "claim.report('slow', 0.94, 'ratio', '>= 0.95', claim.verdict(values, 0.95), claim.spread(values))")
        code, said = self.run_claims()
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"slow +DOES NOT +0\.94 ratio")
        self.assert_counts(said, 1, 0, 1, 0, 0)

    def test_a_median_that_reaches_its_bar_holds_though_some_rounds_miss_it(self):
        self.add("fast", "values = [0.5, 0.96, 1.6]", "claim.report('fast', 0.96, 'ratio', '>= 0.95', claim.verdict(values, 0.95), claim.spread(values))")
        code, said = self.run_claims()
        self.assertEqual(code, 0, said)
        self.assert_counts(said, 1, 1, 0, 0, 0)

    def test_what_has_no_verdict_is_counted_apart_and_says_what_is_absent(self):
        self.add("good", "claim.report('good', 1, 'x', '1', True, {})")
        self.add("peerless", "claim.report('peerless', None, 'x', '1', None, {'skip_reason': 'fio is missing'})")
        code, said = self.run_claims()
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"peerless +no verdict - x")
        self.assertIn("fio is missing", said)
        self.assert_counts(said, 2, 1, 0, 0, 1)

    def test_no_verdict_without_a_reason_is_broken(self):
        line = '{"claim": "mute", "value": 1, "unit": "x", "bar": "1", "holds": null, "detail": {}}'
        self.add("by_hand", f"print('{line}')")
        self.add("by_report", "claim.report('mute', 1, 'x', '1', None, {})")
        code, said = self.run_claims()
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "by_hand +BROKEN +holds is null, and no skip_reason")
        self.assertRegex(said, "by_report +BROKEN +0 lines on stdout")
        self.assert_counts(said, 2, 0, 0, 2, 0)

    def test_lines_that_are_not_as_documented_are_broken(self):
        whole = {"claim": "a", "value": 1, "unit": "x", "bar": "1", "holds": True, "detail": {}}
        self.add("two_lines", f"print({json.dumps(json.dumps(whole))})", "print('{}')")
        self.add("no_detail", f"print({json.dumps(json.dumps({k: v for k, v in whole.items() if k != 'detail'}))})")
        self.add("a_number", f"print({json.dumps(json.dumps({**whole, 'holds': 1}))})")
        self.add("other_code", f"print({json.dumps(json.dumps({**whole, 'holds': False}))})")
        self.add("crash", "raise OSError('disk')")
        self.add("silent", "pass")
        code, said = self.run_claims()
        self.assertEqual(code, 1, said)
        self.assert_counts(said, 6, 0, 0, 6, 0)

    def test_every_row_is_kept_and_a_failure_ends_nothing(self):
        self.add("a_bad", "claim.report('a_bad', 1, 'x', '2', False, {'why': 'too few'})")
        self.add("b_good", "claim.report('b_good', 1, 'x', '1', True, {})")
        code, said = self.run_claims()
        self.assertEqual(code, 1, said)
        self.assert_counts(said, 2, 1, 1, 0, 0)
        lines = (self.root / "build" / "claims.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["claim"] for line in lines], ["a_bad", "b_good"])

    def test_a_program_that_is_not_built_breaks_its_claim(self):
        self.add("unbuilt", "claim.need('bench/absent')")
        code, said = self.run_claims()
        self.assertEqual(code, 1, said)
        self.assert_counts(said, 1, 0, 0, 1, 0)


class SharedTest(unittest.TestCase):
    def test_the_median_alone_decides(self):
        self.assertIs(claim.verdict([1.0, 2.0, 9.0], 2.0), True)
        self.assertIs(claim.verdict([1.0, 1.9, 9.0], 2.0), False)
        self.assertIs(claim.at_most([0.1, 2.0, 9.0], 2.0), True)
        self.assertIs(claim.at_most([0.1, 2.1, 9.0], 2.0), False)

    def test_one_miss_outweighs_what_is_absent(self):
        self.assertIs(interleaved.combine_verdicts([True, None, False]), False)
        self.assertIsNone(interleaved.combine_verdicts([True, None]))
        self.assertIs(interleaved.combine_verdicts([True, True]), True)

    def test_metrics_are_whole_lines_of_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = ['{"step": 1, "loss": 2.5}', '{"step": 1, "val_loss": 2.4, "val_loss_bits": "40"}', '{"step": 2, "loss": 2.25}', '{"step": 3, "lo']
            (pathlib.Path(folder) / "metrics.jsonl").write_text("\n".join(lines))
            self.assertEqual([m["step"] for m in claim.metrics(folder)], [1, 2])

    def test_json_is_read_from_the_last_line(self):
        self.assertEqual(claim.last_json('a log line\n{"not": "this"}\n{"x": 1}\n'), {"x": 1})
        with self.assertRaises(SystemExit):
            claim.last_json("\n")

    def test_the_nameless_file_is_found_beside_a_log_in_the_same_folder(self):
        with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "wb") as log, tempfile.TemporaryFile(dir=folder) as wanted:
            log.truncate(1 << 21)
            wanted.truncate(1 << 20)
            with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stderr=log, pass_fds=[wanted.fileno()]) as child:
                self.assertEqual(claim.unnamed_file(child.pid, folder, 1 << 20), f"/proc/{child.pid}/fd/{wanted.fileno()}")
                with self.assertRaises(SystemExit):
                    claim.unnamed_file(child.pid, folder, 1 << 21)

    def test_files_that_a_process_closes_while_it_is_looked_at_are_left_out(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile(dir=folder) as closed, tempfile.TemporaryFile(dir=folder) as wanted:
            wanted.truncate(1 << 20)
            gone, seen = f"/proc/{os.getpid()}/fd/{closed.fileno()}", []
            readlink = os.readlink

            def reads_after_it_was_closed(path):
                if str(path) == gone:
                    seen.append(path)
                    raise FileNotFoundError(path)
                return readlink(path)

            with unittest.mock.patch("os.readlink", reads_after_it_was_closed):
                self.assertEqual(claim.unnamed_file(os.getpid(), folder, 1 << 20), f"/proc/{os.getpid()}/fd/{wanted.fileno()}")
            self.assertEqual(len(seen), 1)

    def test_a_program_that_serves_may_log_before_its_json(self):
        script = "import sys\nprint('INFO: importing')\nfor _ in sys.stdin: print('{\"x\": 1}', flush=True)\nprint('{\"sum\": 2}')"
        server = interleaved.Server([sys.executable, "-c", script])
        self.addCleanup(server.log.close)
        self.assertEqual(server.round(), {"x": 1})
        self.assertEqual(server.close(), {"sum": 2})

    def test_the_order_of_samples_is_a_permutation_by_philox(self):
        words = sample_order.philox((0, 0, 0, 0), (0, 0))  # one of Random123's known answers
        self.assertEqual(words, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
        for n in (1, 2, 5, 64, 65, 1000):
            self.assertEqual(sorted(sample_order.permuted(i, n, 42, 3) for i in range(n)), list(range(n)))


if __name__ == "__main__":
    unittest.main()
