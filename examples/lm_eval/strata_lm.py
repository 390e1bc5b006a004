"""EleutherAI's lm_eval on a model that strata runs, in any budgets: see README.md in this folder."""
import contextlib
import json
import subprocess
import threading

from lm_eval.api.model import LM


class StrataLM(LM):
    """Starts `strata score MODEL ARGUMENTS...` and sends it one line per request.

    model: a run folder or a Hugging Face folder. arguments: further ones, such as ["--batch", "16", "memory.device=8GiB",
    "--adapter", "DIR"]. Use it as a context manager, or call close()."""

    def __init__(self, model, arguments=(), strata="strata"):
        super().__init__()
        command = [strata, "score", str(model), *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Ends the process and returns its exit code."""
        with contextlib.suppress(BrokenPipeError):  # the process ended by itself
            self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait()

    def _send(self, lines):
        with contextlib.suppress(BrokenPipeError):  # the process ended; _score() says so
            for line in lines:
                self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()

    def _score(self, lines):
        # Sent by a thread, since the process answers while it reads, and a full pipe would block both.
        sender = threading.Thread(target=self._send, args=(lines,), daemon=True)
        sender.start()
        answers = []
        for line in lines:
            answer = self._process.stdout.readline()
            if not answer:
                raise RuntimeError(f"strata score ended with exit code {self._process.wait()}")
            answers.append(json.loads(answer))
        sender.join()
        for line, answer in zip(lines, answers):
            if "error" in answer:
                raise ValueError(f"{answer['error']}: {line}")
        return answers

    def loglikelihood(self, requests, disable_tqdm=False):
        pairs = [request.args for request in requests]
        answers = self._score([{"context": context, "continuation": continuation} for context, continuation in pairs])
        return [(answer["logprob"], answer["greedy"]) for answer in answers]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        return [answer["logprob"] for answer in self._score([{"text": request.args[0]} for request in requests])]

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError("strata score computes log-probabilities; use tasks of the kinds loglikelihood, "
                                  "loglikelihood_rolling and multiple_choice")  # fmt: skip
