#!/usr/bin/env python3
"""How long the report of a profile answers a zoom, and what the page takes to open, in Chromium
without a window: report_bench.py PROGRAM [--spans N] [--json F]. PROGRAM is what
tests/report/report_program.cpp is compiled to."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "report")]
import browser  # noqa: E402

# From the key's handler to the end of the drawing that it causes, ms.
ZOOM = """new Promise(done => {
  const times = [];
  const canvas = document.querySelector('canvas');
  const keys = ['+', '+', '+', 'ArrowRight', '+', '+', '-', '-', 'ArrowLeft', '0'];
  for (let i = 0; i < %d; ++i) {
    const begin = performance.now();
    canvas.dispatchEvent(new KeyboardEvent('keydown', {key: keys[i %% keys.length]}));
    opkitReport.drawn();
    times.push(performance.now() - begin);
  }
  done(times);
})"""

arguments = argparse.ArgumentParser()
arguments.add_argument("program")
arguments.add_argument("--spans", type=int, default=200_000)
arguments.add_argument("--zooms", type=int, default=200)
options = arguments.parse_args()
if not browser.find():
    sys.exit("report_bench.py: there is no Chromium")
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "report.html"
    subprocess.run([options.program, path, str(options.spans)], check=True)
    begin = time.monotonic()
    with browser.Page(path) as page:
        opened = time.monotonic() - begin
        times = sorted(page.value(ZOOM % options.zooms))
        bars = page.value("opkitReport.bars")
        assert not page.errors, page.errors
    print(f"{bars} bars, {path.stat().st_size / 1e6:.1f} MB; the browser and the page open in "
          f"{opened:.2f} s; {len(times)} zooms: median {statistics.median(times):.1f} ms, "
          f"p99 {times[int(len(times) * 0.99)]:.1f} ms, longest {times[-1]:.1f} ms")
