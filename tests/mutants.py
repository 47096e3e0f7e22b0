"""Puts each defect of `mutants.toml` into a copy of the project and runs its tests: `scripts/test --mutants [NUMBER ...]`.

The tests must pass without a defect, and fail with each. `test_mutants.py` checks that each defect can still be made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: in `file` of the worker, `before` becomes `after`. A test in `caught_by` must fail."""

    defect: str
    file: str
    before: str
    after: str
    caught_by: str
    broker: bool = False

    @property
    def selected(self) -> str:
        """The marks of the tests that may catch it: those of `--quick`, unless they need a broker."""
        return "not long" if self.broker else "not broker and not slow and not long"


MUTANTS = [Mutant(**each) for each in tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))["mutant"]]


def place_of(mutant: Mutant, root: Path = ROOT) -> Path:
    """The file that a defect is in."""
    return root / "enricher" / "worker" / mutant.file


def _failed(root: Path, files: str, selected: str) -> bool:
    """Whether a test of these files fails. Ends this program if they could not run, for want of a broker, say."""
    paths = [f"tests/{name}" for name in files.split()]
    options = ("-q", "-x", "-p", "no:cacheprovider", "-m", selected, "--hypothesis-profile", "quick")
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'scripts'}"}
    run = subprocess.run([sys.executable, "-m", "pytest", *options, *paths], cwd=root, env=environment,
                         capture_output=True, text=True, check=False)  # fmt: skip
    if run.returncode not in {0, 1} or (run.returncode and "\nFAILED " not in run.stdout):
        raise SystemExit(f"{files} could not run:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return run.returncode == 1


def main(numbers: list[int]) -> int:
    """Print for each defect whether it was caught; 1 if one was not. First the tests must pass without any defect."""
    chosen = [(number, each) for number, each in enumerate(MUTANTS, 1) if not numbers or number in numbers]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "copy"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        for selected in dict.fromkeys(each.selected for _, each in chosen):
            files = dict.fromkeys(each.caught_by for _, each in chosen if each.selected == selected)
            if _failed(copy, " ".join(files), selected):
                raise SystemExit("these tests fail without any defect: " + " ".join(files))
        caught = 0
        for number, mutant in chosen:
            path, began_s = place_of(mutant, copy), time.monotonic()
            text = path.read_text("utf-8")
            path.write_text(text.replace(mutant.before, mutant.after), "utf-8")
            found = _failed(copy, mutant.caught_by, mutant.selected)
            path.write_text(text, "utf-8")
            caught += found
            told = "caught" if found else "NOT CAUGHT"
            print(f"{number:2} {told:10} {time.monotonic() - began_s:4.0f} s  {mutant.defect}", flush=True)
    print(f"{caught} of {len(chosen)} caught")
    return int(caught < len(chosen))


if __name__ == "__main__":
    raise SystemExit(main([int(argument) for argument in sys.argv[1:]]))
