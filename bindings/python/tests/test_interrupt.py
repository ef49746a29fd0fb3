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
    session = weft_nn.compile(weft_nn.Model.from_text(SLOW), device="interpreter")
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


def interrupted(work: str) -> float:
    """Seconds from the signal to the exception in a process that does `work` on SLOW, the variable `text` and the file
    `path`, again and again. It can run the model afterwards."""
    program = textwrap.dedent(
        """
        import signal, sys, tempfile, time
        import numpy as np
        import weft_nn
        # Where tests run in the background, children ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        text = sys.stdin.read()
        folder = tempfile.TemporaryDirectory()
        path = folder.name + "/slow.weft"
        open(path, "w").write(text)
        session = weft_nn.compile(weft_nn.Model.from_text(text), device="interpreter")
        x = np.zeros((768, 768), np.float32)
        call = "call_host @sleep %x {dtypes=[f32], shapes=[[768,768]]} : f32[768,768]"
        hosted = "graph @main(%x: f32[768,768]) -> (y: f32[768,768]) {\\n  %y = " + call + "\\n  return %y\\n}\\n"
        sleep = lambda x: time.sleep(5) or x
        hosted = weft_nn.compile(weft_nn.Model.from_text(hosted), host_functions={"sleep": sleep})
        print("works", flush=True)
        try:
            while True:
                WORK
        except KeyboardInterrupt:
            print("interrupted", time.time(), flush=True)
        session.run({"x": x})
        print("runs", flush=True)
        """
    ).replace("WORK", work)
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdin.write(SLOW)
    child.stdin.close()
    assert child.stdout.readline().strip() == "works"
    time.sleep(0.3)
    sent = time.time()
    child.send_signal(signal.SIGINT)
    word, when = child.stdout.readline().split()
    assert word == "interrupted"
    assert child.stdout.readline().strip() == "runs"
    assert child.wait(60) == 0
    return float(when) - sent


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    "work",
    [
        'session.run({"x": x})',
        'weft_nn.compile(weft_nn.Model.from_text(text), device="0")',
        'session.bench({"x": x})',
        'weft_nn.compile(weft_nn.Model.from_text(text), passes=[lambda module: time.sleep(5)])',
        'hosted.run({"x": x})',
        'weft_nn.bisect(path, device="cpu", folder=folder.name + "/found")',
        'weft_nn.tune(path, folder.name + "/tuning", device="cpu")',
    ],
)
def test_ctrl_c_ends_a_call_within_half_a_second(work):
    took = interrupted(work)
    assert took < 0.5, f"{took:.2f} s"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("lasts", ["while True: pass", "time.sleep(20)", "again_and_again(20)"])
@pytest.mark.parametrize("place", ["pass", "host function", "target"])
def test_the_program_ends_behind_an_interrupt(place, lasts):
    program = textwrap.dedent(
        """
        import os, signal, sys, threading, time
        import numpy as np
        import weft_nn
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def again_and_again(seconds):
            end = time.time() + seconds
            while time.time() < end:
                try:
                    while True:
                        time.sleep(0.001)
                except BaseException:
                    pass
        def lasting(x):
            LASTS
        class Target(weft_nn.ExternalTarget):
            name = "lasting"
            def supports(self, node, options):
                return True
            def prepare(self, region, options):
                return lasting
        weft_nn.register_target(Target)
        text = "graph @main(%x: f32[3]) -> (y: f32[3]) {\\n  %y = CALL : f32[3]\\n  return %y\\n}\\n"
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        plain = weft_nn.Model.from_text(text.replace("CALL", "exp %x"))
        try:
            if PLACE == "pass":
                weft_nn.compile(plain, device="cpu", passes=[lasting])
            elif PLACE == "target":
                weft_nn.compile(plain, device="cpu", external=["lasting"]).run({"x": np.ones(3, np.float32)})
            else:
                call = "call_host @lasting %x {dtypes=[f32], shapes=[[3]]}"
                model = weft_nn.Model.from_text(text.replace("CALL", call))
                weft_nn.compile(model, device="cpu", host_functions={"lasting": lasting}).run({"x": np.ones(3, np.float32)})
        except KeyboardInterrupt:
            print("interrupted", time.time(), flush=True)
        """
    ).replace("LASTS", lasts).replace("PLACE", repr(place))
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60)
    ended = time.time()
    word, when = done.stdout.split()
    assert (word, done.returncode) == ("interrupted", 0)
    assert ended - float(when) < 1.5, "nothing holds the end of the program up"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_nothing_goes_on_behind_an_interrupt():
    ticks = []

    def lasting(x):
        while True:
            ticks.append(1)
            time.sleep(0.001)

    text = "graph @main(%x: f32[3]) -> (y: f32[3]) {\n  %y = call_host @lasting %x {dtypes=[f32], shapes=[[3]]} : f32[3]\n  return %y\n}\n"
    session = weft_nn.compile(weft_nn.Model.from_text(text), device="cpu", host_functions={"lasting": lasting})
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            session.run({"x": np.ones(3, np.float32)})
    finally:
        signal.signal(signal.SIGINT, handler)
    time.sleep(0.3)
    seen = len(ticks)
    time.sleep(0.3)
    assert seen > 10 and len(ticks) == seen
