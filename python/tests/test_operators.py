"""opkit.ops: calls on NumPy arrays, signatures, out=, errors, libraries and sources."""
import inspect
import os
import subprocess

import ml_dtypes
import numpy as np
import pytest

import opkit
from conftest import SOURCE

A = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([[7], [8], [9]], np.float32)


def test_a_library_is_called_on_numpy_arrays(gemm):
    assert gemm.operators == ["my_gemm", "my_fast_gemm"]
    result = opkit.ops.my_gemm(A, B, alpha=2.0)
    assert type(result) is np.ndarray and result.dtype == np.float32
    assert result.tolist() == [[100], [244]]
    assert opkit.ops.my_gemm(A, B).tolist() == [[50], [122]]
    assert "my_gemm" in dir(opkit.ops)
    assert str(inspect.signature(opkit.ops.my_gemm)) == "(a, b, *, alpha=1.0, out=None)"
    assert "alpha: float, default 1.0. the factor" in opkit.ops.my_gemm.__doc__


def test_a_function_has_a_signature_and_help():
    signature = inspect.signature(opkit.ops.Gemm)
    assert str(signature) == \
        "(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0, out=None)"
    assert "alpha: float, default 1.0. factor of A' * B'" in opkit.ops.Gemm.__doc__
    assert opkit.ops.Gemm.__name__ == "Gemm" and opkit.ops.Gemm.__module__ == "opkit.ops"
    for name in opkit._core.operators():
        inspect.signature(opkit.ops.get(name))  # every operator's signature reads as Python


def test_a_function_is_looked_up_once_until_it_is_forgotten():
    function = opkit.ops.Relu
    assert vars(opkit.ops)["Relu"] is function is opkit.ops.get("Relu")
    opkit.ops._forget(["Relu", "get", "not there"])
    assert "Relu" not in vars(opkit.ops) and callable(opkit.ops.get)
    assert opkit.ops.Relu is not function


def test_inputs_may_be_keywords_and_left_out():
    c = np.ones((2, 1), np.float32)
    assert opkit.ops.Gemm(A, B, c).tolist() == [[51], [123]]
    assert opkit.ops.Gemm(A, B=B, C=c, beta=2).tolist() == [[52], [124]]
    assert opkit.ops.Gemm(A, B, None).tolist() == [[50], [122]]
    with pytest.raises(TypeError, match="input 'B' twice"):
        opkit.ops.Gemm(A, B, B=B)


@pytest.mark.parametrize("array", [
    np.asfortranarray(A), A[:, ::-1], A[::-1], A.astype(">f4"), np.broadcast_to(A[0], (2, 3)),
    np.lib.stride_tricks.as_strided(A, (2, 2), (12, 8))],
    ids=["fortran", "negative", "rows", "big endian", "broadcast", "gaps"])
def test_arrays_of_any_strides_and_byte_order(array):
    assert np.array_equal(opkit.ops.Neg(array), -array)


def unaligned(array):
    """A copy of a 1-D array at an odd address."""
    bytes_ = np.zeros(array.nbytes + 1, np.uint8)[1:]
    bytes_[...] = np.frombuffer(array.tobytes(), np.uint8)
    return bytes_.view(array.dtype)


def test_an_unaligned_array():
    array = unaligned(A.ravel())
    assert not array.flags.aligned
    assert np.array_equal(opkit.ops.Neg(array), -A.ravel())


def test_arrays_of_many_axes():
    assert opkit.ops.Neg(np.ones((1,) * 32, np.float32)).shape == (1,) * 32
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert opkit.ops.Neg(np.ones((1,) * 64, np.float32)).shape == (1,) * 64


@pytest.mark.parametrize("array, dtype", [
    (np.zeros(2, [("x", "f4")]), "x"), (np.zeros(2, np.longdouble), "float"),
    (np.zeros(2, "m8[s]"), "timedelta64")])
def test_a_dtype_that_opkit_lacks(array, dtype):
    with pytest.raises(TypeError, match=f"input 0 of Neg has the dtype .*{dtype}"):
        opkit.ops.Neg(array)


def test_read_only_scalar_and_empty_arrays():
    fixed = A.copy()
    fixed.flags.writeable = False
    assert np.array_equal(opkit.ops.Neg(fixed), -A)
    assert opkit.ops.Neg(np.float32(3)).shape == () and opkit.ops.Neg(np.float32(3)) == -3
    assert opkit.ops.Neg(np.empty((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64",
                                   ml_dtypes.bfloat16])
def test_dtypes_stay(dtype):
    x = np.array([-1, 2], dtype)
    result = opkit.ops.Relu(x)
    assert result.dtype == x.dtype and result.tolist() == [0, 2]


def test_a_result_shares_no_memory_with_an_input_and_is_the_caller_s():
    x = A.copy()
    for result in (opkit.ops.Identity(x), opkit.ops.Reshape(x, np.array([3, 2]))):
        assert not np.shares_memory(result, x)
        result[...] = 0
    assert np.array_equal(x, A)
    first, second = opkit.ops.Neg(x), opkit.ops.Neg(x)
    assert not np.shares_memory(first, second)


def test_out_gets_the_result():
    out = np.empty((2, 3), np.float32)
    assert opkit.ops.Neg(A, out=out) is out and np.array_equal(out, -A)
    wide = np.zeros((2, 6), np.float32)
    opkit.ops.Neg(A, out=wide[:, ::2])
    assert np.array_equal(wide[:, ::2], -A) and not wide[:, 1::2].any()
    x = A.copy()
    opkit.ops.Transpose(x, out=x.reshape(3, 2), perm=[1, 0])  # overlaps the input
    assert np.array_equal(x.reshape(3, 2), A.T)
    line = np.arange(4, dtype=np.float32)
    opkit.ops.Add(line[1:], line[:-1], out=line[1:])
    assert line.tolist() == [0, 1, 3, 5]
    point = np.empty((), np.float32)
    assert opkit.ops.Neg(np.float32(3), out=point) is point and point == -3


def test_out_may_be_several_arrays():
    out = np.empty((2, 1), np.float32), np.empty((2, 1), np.int64)
    assert opkit.ops.TopK(A, np.array([1]), out=out) is out
    assert out[0].tolist() == [[3], [6]] and out[1].tolist() == [[2], [2]]
    same = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="share memory"):
        opkit.ops.Split(A.ravel()[:4], out=(same, same), num_outputs=2)
    assert not same.any()


def test_optional_results():
    x = np.ones((1, 1, 2, 2), np.float32)
    assert opkit.ops.MaxPool(x, kernel_shape=[2, 2]).tolist() == [[[[1]]]]
    most, places = opkit.ops.MaxPool(x, kernel_shape=[2, 2], num_outputs=2)
    assert most.tolist() == [[[[1]]]] and places.tolist() == [[[[0]]]]
    assert "num_outputs" in inspect.signature(opkit.ops.MaxPool).parameters
    assert "num_outputs" not in inspect.signature(opkit.ops.Relu).parameters


@pytest.mark.parametrize("out, error, text", [
    (np.zeros((3, 3), np.float32), ValueError,
     r"is given as float32\[3, 3\], but the result is float32\[2, 3\]"),
    (np.zeros((2, 2), np.float32), ValueError, r"is given as float32\[2, 2\]"),
    (np.zeros((2, 3)), TypeError, r"is given as float64\[2, 3\], but the result is float32\[2, 3\]"),
    ((np.zeros((2, 3), np.float32),) * 2, ValueError, "out has 2 arrays, but Neg has 1 result"),
    ([1], TypeError, "is a list; expected an array")])
def test_a_wrong_out_is_an_error_before_the_run(out, error, text):
    with pytest.raises(error, match=text):
        opkit.ops.Neg(A, out=out)
    assert isinstance(out, list) or not np.any(out)


def test_an_out_that_cannot_be_written_to_is_an_error():
    fixed = np.zeros(3, np.float32)
    fixed.flags.writeable = False
    for out, text in [(fixed, "is read-only"), (np.zeros(3, ">f4"), "another byte order"),
                      (np.zeros(3, np.float32)[::-1], "negative strides"),
                      (unaligned(np.zeros(3, np.float32)), "unaligned address")]:
        with pytest.raises(ValueError, match=r"out\[0\] .*" + text):
            opkit.ops.Neg(A[0], out=out)
        assert not out.any()


@pytest.mark.parametrize("call, error, text", [
    (lambda: opkit.ops.Gemm(A, A), ValueError, "Gemm"),
    (lambda: opkit.ops.Gemm(A, B, alhpa=1.0), ValueError, "did you mean 'alpha'"),
    (lambda: opkit.ops.Gemm(a=A, B=B), ValueError, "no input or attribute 'a' .did you mean 'A'"),
    (lambda: opkit.ops.Gemm(A, B, alpha="x"), ValueError, "is string .*expected float"),
    (lambda: opkit.ops.Gemm(A, B, alpha={}), TypeError, "attribute 'alpha' is a dict"),
    (lambda: opkit.ops.Gemm(A), ValueError, "Gemm has 1 inputs"),
    (lambda: opkit.ops.Gemm([1], B), TypeError, "element 0 of input 0 of Gemm is a int"),
    (lambda: opkit.ops.Gemm([A], B), TypeError, "is sequence"),
    (lambda: opkit.ops.Gemm(A.astype("M8[s]"), B), TypeError, "dtype datetime64"),
    (lambda: opkit.ops.Gemn(A, B), AttributeError, "did you mean 'Gemm'"),
    (lambda: opkit.ops.Gemm(A, B, alpha=2**70), ValueError, "does not fit in 64 bits"),
    (lambda: opkit.Operator("Relu", backends="none")(A), LookupError, "no backend 'none'"),
    (lambda: opkit.Operator("Gemn"), LookupError, "no operator 'Gemn'"),
    (lambda: opkit.ops.ConstantOfShape(np.array([1 << 45])), MemoryError, "out of memory"),
    (lambda: opkit.load_onnx("no_such_file.onnx"), OSError, "no_such_file"),
    (lambda: opkit.load("no_such_file.so"), opkit.Error, "does not exist")])
def test_errors_are_python_s(call, error, text):
    with pytest.raises(error, match=text) as caught:
        call()
    assert isinstance(caught.value, (opkit.Error, AttributeError))


def test_flags_are_a_list():
    with pytest.raises(TypeError, match="a list of words"):
        opkit.load("ops.cc", flags="-O3")


def test_errors_of_an_operator(operators):
    for how, text in [("no memory", "bad_alloc"), ("FAIL", "the text of FAIL"),
                      ("exception", "the text of an exception")]:
        with pytest.raises(opkit.Error, match=text) as caught:
            opkit.ops.Fails(A, how=how)
        assert caught.value.code == "operator_failed"
    assert opkit.ops.Fails(A, how="not").shape == A.shape


def test_an_attribute_s_forms():
    x = A.reshape(1, 1, 2, 3)
    expected = opkit.ops.Transpose(x, perm=[3, 2, 1, 0])
    assert np.array_equal(opkit.ops.Transpose(x, perm=(3, 2, 1, 0)), expected)
    assert np.array_equal(opkit.ops.Transpose(x, perm=list(np.arange(4)[::-1])), expected)
    total = opkit.ops.ReduceSum(A, keepdims=False)  # declared as an int
    assert total.shape == () and total == 21


def test_several_results():
    first, second = opkit.ops.TopK(A, np.array([2]))
    assert first.tolist() == [[3, 2], [6, 5]] and second.tolist() == [[2, 1], [2, 1]]


def test_a_library_is_unloaded_and_loaded_again(gemm):
    path = gemm.path
    opkit.ops.my_gemm(A, B)
    call = opkit.ops.my_gemm
    gemm.unload()
    with pytest.raises(LookupError, match="my_gemm"):
        call(A, B)
    opkit.load(path)
    assert call(A, B).tolist() == [[50], [122]]


def test_a_source_is_compiled_when_it_is_loaded(operators):
    assert operators.operators == ["TimesK", "RunningSum", "WaitFor", "Fails"]
    assert opkit.ops.TimesK(A[0]).tolist() == [3, 6, 9]
    with pytest.raises(ValueError, match="FACTOR"):
        opkit.load(SOURCE, flags=["-O0"])
    with pytest.raises(ValueError, match="flags are for the compiler of a source"):
        opkit.load("lib.so", flags=["-O3"])


def test_a_library_for_mxnet_is_known_as_one(tmp_path):
    source, library = tmp_path / "old.c", tmp_path / "libold.so"
    source.write_text("int _opVersion(void) { return 7; }\n")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    with pytest.raises(opkit.UnsupportedError, match="version 7 of MXNet's extension interface"):
        opkit.load(str(library))
