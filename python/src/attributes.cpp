#include "attributes.hpp"

#include "arrays.hpp"

namespace opkit_python {
namespace {

using namespace opkit;

bool IsScalar(nb::handle value) {
  return !PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr());
}

// Returns the value with NumPy's scalars as Python's.
nb::object Plain(nb::handle value) {
  PyObject* object = value.ptr();
  if (!PyBool_Check(object) && !PyLong_Check(object) && !PyFloat_Check(object) &&
      !PyUnicode_Check(object) && IsNumPy(object) && nb::hasattr(value, "ndim") &&
      nb::cast<int>(value.attr("ndim")) == 0)
    return value.attr("item")();
  return nb::borrow(value);
}

AttributeType TypeOf(const char* name, nb::handle value) {
  PyObject* object = value.ptr();
  if (PyBool_Check(object)) return AttributeType::kBool;
  if (PyLong_Check(object)) return AttributeType::kInt;
  if (PyFloat_Check(object)) return AttributeType::kFloat;
  if (PyUnicode_Check(object)) return AttributeType::kString;
  if (nb::hasattr(value, "__dlpack__")) return AttributeType::kTensor;
  Throw(ErrorCode::kTypeMismatch, "attribute '", name, "' is a ",
        nb::cast<std::string>(value.type().attr("__name__")),
        "; expected an int, float, bool, str, array, or a list of one of these");
}

int64_t ToInt(const char* name, nb::handle value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0)
    Throw(ErrorCode::kOutOfRange, "attribute '", name, "' does not fit in 64 bits");
  if (number == -1 && PyErr_Occurred()) throw nb::python_error();
  return number;
}
double ToDouble(nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred()) throw nb::python_error();
  return number;
}
std::string ToText(nb::handle value) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (!text) throw nb::python_error();
  return {text, static_cast<size_t>(size)};
}

template <class T, class Convert>
Attribute ListOf(const std::vector<nb::object>& items, Convert convert) {
  std::vector<T> out;
  for (const nb::object& item : items) out.push_back(convert(item));
  return Attribute(out);
}

}  // namespace

Attribute ToAttribute(const char* name, nb::handle given) {
  if (IsScalar(given)) {
    const nb::object value = Plain(given);
    switch (TypeOf(name, value)) {
      case AttributeType::kBool:
        return value.ptr() == Py_True;
      case AttributeType::kInt:
        return ToInt(name, value);
      case AttributeType::kFloat:
        return ToDouble(value);
      case AttributeType::kString:
        return ToText(value);
      default:
        return FromArray(value.ptr(), name).Contiguous();
    }
  }
  std::vector<nb::object> items;
  for (nb::handle item : given) items.push_back(Plain(item));
  if (items.empty()) return Attribute(std::vector<int64_t>());
  AttributeType type = TypeOf(name, items[0]);
  for (const nb::object& item : items) {
    const AttributeType other = TypeOf(name, item);
    const bool numbers = (type == AttributeType::kInt && other == AttributeType::kFloat) ||
                         (type == AttributeType::kFloat && other == AttributeType::kInt);
    if (numbers)
      type = AttributeType::kFloat;
    else if (other != type)
      Throw(ErrorCode::kTypeMismatch, "attribute '", name, "' is a list of ", ToString(type),
            " and ", ToString(other));
  }
  switch (type) {
    case AttributeType::kBool:
      return ListOf<bool>(items, [](nb::handle item) { return item.ptr() == Py_True; });
    case AttributeType::kInt:
      return ListOf<int64_t>(items, [&](nb::handle item) { return ToInt(name, item); });
    case AttributeType::kFloat:
      return ListOf<double>(items, ToDouble);
    case AttributeType::kString:
      return ListOf<std::string>(items, ToText);
    default:
      return ListOf<Tensor>(
          items, [&](nb::handle item) { return FromArray(item.ptr(), name).Contiguous(); });
  }
}

Attribute ToAttribute(const OpSchema* schema, const char* name, nb::handle value) {
  return opkit::detail::FitAttribute(schema ? schema->FindAttribute(name) : nullptr,
                                     ToAttribute(name, value));
}

nb::object FromAttribute(const Attribute& attribute) {
  const Attribute::Values& values = attribute.values();
  switch (attribute.type()) {
    case AttributeType::kBool:
      return nb::borrow(values.ints[0] != 0 ? Py_True : Py_False);
    case AttributeType::kBools: {
      nb::list out;
      for (const int64_t value : values.ints) out.append(nb::bool_(value != 0));
      return out;
    }
    case AttributeType::kInt:
    case AttributeType::kInts: {
      if (!attribute.is_list()) return nb::int_(values.ints[0]);
      nb::list out;
      for (const int64_t value : values.ints) out.append(nb::int_(value));
      return out;
    }
    case AttributeType::kFloat:
    case AttributeType::kFloats: {
      if (!attribute.is_list()) return nb::float_(values.floats[0]);
      nb::list out;
      for (const double value : values.floats) out.append(nb::float_(value));
      return out;
    }
    case AttributeType::kString:
    case AttributeType::kStrings: {
      if (!attribute.is_list()) return nb::str(values.strings[0].c_str());
      nb::list out;
      for (const std::string& value : values.strings) out.append(nb::str(value.c_str()));
      return out;
    }
    default:
      break;
  }
  if (!attribute.is_list()) return ToNumPy(values.tensors[0], Access::kRead);
  nb::list out;
  for (const Tensor& value : values.tensors) out.append(ToNumPy(value, Access::kRead));
  return out;
}

bool AddToKey(PyObject* value, opkit::detail::CallKey* key) {
  if (PyBool_Check(value)) return key->Add(value == Py_True ? 'T' : 'F'), true;
  if (PyFloat_CheckExact(value)) return key->Add('f'), key->Add(PyFloat_AS_DOUBLE(value)), true;
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && (key->Add('i'), key->Add(number), true);
  }
  if (PyUnicode_CheckExact(value)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &size);
    if (!text) PyErr_Clear();
    return text && (key->Add('s'), key->AddText({text, static_cast<size_t>(size)}), true);
  }
  if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value)) return false;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(value);
  key->Add('['), key->Add(size);
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!AddToKey(PySequence_Fast_GET_ITEM(value, i), key)) return false;
  return true;
}

}  // namespace opkit_python
