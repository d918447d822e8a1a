#include "values.hpp"

#include <nanobind/stl/string.h>

#include <optional>

#include "opkit/core/sequence.hpp"

namespace opkit_python {
namespace {

using namespace opkit;

bool IsSequence(PyObject* value) { return PyList_Check(value) || PyTuple_Check(value); }

}  // namespace

Tensor FromValue(PyObject* value, const ArrayName& what) {
  if (!IsSequence(value)) [[likely]]
    return FromArray(value, what);
  std::vector<Tensor> elements;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
    elements.push_back(FromArray(PySequence_Fast_GET_ITEM(value, i),
                                 StrCat("element ", i, " of ", ToString(what)).c_str()));
  return MakeSequence(elements);
}

Tensor FromValue(PyObject* value, const ArrayName& what, const TensorInfo& declared) {
  if (declared.dtype != DType::kOptional) return FromValue(value, what);
  if (value == Py_None) return MakeOptional(std::nullopt);
  return MakeOptional(FromValue(value, what));
}

nb::object ToValueLike(const Tensor& value, PyObject* like) {
  if (value.dtype() != DType::kSequence && value.dtype() != DType::kOptional) [[likely]]
    return ToArrayLike(value, like);
  // An element may share its memory with an input or with another element.
  nb::list elements;
  for (const Tensor& element : ElementsOf(value))
    elements.append(ToValueLike(element.Contiguous(), like));
  if (value.dtype() == DType::kSequence) return elements;
  return elements.size() == 0 ? nb::none() : nb::object(elements[0]);
}

PyObject* LikeOf(PyObject* value) {
  if (IsNumPy(value) || value == Py_None) [[likely]]
    return nullptr;
  if (!IsSequence(value)) return value;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
    if (PyObject* like = LikeOf(PySequence_Fast_GET_ITEM(value, i))) return like;
  return nullptr;
}

TensorInfo InfoOf(nb::handle dtype, SymbolicShape shape) {
  TensorInfo info;
  std::string element;
  if (nb::isinstance<nb::str>(dtype)) {
    const std::string text = nb::cast<std::string>(dtype);
    for (const DType container : {DType::kSequence, DType::kOptional}) {
      const std::string begin = StrCat(container, "<");
      if (text.compare(0, begin.size(), begin) != 0 || text.back() != '>') continue;
      info.dtype = container;
      element = text.substr(begin.size(), text.size() - begin.size() - 1);
    }
    const size_t name = element.find("[]");
    if (info.dtype == DType::kOptional && name != element.npos && name + 2 == element.size()) {
      info.holds_sequence = true;
      element.resize(name);
    }
  }
  if (info.dtype == DType::kUndefined) return TensorInfo(DTypeOf(dtype), std::move(shape));
  info.element = DTypeOf(nb::str(element.c_str()));
  if (shape.has_rank())
    Throw(ErrorCode::kInvalidArgument, "the input is ", TypeText(info),
          ", which a run gives any number of elements; leave the shape away");
  info.shape = SymbolicShape(std::vector<Dim>{Dim()});
  return info;
}

std::string TypeText(const TensorInfo& info) {
  if (info.element == DType::kUndefined) return ToString(info.dtype);
  return StrCat(info.dtype, "<", info.element, info.holds_sequence ? "[]>" : ">");
}

}  // namespace opkit_python
