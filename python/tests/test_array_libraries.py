"""Arrays of other libraries, in and out, by DLPack. OPKIT_TEST_ARRAYS names the libraries that are here:
"jax,tvm_ffi"."""
import gc
import os
import sys
import types
import weakref

import numpy as np
import pytest

import opkit

HERE = [name for name in os.environ.get("OPKIT_TEST_ARRAYS", "").split(",") if name]
VALUES = np.array([[-1, 2, 3], [4, 5, 6]], np.float32)
with_jax = pytest.mark.skipif("jax" not in HERE, reason="this Python has no JAX")


class Fake:
    """An array of a library that NumPy does not know, with the newest DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, max_version=None, **options):
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldFake(Fake):
    """As of DLPack before version 1."""

    def __dlpack__(self):
        return self.array.__dlpack__()


def from_numpy(library, array):
    if library == "jax":
        import jax
        jax.config.update("jax_enable_x64", True)
        return jax.numpy.asarray(array)
    import tvm_ffi
    return tvm_ffi.from_dlpack(array)


@pytest.mark.parametrize("library", HERE)
def test_results_are_of_the_inputs_library(library):
    x = from_numpy(library, VALUES.copy())
    result = opkit.ops.Neg(x)
    assert type(result) is type(x)
    assert np.array_equal(np.from_dlpack(result), -VALUES)
    most, _ = opkit.ops.TopK(VALUES, from_numpy(library, np.array([1], np.int64)))
    assert type(most) is type(x)  # the first input that is not NumPy's decides
    graph = opkit.Graph().add_input("x", "float32", (2, 3)).add_node("Relu", "x", "y").add_output("y")
    result = opkit.Executor(graph.compile(threads=1)).run({"x": x})["y"]
    assert type(result) is type(x) and np.from_dlpack(result).tolist() == [[0, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("library", HERE)
def test_arrays_are_read_in_place(library):
    places = []

    @opkit.op(name=f"notes_its_place_{library}")
    def notes_its_place(x):
        places.append(x.ctypes.data)
        return x

    x = from_numpy(library, VALUES.copy())
    result = notes_its_place(x)
    assert places == [np.from_dlpack(x).ctypes.data]
    assert np.from_dlpack(result).ctypes.data not in places


@pytest.mark.parametrize("library", HERE)
def test_results_stay_valid(library):
    result = opkit.ops.Neg(from_numpy(library, VALUES.copy()))
    gc.collect()
    filler = [opkit.ops.Neg(VALUES) for _ in range(100)]
    assert np.array_equal(np.from_dlpack(result), -VALUES) and len(filler) == 100


@pytest.mark.parametrize("library", HERE)
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64"])
def test_dtypes(library, dtype):
    x = from_numpy(library, np.array([-1, 2], dtype))
    result = opkit.ops.Relu(x)
    assert type(result) is type(x) and str(result.dtype) == dtype
    assert np.from_dlpack(result).tolist() == [0, 2]


@with_jax
def test_bfloat16_and_bool_of_jax():
    import jax.numpy
    result = opkit.ops.Relu(jax.numpy.array([-1, 2], "bfloat16"))
    assert result.dtype == "bfloat16" and result.tolist() == [0, 2]
    result = opkit.ops.Not(jax.numpy.array([True, False]))
    assert result.dtype == bool and result.tolist() == [False, True]
    assert opkit.ops.Neg(jax.numpy.zeros((0, 3))).shape == (0, 3)
    assert opkit.ops.Neg(jax.numpy.float32(3)).shape == ()


@with_jax
def test_an_array_of_jax_is_never_written_to():
    import jax.numpy
    out = jax.numpy.zeros(3)
    with pytest.raises(ValueError, match=r"out\[0\] is an array of JAX, which never changes"):
        opkit.ops.Neg(VALUES[0], out=out)
    assert out.tolist() == [0, 0, 0]


@with_jax
def test_a_function_that_jax_compiles_is_an_error():
    import jax
    with pytest.raises(TypeError, match="traced"):
        jax.jit(opkit.ops.Neg)(jax.numpy.zeros(3))


@pytest.mark.skipif("tvm_ffi" not in HERE, reason="this Python has no tvm-ffi")
def test_an_out_of_tvm_ffi_is_written_to():
    out = from_numpy("tvm_ffi", np.zeros((2, 3), np.float32))
    assert opkit.ops.Neg(VALUES, out=out) is out
    assert np.array_equal(np.from_dlpack(out), -VALUES)


@pytest.mark.parametrize("kind", [Fake, OldFake])
def test_any_array_with_dlpack_is_read(kind):
    result = opkit.ops.Neg(kind(VALUES))
    assert type(result) is np.ndarray and np.array_equal(result, -VALUES)
    assert np.array_equal(opkit.ops.Neg(kind(VALUES.T)), -VALUES.T)
    source = VALUES.copy()
    alive = weakref.ref(source)
    opkit.ops.Neg(kind(source))
    del source
    gc.collect()
    assert alive() is None


def test_an_out_with_dlpack():
    out = np.zeros((2, 3), np.float32)
    given = Fake(out)
    assert opkit.ops.Neg(VALUES, out=given) is given and np.array_equal(out, -VALUES)
    wide = np.zeros((2, 6), np.float32)
    opkit.ops.Neg(VALUES, out=Fake(wide[:, ::2]))
    assert np.array_equal(wide[:, ::2], -VALUES) and not wide[:, 1::2].any()
    fixed = np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    assert np.array_equal(opkit.ops.Neg(Fake(fixed)), fixed)
    with pytest.raises(ValueError, match=r"out\[0\].*read-only"):
        opkit.ops.Neg(VALUES, out=Fake(fixed))
    assert not fixed.any()


def test_an_object_whose_dlpack_fails():
    class Fails(Fake):
        def __dlpack__(self, **options):
            raise RuntimeError("the device is lost")

    class NoCapsule(Fake):
        def __dlpack__(self, **options):
            return 3

    class Twice(Fake):
        def __dlpack__(self, **options):
            return capsule

    with pytest.raises(RuntimeError, match="the device is lost"):
        opkit.ops.Neg(Fails(VALUES))
    with pytest.raises((TypeError, ValueError), match="capsule|PyCapsule"):
        opkit.ops.Neg(NoCapsule(VALUES))
    capsule = VALUES.__dlpack__()
    assert np.array_equal(opkit.ops.Neg(Twice(VALUES)), -VALUES)
    with pytest.raises((TypeError, ValueError), match="capsule|PyCapsule"):
        opkit.ops.Neg(Twice(VALUES))


def test_results_have_no_stream(monkeypatch):
    """The array API standard: on the CPU only stream=None is accepted."""
    def from_dlpack(exported):
        for stream in (-1, 0, 1, 2**40):
            with pytest.raises(BufferError, match="no streams: expected stream=None"):
                exported.__dlpack__(stream=stream, max_version=(1, 1))
        assert np.array_equal(np.from_dlpack(exported), -VALUES)
        return exported.__dlpack__(stream=None)

    library = types.ModuleType("a_library")
    library.from_dlpack = from_dlpack
    monkeypatch.setitem(sys.modules, "a_library", library)
    Array = type("Array", (Fake,), {"__module__": "a_library"})
    assert "dltensor" in repr(opkit.ops.Neg(Array(VALUES)))
