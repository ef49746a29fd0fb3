"""Python's lock is free during a compilation and a run, and Ctrl-C ends them."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import weft_nn

# On the CPU executor this takes seconds.
SLOW = """
graph @main(%x: f32[768,768]) -> (y: f32[768,768]) {
  %a = matmul %x, %x : f32[768,768]
  %b = matmul %a, %x : f32[768,768]
  %c = matmul %b, %x : f32[768,768]
  %d = matmul %c, %x : f32[768,768]
  %e = matmul %d, %x : f32[768,768]
  %f = matmul %e, %x : f32[768,768]
  %g = exp %f : f32[768,768]
  %h = matmul %g, %x : f32[768,768]
  %y = matmul %h, %x : f32[768,768]
  return %y
}
"""


def test_another_thread_makes_progress_during_a_run():
    session = weft_nn.compile(weft_nn.Model.from_text(SLOW), device="cpu")
    x = np.zeros((768, 768), np.float32)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    other = threading.Thread(target=tick)
    other.start()
    start = time.monotonic()
    session.run({"x": x})
    end = time.monotonic()
    done.set()
    other.join()
    during = [t for t in ticks if start < t < end]
    assert len(during) > 10 * (end - start), f"{len(during)} ticks in {end - start:.2f} s"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_a_run_within_half_a_second():
    program = textwrap.dedent(
        """
        import sys, time
        import numpy as np
        import weft_nn
        session = weft_nn.compile(weft_nn.Model.from_text(sys.stdin.read()), device="cpu")
        x = np.zeros((768, 768), np.float32)
        print("runs", flush=True)
        try:
            while True:
                session.run({"x": x})
        except KeyboardInterrupt:
            print("interrupted", time.time(), flush=True)
        session.run({"x": x})
        print("runs again", flush=True)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child.stdin.write(SLOW)
    child.stdin.close()
    assert child.stdout.readline().strip() == "runs"
    time.sleep(0.3)
    sent = time.time()
    child.send_signal(signal.SIGINT)
    word, when = child.stdout.readline().split()
    assert word == "interrupted" and float(when) - sent < 0.5, f"{float(when) - sent:.2f} s"
    assert child.stdout.readline().strip() == "runs again"
    assert child.wait(60) == 0
