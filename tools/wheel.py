"""The wheel, with every loop that `kikuchi warm-up` compiles already compiled.

    python tools/wheel.py            write dist/kikuchi-VERSION-cpXY-cpXY-PLATFORM.whl
    python tools/wheel.py --plain    the same without compiled loops, for any machine

Loops are compiled for a baseline of processors, x86-64-v3, and are used where the processor has its
features and Python, Numba and llvmlite have the versions of the environment that runs this tool.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kikuchi.core.loop_cache import BASELINE, INNER

ROOT = Path(__file__).resolve().parents[1]
LOOPS = ROOT / "src" / "kikuchi" / "_loops"
_MANIFEST = (
    "import sys; from pathlib import Path; from kikuchi.core.loop_cache import write_manifest; "
)
_MANIFEST += "write_manifest(Path(sys.argv[1]))"


def compile_loops(target: Path) -> None:
    """Compile all loops for the baseline into a folder, with what they were compiled for."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "NUMBA_CACHE_DIR": cache,
            "NUMBA_CPU_NAME": BASELINE,
            "NUMBA_CPU_FEATURES": "",
        }
        warm_up = "from kikuchi.cli.startup import main; main()"
        subprocess.run([sys.executable, "-c", warm_up, "warm-up"], env=environment, check=True)
        (folder,) = Path(cache).glob("numba-*")
        subprocess.run([sys.executable, "-c", _MANIFEST, folder], env=environment, check=True)
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns(f"*{INNER}*"))


def build(folder: Path) -> None:
    """Call hatchling, which finds the loops in the package."""
    hatchling = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(hatchling, cwd=ROOT, check=True)


def main() -> None:
    """Compile, build, and leave the source tree as it was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--plain", action="store_true", help="without compiled loops")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel")
    given = parser.parse_args()
    shutil.rmtree(LOOPS, ignore_errors=True)
    try:
        if not given.plain:
            compile_loops(LOOPS)
        build(given.out.resolve())
    finally:
        shutil.rmtree(LOOPS, ignore_errors=True)


if __name__ == "__main__":
    main()
