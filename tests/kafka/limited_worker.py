"""`enricher` in a process whose data is limited, and which tells its peak of resident memory on standard error.

LIMITED_WORKER_DATA_BYTES=3000000000 python tests/kafka/limited_worker.py run ...
"""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

from enricher import cli

LIMITED_WORKER = str(Path(__file__))
LIMIT = "LIMITED_WORKER_DATA_BYTES"


def main() -> None:
    """Run the command line."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(os.environ.pop(LIMIT)),) * 2)
    try:
        cli.main()
    finally:
        [peak] = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
        sys.stderr.write(f"peak {peak}\n")


if __name__ == "__main__":
    main()
