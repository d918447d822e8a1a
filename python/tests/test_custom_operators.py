"""opkit.op: operators that are written in Python."""
import numpy as np
import pytest

import opkit

X = np.array([-1, 2, 3], np.float32)


@opkit.op
def scaled_add(x, y, alpha=1.0):
    """alpha * x + y, where alpha * x is at least 0."""
    return opkit.ops.Relu(alpha * x) + y


@scaled_add.backward
def scaled_add_gradient(dz, x, y, z, alpha):
    return alpha * dz * (alpha * x > 0), dz


def test_it_is_called_by_both_names():
    assert scaled_add(X, X, alpha=2.0).tolist() == [-1, 6, 9]
    assert opkit.ops.scaled_add(X, y=X).tolist() == [-1, 4, 6]
    assert "alpha=1.0" in opkit.ops.scaled_add.__doc__ or \
        "default 1.0" in opkit.ops.scaled_add.__doc__


def test_its_gradient_in_a_graph():
    graph = (opkit.Graph().add_input("x", "float32", (3,)).add_input("y", "float32", (3,))
             .add_node("scaled_add", ["x", "y"], "z", alpha=3.0)
             .add_node("ReduceSum", "z", "loss", keepdims=0).add_output("loss"))
    gradients = graph.add_gradients("loss", ["x", "y"])
    for name in set(gradients.values()):
        graph.add_output(name)
    out = opkit.Executor(graph.compile(threads=1)).run({"x": X, "y": X})
    assert out["loss"] == 19
    assert out[gradients["x"]].tolist() == [0, 3, 3] and out[gradients["y"]].tolist() == [1, 1, 1]


def test_its_own_code_and_the_operators_that_it_calls_are_apart_in_a_profile():
    with opkit.profile() as report:
        for _ in range(5):
            scaled_add(X, X)
    rows = {row["name"]: row for row in report.rows()}
    assert rows["scaled_add"]["count"] == rows["scaled_add::Relu"]["count"] == 5
    assert rows["scaled_add"]["domain"] == "Custom Operators"
    own = rows["scaled_add"]["total_ns"] - rows["scaled_add"]["self_ns"]
    assert own == rows["scaled_add::Relu"]["total_ns"]


def test_shapes_and_dtypes_by_functions():
    @opkit.op(shape=lambda a, b, flip: (b[1], a[0]) if flip else (a[0], b[1]),
              dtype=lambda a, b: "float64")
    def product(a, b, flip=False):
        out = a.astype(np.float64) @ b
        return out.T if flip else out

    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    assert product(a, b).shape == (2, 4) and product(a, b).dtype == np.float64
    assert product(a, b, flip=True).shape == (4, 2)


def test_several_results_and_an_out():
    @opkit.op(outputs=["low", "high"], shape=lambda x: ((), ()))
    def bounds(x):
        return x.min(), x.max()

    @opkit.op(shape="y", dtype="y")
    def second(x, y, out):
        out[...] = y

    low, high = bounds(X)
    assert (low, high) == (-1, 3)
    assert second(X, np.array([7, 8])).tolist() == [7, 8]


def test_inputs_are_read_only():
    @opkit.op
    def writes(x):
        x[0] = 5
        return x

    with pytest.raises(ValueError, match="read-only"):
        writes(X)
    assert X[0] == -1


def test_an_exception_stays_itself_and_names_the_operator():
    @opkit.op
    def divides(x):
        return x / (1 // 0)

    with pytest.raises(ZeroDivisionError) as caught:
        divides(X)
    if hasattr(caught.value, "__notes__"):
        assert "in operator divides" in caught.value.__notes__[0]
    graph = opkit.Graph().add_input("x", "float32", (3,)).add_node("divides", "x", "y")
    graph.add_output("y")
    with pytest.raises(ZeroDivisionError):
        opkit.Executor(graph.compile()).run({"x": X})


def test_an_exception_in_the_backward_function_of_a_graph():
    @opkit.op
    def fails_backward(x):
        return 2 * x

    fails = [True]

    @fails_backward.backward
    def fails_backward_gradient(dy, x, y):
        if fails[0]:
            raise LookupError("no gradient today")
        return 2 * dy

    graph = (opkit.Graph().add_input("x", "float32", (3,)).add_node("fails_backward", "x", "y")
             .add_node("ReduceSum", "y", "loss", keepdims=0))
    [gradient] = graph.add_gradients("loss", ["x"]).values()
    executor = opkit.Executor(graph.add_output(gradient).compile(threads=2))
    for _ in range(2):
        with pytest.raises(LookupError, match="no gradient today") as caught:
            executor.run({"x": X})
        if hasattr(caught.value, "__notes__"):
            assert "fails_backward_backward" in caught.value.__notes__[0]
    fails[0] = False  # the executor runs again after an error
    assert executor.run({"x": X})[gradient].tolist() == [2, 2, 2]


def test_exceptions_that_are_no_errors():
    @opkit.op
    def leaves(x):
        raise SystemExit(7)

    @opkit.op(shape=lambda x: 1 // 0)
    def has_no_shape(x):
        return x

    @opkit.op(shape=lambda x: ("one",))
    def has_a_wrong_shape(x):
        return x

    @opkit.op(shape=lambda x: (3, 3), outputs=2)
    def has_one_shape_of_two(x):
        return x, x

    with pytest.raises(SystemExit) as caught:
        leaves(X)
    assert caught.value.code == 7
    with pytest.raises(ZeroDivisionError):
        has_no_shape(X)
    with pytest.raises(TypeError, match=r"returned \('one',\), expected a tuple of numbers"):
        has_a_wrong_shape(X)
    with pytest.raises(TypeError, match=r"returned \(3, 3\), expected 2 tuples of numbers"):
        has_one_shape_of_two(X)


@pytest.mark.parametrize("result, error, text", [
    (np.zeros(4, np.float32), ValueError, r"returned shape \(4,\) for result 0, expected \(3,\)"),
    (np.zeros(3), TypeError, "returned float64 for result 0, expected float32")])
def test_a_result_that_does_not_fit(result, error, text):
    returns_wrong.result = result
    with pytest.raises(error, match=text):
        returns_wrong(X)


@opkit.op
def returns_wrong(x):
    return returns_wrong.result


def test_a_second_definition_replaces_the_first():
    @opkit.op(name="defined_twice")
    def first(x, k=1):
        return x + k

    assert first(X).tolist() == [0, 3, 4]

    @opkit.op(name="defined_twice")
    def second(x, k=1):
        return x - k

    assert second(X).tolist() == first(X).tolist() == [-2, 1, 2]
    with pytest.raises(opkit.Error, match="other inputs, outputs or attributes"):
        @opkit.op(name="defined_twice")
        def third(x, y):
            return x
    assert first(X).tolist() == [-2, 1, 2]


def test_a_standard_name_is_refused():
    with pytest.raises(opkit.Error, match="there is an operator Relu already"):
        @opkit.op(name="Relu")
        def mine(x):
            return x
    assert opkit.ops.Relu(X).tolist() == [0, 2, 3]


@pytest.mark.parametrize("function, text", [
    (lambda: 1, "at least one input"), (lambda *x: x, "no parameter"),
    (lambda x, *, k: x, "needs a default")])
def test_a_function_that_is_no_operator(function, text):
    with pytest.raises(TypeError, match=text):
        opkit.op(function, name="no_operator")


def test_a_random_operator_is_never_merged():
    generator = np.random.default_rng(1)

    @opkit.op(stateful=True)
    def noise(x):
        return generator.random(x.shape, np.float32)

    graph = opkit.Graph().add_input("x", "float32", (3,)).add_node("noise", "x", "a")
    graph.add_node("noise", "x", "b").add_output("a").add_output("b")
    out = opkit.Executor(graph.compile(threads=1)).run({"x": X})
    assert not np.array_equal(out["a"], out["b"])
    assert not np.array_equal(noise(X), noise(X))
