"""Arrays of strings, and values that are sequences or optional: lists of arrays, and None."""
import numpy as np
import pytest

import opkit

WORDS = np.array(["red", "", "bl\u00fce"], object)
A, B = np.array([1, 2], np.float32), np.array([[3]], np.float32)


def strings_equal(array, expected):
    return array.dtype == object and all(type(x) is str for x in array.flat) and array.tolist() == expected


@pytest.mark.parametrize("array", [
    WORDS, WORDS.astype(str), WORDS[::-1][::-1], np.char.encode(WORDS.astype(str), "utf-8"),
    np.char.encode(WORDS.astype(str), "utf-8").astype(object)] +
    ([WORDS.astype(np.dtypes.StringDType())] if hasattr(np.dtypes, "StringDType") else []),
    ids=lambda array: str(array.dtype))
def test_arrays_of_strings(array):
    assert strings_equal(opkit.ops.StringConcat(array, array), ["redred", "", "bl\u00fcebl\u00fce"])


def test_shapes_of_strings():
    square = WORDS[[0, 1, 2, 0]].reshape(2, 2)
    assert strings_equal(opkit.ops.Transpose(square), [["red", "bl\u00fce"], ["", "red"]])
    assert strings_equal(opkit.ops.Identity(np.str_("one")), "one")
    assert opkit.ops.Identity(np.array([], str)).shape == (0,)
    assert strings_equal(opkit.ops.Cast(np.array([1, 2]), to=8), ["1", "2"])
    parts, counts = opkit.ops.StringSplit(np.array(["a b", "c"]), num_outputs=2)
    assert strings_equal(parts, [["a", "b"], ["c", ""]]) and counts.tolist() == [2, 1]


def test_a_result_of_strings_is_a_new_array():
    same = opkit.ops.Identity(WORDS)
    same[0] = "green"
    assert WORDS[0] == "red"
    with pytest.raises(opkit.UnsupportedError, match=r"out\[0\] is an array of strings"):
        opkit.ops.Identity(WORDS, out=np.empty(3, object))


def test_objects_that_are_no_strings():
    for value, kind in ((3, "int"), (None, "NoneType"), (A, "ndarray")):
        array = np.empty(2, object)
        array[:] = ["a", value]
        with pytest.raises(TypeError, match=f"element 1 of input 0 of Identity is a {kind}; expected a str"):
            opkit.ops.Identity(array)
    with pytest.raises(TypeError, match="input 0 'X' is string"):
        opkit.ops.Neg(WORDS)
    with pytest.raises(UnicodeEncodeError):
        opkit.ops.Identity(np.array(["\ud800"], object))


def test_sequences_are_lists():
    made = opkit.ops.SequenceConstruct(A, A)
    assert type(made) is list and [x.tolist() for x in made] == [[1, 2], [1, 2]]
    made[0][0] = 7  # shares its memory neither with an input nor with another element
    assert made[1][0] == A[0] == 1
    assert opkit.ops.SequenceLength([A, B]) == 2
    assert opkit.ops.SequenceLength((A,)) == 1
    assert opkit.ops.SequenceAt([A, B], np.array(-1)).tolist() == [[3]]
    assert opkit.ops.SequenceLength([A.astype(np.int64)]) == 1  # another type of elements, the same operator
    assert opkit.ops.SequenceEmpty() == []
    assert [x.tolist() for x in opkit.ops.SplitToSequence(A)] == [[1], [2]]
    assert opkit.ops.SequenceInsert([], WORDS)[0].tolist() == WORDS.tolist()
    with pytest.raises(TypeError, match="cannot have the element"):
        opkit.ops.SequenceLength([A, np.array([1])])
    with pytest.raises(TypeError, match="element 1 of input 0 of SequenceLength is a NoneType"):
        opkit.ops.SequenceLength([A, None])


def test_optional_values():
    assert opkit.ops.Optional(A).tolist() == [1, 2]
    assert [x.tolist() for x in opkit.ops.Optional([A])] == [[1, 2]]
    assert opkit.ops.OptionalHasElement() == False  # noqa: E712


def test_graphs_of_strings_sequences_and_optional_values():
    graph = opkit.Graph().add_input("words", "string", ("N",)).add_input("parts", "sequence<float32>")
    graph.add_input("maybe", "optional<float32>").add_input("list", "optional<int64[]>")
    graph.add_constant("suffix", np.array(["s"]))
    graph.add_node("StringConcat", ["words", "suffix"], "plural").add_output("plural")
    graph.add_node("Identity", "parts", "same").add_output("same")
    graph.add_node("OptionalHasElement", "maybe", "has").add_output("has")
    graph.add_node("Identity", "list", "listed").add_output("listed")
    assert [i[:2] for i in graph.inputs] == [("words", "string"), ("parts", "sequence<float32>"),
                                             ("maybe", "optional<float32>"), ("list", "optional<int64[]>")]
    executor = opkit.Executor(graph.compile())
    numbers = [np.array([1, 2]), np.array([[3]])]
    out = executor.run({"words": np.array(["dog"]), "parts": [A, B], "maybe": A, "list": numbers})
    assert strings_equal(out["plural"], ["dogs"])
    assert [x.tolist() for x in out["same"]] == [[1, 2], [[3]]] and out["has"]
    out["same"][0][0] = 9
    assert A[0] == 1
    assert [x.tolist() for x in out["listed"]] == [[1, 2], [[3]]]
    out = executor.run({"words": WORDS, "parts": [], "maybe": None, "list": None})
    assert out["plural"].tolist() == ["reds", "s", "bl\u00fces"]
    assert out["same"] == [] and not out["has"] and out["listed"] is None
    for wrong, error, text in (({"parts": A}, TypeError, "parts"), ({"parts": [numbers[0]]}, TypeError, "int64"),
                               ({"words": A}, TypeError, "words"), ({"maybe": [A]}, TypeError, "maybe"),
                               ({"parts": None}, TypeError, "input 'parts' is a NoneType")):
        with pytest.raises(error, match=text):
            executor.run({"words": WORDS, "parts": [A], "maybe": A, "list": None, **wrong})
    with pytest.raises(ValueError, match="leave the shape away"):
        opkit.Graph().add_input("parts", "sequence<float32>", (2,))
    with pytest.raises(TypeError, match="float99"):
        opkit.Graph().add_input("parts", "sequence<float99>")
    assert opkit.Graph().add_input("x", str).inputs[0][1] == "string"


def test_a_default_of_strings(tmp_path):
    graph = opkit.Graph().add_input("x", "string", (1,), default=np.array(["a"]))
    graph.add_node("Identity", "x", "y").add_output("y").save_onnx(str(tmp_path / "m.onnx"))
    again = opkit.load_onnx(tmp_path / "m.onnx")
    assert again.defaults["x"].tolist() == ["a"]
    assert opkit.Executor(again.compile()).run({})["y"].tolist() == ["a"]
