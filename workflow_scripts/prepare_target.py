"""Prepare the default target checkpoint: `prepare_target.py [--out DIR] [--wheel FILE]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.engine.target_checkpoint import main
from draftbench.errors import exit_on_error

exit_on_error(main)
