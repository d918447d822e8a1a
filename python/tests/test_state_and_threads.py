"""State of operators, lifetimes of arrays, threads, and Ctrl-C."""
import gc
import importlib
import os
import signal
import threading
import weakref

import numpy as np
import pytest

import opkit

X = np.array([1, 2, 3], np.float32)


@pytest.fixture
def ctrl_c():
    """Lets SIGINT raise KeyboardInterrupt; a program in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def in_threads(count, work):
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as failure:  # handed over to the test
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_state_continues_from_call_to_call(operators):
    call = opkit.ops.RunningSum
    assert call(X, name="a").tolist() == [1, 2, 3]
    assert call(X, name="a").tolist() == [2, 4, 6]
    assert call(X, name="b").tolist() == [1, 2, 3]  # other attributes are another object


def test_an_operator_of_one_s_own_has_state_of_its_own(operators):
    first, second = opkit.Operator("RunningSum"), opkit.Operator("RunningSum")
    assert first(X).tolist() == [1, 2, 3] and first(X).tolist() == [2, 4, 6]
    assert second(X).tolist() == [1, 2, 3]


def test_a_random_operator_continues_and_a_seed_repeats():
    x, half, training = np.ones(64, np.float32), np.float32(0.5), np.array(True)
    call = opkit.ops.Dropout
    assert call(x, half, training).tolist() != call(x, half, training).tolist()
    assert call(x, half, training, seed=3).tolist() == call(x, half, training, seed=3).tolist()


def test_threads_share_an_operator_with_state(operators):
    total = opkit.Operator("RunningSum")
    in_threads(4, lambda number: [total(X) for _ in range(100)])
    assert total(X).tolist() == [401, 802, 1203]


def test_threads_call_one_operator_at_once():
    def work(number):
        x = np.full(1000 + number, number, np.float32)
        for _ in range(200):
            assert np.array_equal(opkit.ops.Add(x, x), x + x)
    in_threads(4, work)


def test_a_thread_proceeds_while_an_operator_runs(operators):
    flag = np.zeros(1, np.float32)
    # The operator ends because this thread runs. With the lock of the interpreter it would not.
    setter = threading.Thread(target=lambda: flag.__setitem__(0, 1))
    runner = threading.Thread(target=lambda: results.append(opkit.ops.WaitFor(flag)[0]))
    results = []
    runner.start()
    setter.start()
    runner.join()
    setter.join()
    assert results == [1]


def test_a_stateful_operator_that_calls_itself_is_an_error():
    @opkit.op(stateful=True)
    def calls_itself(x):
        return opkit.ops.calls_itself(x)

    with pytest.raises(opkit.Error, match="is called while a run of it waits"):
        calls_itself(X)


def test_ctrl_c_ends_a_call(operators, ctrl_c):
    flag = np.zeros(1, np.float32)

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        flag[0] = 1

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        opkit.ops.WaitFor(flag)
        thread.join()
        for _ in range(1000):  # the interpreter notices the signal at one of its next steps
            pass
    thread.join()
    assert opkit.ops.Neg(X).tolist() == [-1, -2, -3]


def test_ctrl_c_ends_an_operator_in_python(ctrl_c):
    @opkit.op
    def is_interrupted(x):
        signal.raise_signal(signal.SIGINT)
        return x

    with pytest.raises(KeyboardInterrupt):
        is_interrupted(X)
    graph = opkit.Graph().add_input("x", "float32", (3,)).add_node("is_interrupted", "x", "y")
    executor = opkit.Executor(graph.add_output("y").compile(threads=2))
    with pytest.raises(KeyboardInterrupt):
        executor.run({"x": X})


def test_inputs_and_outputs_are_released():
    for call in (lambda x: opkit.ops.Neg(x), lambda x: opkit.ops.Neg(X, out=x),
                 lambda x: opkit.ops.Neg(x, out=x)):
        x = np.ones(3, np.float32)
        alive = weakref.ref(x)
        call(x)
        del x
        gc.collect()
        assert alive() is None


def test_arrays_of_a_failed_call_are_released(operators):
    class Marked(np.ndarray):
        pass

    def fails(function):
        x = np.ones(3, np.float32).view(Marked)
        with pytest.raises((opkit.Error, ZeroDivisionError)):
            function(x)
        return weakref.ref(x)

    @opkit.op
    def divides_by_zero(x):
        return x / (1 // 0)

    for function in (lambda x: opkit.ops.Fails(x, how="FAIL"), divides_by_zero,
                     lambda x: opkit.ops.Gemm(x, x), lambda x: opkit.ops.Neg(X, out=x[:2])):
        alive = fails(function)
        gc.collect()
        assert alive() is None


def test_an_array_that_an_operator_keeps_stays_valid():
    kept = []

    @opkit.op
    def keeps_its_input(x, out):
        kept.append((x, out))
        out[...] = x

    def call():
        return keeps_its_input(np.arange(100000, dtype=np.float32), out=np.empty(100000, np.float32))

    call()
    gc.collect()
    filler = [np.full(100000, -1, np.float32) for _ in range(8)]
    assert np.array_equal(kept[0][0], np.arange(100000)) and len(filler) == 8
    assert np.array_equal(kept[0][1], np.arange(100000))
    result = opkit.ops.Neg(np.arange(3, dtype=np.float32))
    view = result[1:]
    del result
    gc.collect()
    assert view.tolist() == [-1, -2]


def test_an_array_may_vanish_during_its_call(operators):
    flag = np.zeros(1, np.float32)
    alive = weakref.ref(flag)
    address = flag.ctypes.data
    results = []
    thread = threading.Thread(target=lambda given: results.append(opkit.ops.WaitFor(given.pop())),
                              args=([flag],))
    thread.start()
    view = flag[:]
    del flag
    view[0] = 1
    thread.join()
    del view
    gc.collect()
    assert results[0].tolist() == [1] and results[0].ctypes.data != address
    assert alive() is None


def test_the_modules_are_reloaded(operators):
    importlib.reload(opkit.ops)
    importlib.reload(opkit)
    assert opkit.ops.Neg(X).tolist() == [-1, -2, -3]
    assert opkit.ops.TimesK(X).tolist() == [3, 6, 9]
