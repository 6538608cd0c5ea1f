"""Rule warmup: send calibration prompts until the step time is steady."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from draftbench.errors import exit_on_error
from draftbench.load.jobs import warm
from draftbench.load.run_file import load_run_file


def main() -> None:
    """Warm the session up that the command line names; the run file is named by DRAFTBENCH_RUN."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", required=True, help="key of the session")
    parser.add_argument("--output", required=True, type=Path, help="warmup.json to write")
    options = parser.parse_args()
    warm(load_run_file(), options.session, options.output)


if __name__ == "__main__":
    exit_on_error(main)
