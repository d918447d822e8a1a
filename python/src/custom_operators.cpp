#include "custom_operators.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>

#include "arrays.hpp"
#include "attributes.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/function_op.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit_python {
namespace {

using namespace opkit;

// The functions of an operator that is written in Python. The operator's record holds this object
// as long as the process lives. A notebook that defines the operator again replaces the functions.
// The members need the GIL.
struct PythonFunctions {
  // Each calls a method of opkit._custom.CustomOperator:
  //   run(inputs, outputs, attributes), with arrays
  //   infer_shapes(shapes, attributes), infer_dtypes(dtypes, attributes)
  nb::object forward, backward, infer_shapes, infer_dtypes;
  std::vector<opkit::detail::AttributeSchema> attributes;
  std::string name;
  std::unique_ptr<FunctionOpBuilder> builder;

  void Drop() {
    forward.reset();
    backward.reset();
    infer_shapes.reset();
    infer_dtypes.reset();
  }
};

std::map<std::string, PythonFunctions*>& All() {
  static auto* all = new std::map<std::string, PythonFunctions*>;
  return *all;
}

nb::object ValueOf(const AttrMap& attrs, const opkit::detail::AttributeSchema& attribute) {
  const char* name = attribute.name.c_str();
  const auto list = [](const auto& values) {
    nb::list out;
    for (const auto& value : values) out.append(value);
    return nb::object(std::move(out));
  };
  switch (*attribute.type) {
    case AttributeType::kInt:
      return nb::int_(attrs.Get<int64_t>(name, 0));
    case AttributeType::kFloat:
      return nb::float_(attrs.Get<double>(name, 0));
    case AttributeType::kBool:
      return nb::bool_(attrs.Get<bool>(name, false));
    case AttributeType::kString:
      return nb::str(attrs.Get<std::string>(name, {}).c_str());
    case AttributeType::kInts:
      return list(attrs.Get<std::vector<int64_t>>(name, {}));
    case AttributeType::kFloats:
      return list(attrs.Get<std::vector<double>>(name, {}));
    case AttributeType::kStrings:
      return list(attrs.Get<std::vector<std::string>>(name, {}));
    default:
      Throw(ErrorCode::kUnsupported, "attribute '", name, "' is a ", *attribute.type);
  }
}

nb::dict AttributesOf(const PythonFunctions& functions, const AttrMap& attrs) {
  nb::dict out;
  for (const auto& attribute : functions.attributes)
    out[attribute.name.c_str()] = ValueOf(attrs, attribute);
  return out;
}

nb::object Called(const nb::object& function, const PythonFunctions& functions) {
  if (!function.is_valid())
    Throw(ErrorCode::kFailedPrecondition, "the Python function of ", functions.name,
          " is gone: the process ends");
  return function;
}

// Returns an array of a tensor's memory that stays valid after the call.
nb::object ArrayOf(const OpTensor& tensor, Access access) {
  if (!tensor.has_value()) return nb::none();
  if (tensor.tensor()) return ToNumPy(*tensor.tensor(), access);
  const Shape shape(tensor.shape());
  const Storage storage = AdoptStorage(tensor.device(), tensor.raw_data(), tensor.nbytes());
  const Tensor view(storage, 0, shape, tensor.dtype());
  return ToNumPy(access == Access::kRead ? view.Contiguous() : view, access);
}

ForwardFunction RunBy(PythonFunctions* functions, nb::object PythonFunctions::*which) {
  return [functions, which](const AttrMap& attrs, std::span<const OpTensor> inputs,
                            std::span<OpTensor> outputs, OpResource&) -> OpStatus {
    const nb::gil_scoped_acquire acquire;
    const nb::object function = Called(functions->*which, *functions);
    nb::list in, out;
    for (const OpTensor& input : inputs) in.append(ArrayOf(input, Access::kRead));
    for (const OpTensor& output : outputs)
      out.append(output.req() == OpReq::kNone ? nb::none() : ArrayOf(output, Access::kWrite));
    function(in, out, AttributesOf(*functions, attrs));
    return {};
  };
}

nb::list ShapesOf(const ShapeVectors& shapes) {
  nb::list out;
  for (const auto& shape : shapes) {
    nb::list dims;
    for (const int64_t extent : shape) dims.append(extent);
    out.append(nb::tuple(dims));
  }
  return out;
}

void SetInference(FunctionOpBuilder& builder, PythonFunctions* functions) {
  builder.setInferShape([functions](const AttrMap& attrs, ShapeVectors& in,
                                    ShapeVectors& out) -> OpStatus {
    const nb::gil_scoped_acquire acquire;
    const nb::object answer =
        Called(functions->infer_shapes, *functions)(ShapesOf(in), AttributesOf(*functions, attrs));
    out = nb::cast<ShapeVectors>(answer);
    return {};
  });
  builder.setInferType([functions](const AttrMap& attrs, std::vector<DType>& in,
                                   std::vector<DType>& out) -> OpStatus {
    const nb::gil_scoped_acquire acquire;
    nb::list names;
    for (const DType dtype : in) {
      if (dtype == DType::kUndefined) return {};
      names.append(ToString(dtype));
    }
    nb::object answer =
        Called(functions->infer_dtypes, *functions)(names, AttributesOf(*functions, attrs));
    size_t i = 0;
    for (nb::handle dtype : answer) {
      if (i == out.size()) break;
      out[i++] = DTypeOf(dtype);
    }
    return {};
  });
}

// Registers an operator, or gives a registered one its new functions.
void Register(const std::string& name, const std::string& doc, const std::string& file, int line,
              const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
              const nb::dict& attributes, bool stateful, nb::object forward,
              nb::object infer_shapes, nb::object infer_dtypes) {
  std::vector<opkit::detail::AttributeSchema> declared;
  for (auto [key, value] : attributes) {
    const std::string text = nb::cast<std::string>(key);
    Attribute fallback = ToAttribute(text.c_str(), value);
    declared.push_back({text, "", false, fallback.type(), fallback});
  }
  const auto known = All().find(name);
  if (known == All().end() && OpRegistry::Global().FindSchema(name))
    Throw(ErrorCode::kAlreadyExists, "there is an operator ", name,
          " already; choose another name");
  if (known != All().end()) {
    const OpSchema& schema = OpRegistry::Global().GetSchema(name);
    bool same = schema.inputs().size() == inputs.size() &&
                schema.outputs().size() == outputs.size() && schema.is_stateful() == stateful &&
                known->second->attributes.size() == declared.size();
    for (size_t i = 0; same && i < declared.size(); ++i) {
      const auto& old = known->second->attributes[i];
      same = old.name == declared[i].name && old.default_value == declared[i].default_value;
    }
    for (size_t i = 0; same && i < inputs.size(); ++i) same = schema.inputs()[i].name == inputs[i];
    if (!same)
      Throw(ErrorCode::kAlreadyExists, "operator ", name,
            " is defined again with other inputs, outputs or attributes; choose another name, or "
            "start Python again");
    known->second->forward = forward;
    known->second->infer_shapes = infer_shapes;
    known->second->infer_dtypes = infer_dtypes;
    return;
  }

  auto* functions = new PythonFunctions;  // lives as long as the registration: until the end
  functions->name = name;
  functions->forward = forward;
  functions->infer_shapes = infer_shapes;
  functions->infer_dtypes = infer_dtypes;
  functions->attributes = declared;
  // A schema keeps the pointer to the file's name.
  const char* place = (new std::string(file))->c_str();
  functions->builder = std::make_unique<FunctionOpBuilder>(name.c_str(), place, line);
  FunctionOpBuilder& builder = *functions->builder;
  builder.doc(doc.c_str());
  for (const std::string& input : inputs) builder.input(input.c_str());
  for (const std::string& output : outputs) builder.output(output.c_str());
  for (const auto& attribute : declared)
    builder.arg(attribute.name.c_str(), "", *attribute.default_value);
  if (stateful) builder.stateful();
  SetInference(builder, functions);
  builder.setForward(RunBy(functions, &PythonFunctions::forward));
  All()[name] = functions;
}

void SetBackward(const std::string& name, nb::object backward) {
  const auto found = All().find(name);
  if (found == All().end())
    Throw(ErrorCode::kNotFound, "no operator ", name, " is written in Python");
  PythonFunctions* functions = found->second;
  const bool first = !functions->backward.is_valid();
  functions->backward = backward;
  if (first) functions->builder->setBackward(RunBy(functions, &PythonFunctions::backward));
}

}  // namespace

void BindCustomOperators(nb::module_& m) {
  m.def("register_operator", &Register, nb::arg("name"), nb::arg("doc"), nb::arg("file"),
        nb::arg("line"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("attributes"),
        nb::arg("stateful"), nb::arg("forward"), nb::arg("infer_shapes"), nb::arg("infer_dtypes"));
  m.def("set_backward", &SetBackward, nb::arg("name"), nb::arg("backward"));
  // At the end of the process the operators let go of their Python functions.
  m.def("drop_python_functions", [] {
    for (const auto& [name, functions] : All()) functions->Drop();
  });
}

}  // namespace opkit_python
