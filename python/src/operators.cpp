#include "operators.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "arrays.hpp"
#include "attributes.hpp"
#include "errors.hpp"
#include "opkit/base/suggest.hpp"
#include "opkit/export/core.hpp"
#include "opkit/op/op_registry.hpp"
#include "values.hpp"

namespace opkit_python {
namespace {

using namespace opkit;
using opkit::detail::CallKey;
using opkit::detail::ExportedOperator;
using opkit::detail::Lease;
using opkit::detail::OperatorPool;

// The operators that are ready for calls with the same attributes, inputs and dtypes.
struct ReadyOperators {
  ReadyOperators(const std::string& op, std::vector<int> present, Arguments arguments,
                 const InvokeOptions& options)
      : name(op),
        exported(name.c_str()),
        pool(exported, std::move(present), std::move(arguments), options) {}

  const std::string name;
  const ExportedOperator exported;
  OperatorPool pool;
};

// The most combinations of attributes and dtypes for which a function keeps operators.
constexpr size_t kMostKept = 128;

struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};

// A function of Python that calls an operator. The members need the GIL.
struct OperatorFunction {
  std::string name, doc;
  nb::object bound;  // the attributes of an opkit.Operator; a dict, or nothing
  std::string backends;
  PyMethodDef method{};
  const OpSchema* schema = nullptr;  // null until the next call
  // By CallKey.
  std::unordered_map<std::string, std::shared_ptr<ReadyOperators>, TextHash, std::equal_to<>> kept;
  uint64_t forgotten = 0;  // how often Forget was called

  const OpSchema& Schema() {
    if (!schema) schema = &OpRegistry::Global().GetSchema(name);
    return *schema;
  }
  void Forget() {
    ++forgotten;
    schema = nullptr;
    const auto dropped = std::move(kept);  // its end may run Python's code, which may call this
    kept.clear();
  }
};

// All functions, each until Python deletes it.
std::vector<OperatorFunction*>& Functions() {
  static auto* all = new std::vector<OperatorFunction*>;
  return *all;
}

// One call: its arguments by kind.
struct Call {
  std::vector<PyObject*> inputs;  // null or None: left out
  std::vector<std::pair<std::string_view, PyObject*>> attributes;
  PyObject* out = nullptr;
  int num_outputs = -1;
  PyObject* like = nullptr;  // the first input that decides the kind of the outputs
};

std::string_view TextOf(PyObject* name) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  if (!text) throw nb::python_error();
  return {text, static_cast<size_t>(size)};
}

[[noreturn]] void RefuseKeyword(OperatorFunction& function, std::string_view name) {
  std::vector<std::string> known;
  for (const auto& input : function.Schema().inputs()) known.push_back(input.name);
  for (const auto& attribute : function.Schema().attributes()) known.push_back(attribute.name);
  Throw(ErrorCode::kInvalidArgument, function.name, " has no input or attribute '", name, "'",
        SuggestName(name, known));
}

void AddKeyword(OperatorFunction& function, std::string_view name, PyObject* value, Call* call) {
  const OpSchema& schema = function.Schema();
  if (name == "out") {
    if (value != Py_None) call->out = value;
    return;
  }
  if (!schema.FindAttribute(name)) {
    const auto& inputs = schema.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].name != name) continue;
      if (i < call->inputs.size() && call->inputs[i])
        Throw(ErrorCode::kTypeMismatch, function.name, " got input '", name, "' twice");
      if (call->inputs.size() <= i) call->inputs.resize(i + 1, nullptr);
      call->inputs[i] = value;
      return;
    }
  }
  if (name == "num_outputs" && value != Py_None) {
    call->num_outputs = static_cast<int>(PyLong_AsLong(value));
    if (call->num_outputs == -1 && PyErr_Occurred()) throw nb::python_error();
    if (!schema.FindAttribute(name)) return;
  }
  if (!schema.FindAttribute(name) && !schema.TakesArgument("any attribute"))
    RefuseKeyword(function, name);
  if (value != Py_None) call->attributes.emplace_back(name, value);
}

std::shared_ptr<ReadyOperators> Make(OperatorFunction& function, const Call& call,
                                     const std::vector<Tensor>& inputs) {
  std::vector<int> present;
  InvokeOptions options;
  options.num_outputs = call.num_outputs;
  options.backends = function.backends;
  for (const Tensor& input : inputs) {
    present.push_back(input.dtype() != DType::kUndefined);
    if (present.back() && !options.device) options.device = input.device();
  }
  Arguments arguments;
  for (const auto& [name, value] : call.attributes) {
    const std::string text(name);
    arguments.Set(text, ToAttribute(&function.Schema(), text.c_str(), value));
  }
  const OpSchema& schema = function.Schema();
  if (options.num_outputs < 0 &&
      schema.CalculateOutput(static_cast<int>(inputs.size()), arguments) < 0)
    options.num_outputs = call.out && PyTuple_Check(call.out)
                              ? static_cast<int>(PyTuple_GET_SIZE(call.out))
                              : schema.min_outputs();  // without the optional results
  const std::string name = function.name;
  const nb::gil_scoped_release release;
  return std::make_shared<ReadyOperators>(name, std::move(present), std::move(arguments), options);
}

// Makes the key of a call's ready operators. Returns false if an attribute has no key.
bool MakeKey(const Call& call, const std::vector<Tensor>& inputs, CallKey* key) {
  key->Add(inputs.size());
  for (const Tensor& input : inputs) {
    key->Add(static_cast<char>(input.dtype()));
    key->Add(static_cast<char>(input.device().type));
  }
  key->Add(call.num_outputs);
  key->Add(call.out && PyTuple_Check(call.out) ? PyTuple_GET_SIZE(call.out) : Py_ssize_t{-1});
  for (const auto& [name, value] : call.attributes) {
    key->AddText(name);
    if (!AddToKey(value, key)) return false;
  }
  return true;
}

std::shared_ptr<ReadyOperators> Find(OperatorFunction& function, const Call& call,
                                     const std::vector<Tensor>& inputs) {
  CallKey key;
  if (!MakeKey(call, inputs, &key)) return Make(function, call, inputs);
  if (const auto found = function.kept.find(key.bytes()); found != function.kept.end()) [[likely]]
    return found->second;
  const uint64_t forgotten = function.forgotten;
  std::shared_ptr<ReadyOperators> made = Make(function, call, inputs);
  if (function.forgotten != forgotten) return made;  // a library came or went meanwhile
  if (function.kept.size() >= kMostKept) function.kept.clear();
  // Another thread may have been here meanwhile: its operators have the state of earlier calls.
  return function.kept.try_emplace(std::string(key.bytes()), std::move(made)).first->second;
}

// Returns the arrays of `out=`.
std::vector<Tensor> GivenOutputs(PyObject* out) {
  std::vector<Tensor> tensors;
  const auto add = [&](PyObject* array) {
    tensors.push_back(
        FromArray(array, StrCat("out[", tensors.size(), "]").c_str(), Access::kWrite));
  };
  if (!PyTuple_Check(out))
    add(out);
  else
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(out); ++i) add(PyTuple_GET_ITEM(out, i));
  return tensors;
}

// Runs one call with the tensors of Python's arrays, which it takes. Returns the results that have
// no given output.
std::vector<Tensor> RunReady(ReadyOperators& ready, std::vector<Tensor> inputs,
                             std::vector<Tensor> outputs, bool are_given) {
  std::vector<Tensor> results;
  std::optional<Lease> op;  // ends with the GIL: it lets go of Python's arrays
  const nb::gil_scoped_release release;
  op.emplace(ready.pool.Take());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype() != DType::kUndefined)
      (*op)->SetInput(static_cast<int>(i), std::move(inputs[i]));
  const int count = (*op)->num_outputs();
  if (are_given && outputs.size() != static_cast<size_t>(count))
    Throw(ErrorCode::kInvalidArgument, "out has ", outputs.size(), " arrays, but ", ready.name,
          " has ", count, " results");
  for (size_t i = 0; i < outputs.size(); ++i)
    (*op)->SetOutput(static_cast<int>(i), std::move(outputs[i]));
  (*op)->Run();
  if (!are_given)
    for (int i = 0; i < count; ++i) results.push_back((*op)->TakeOutput(i));
  return results;
}

PyObject* Run(OperatorFunction& function, PyObject* const* args, Py_ssize_t count,
              PyObject* keywords) {
  Call call;
  call.inputs.assign(args, args + count);
  if (function.bound.is_valid()) {
    PyObject *name, *value;
    Py_ssize_t place = 0;
    while (PyDict_Next(function.bound.ptr(), &place, &name, &value))
      AddKeyword(function, TextOf(name), value, &call);
  }
  if (keywords)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i)
      AddKeyword(function, TextOf(PyTuple_GET_ITEM(keywords, i)), args[count + i], &call);

  std::sort(call.attributes.begin(), call.attributes.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });

  std::vector<Tensor> inputs(call.inputs.size()), outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    PyObject* given = call.inputs[i];
    if (!given || given == Py_None) continue;
    if (!call.like) call.like = LikeOf(given);
    inputs[i] = FromValue(given, {function.name.c_str(), static_cast<int>(i)});
  }
  if (call.out) outputs = GivenOutputs(call.out);
  const std::shared_ptr<ReadyOperators> ready = Find(function, call, inputs);
  const std::vector<Tensor> results =
      RunReady(*ready, std::move(inputs), std::move(outputs), call.out != nullptr);
  if (call.out) {
    Py_INCREF(call.out);
    return call.out;
  }
  if (results.size() == 1) return ToValueLike(results[0], call.like).release().ptr();
  if (results.empty()) Py_RETURN_NONE;
  nb::list all;
  for (const Tensor& result : results) all.append(ToValueLike(result, call.like));
  return nb::tuple(all).release().ptr();
}

// The entry of CPython: `self` is a capsule of the OperatorFunction.
PyObject* Enter(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return Guarded([&] {
    auto* function = static_cast<OperatorFunction*>(PyCapsule_GetPointer(self, nullptr));
    return Run(*function, args, count, keywords);
  });
}

// Makes the function of an operator. `doc` begins with its signature, in the form that CPython's
// own functions have.
nb::object MakeFunction(const std::string& name, const std::string& doc, nb::object bound,
                        const std::string& backends) {
  auto made = std::make_unique<OperatorFunction>();
  made->name = name;
  made->doc = doc;
  made->backends = backends;
  if (!bound.is_none()) made->bound = bound;
  made->method = {made->name.c_str(),
                  reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&Enter)),
                  METH_FASTCALL | METH_KEYWORDS, made->doc.c_str()};
  PyObject* capsule = PyCapsule_New(made.get(), nullptr, [](PyObject* self) {
    auto* function = static_cast<OperatorFunction*>(PyCapsule_GetPointer(self, nullptr));
    std::erase(Functions(), function);
    delete function;
  });
  if (!capsule) throw nb::python_error();
  const nb::object owner = nb::steal(capsule);
  OperatorFunction* function = made.release();
  Functions().push_back(function);
  PyObject* module = PyUnicode_InternFromString("opkit.ops");
  PyObject* out = PyCFunction_NewEx(&function->method, capsule, module);
  Py_XDECREF(module);
  if (!out) throw nb::python_error();
  return nb::steal(out);
}

nb::list ValuesOf(const std::vector<opkit::detail::ValueSchema>& values) {
  nb::list out;
  for (const auto& value : values) {
    nb::dict item;
    item["name"] = value.name;
    item["doc"] = value.doc;
    nb::list dtypes;
    for (const DType dtype : value.dtypes) dtypes.append(ToString(dtype));
    item["dtypes"] = dtypes;
    out.append(item);
  }
  return out;
}

// Returns the facts of an operator's schema, for signatures and help.
nb::dict Describe(const std::string& name) {
  const OpSchema& schema = OpRegistry::Global().GetSchema(name);
  nb::dict out;
  out["name"] = name;
  out["doc"] = schema.doc();
  out["inputs"] = ValuesOf(schema.inputs());
  out["outputs"] = ValuesOf(schema.outputs());
  out["min_inputs"] = schema.min_inputs();
  out["max_inputs"] = schema.max_inputs();
  out["min_outputs"] = schema.min_outputs();
  out["max_outputs"] = schema.max_outputs();
  std::pair<int, int> arity = {-1, -1};
  try {
    arity = schema.Arity({});
  } catch (const Error&) {  // some attributes must be given
    // A library's function counts by its attributes. What it declares is the number in most cases.
    if (!schema.library_name().empty() && !schema.inputs().empty())
      arity = {static_cast<int>(schema.inputs().size()), static_cast<int>(schema.outputs().size())};
  }
  out["arity"] = arity.first;
  out["num_outputs"] = arity.second;
  out["takes_any_attribute"] = schema.TakesArgument("any attribute");
  out["origin"] = schema.library_name();
  nb::list attributes;
  for (const opkit::detail::AttributeSchema& attribute : schema.attributes()) {
    nb::dict item;
    item["name"] = attribute.name;
    item["doc"] = attribute.doc;
    item["required"] = attribute.required;
    item["type"] = attribute.type ? ToString(*attribute.type) : "any";
    item["values"] = attribute.values;
    if (attribute.default_value) item["default"] = FromAttribute(*attribute.default_value);
    attributes.append(item);
  }
  out["attributes"] = attributes;
  return out;
}

}  // namespace

void DropReadyOperators() {
  for (OperatorFunction* function : Functions()) function->Forget();
}

void BindOperators(nb::module_& m) {
  m.def("make_function", &MakeFunction, nb::arg("name"), nb::arg("doc"),
        nb::arg("bound").none() = nb::none(), nb::arg("backends") = "");
  m.def("describe", &Describe);
  m.def("operators", [] {
    std::vector<std::string> out;
    for (const std::string& name : RegisteredOperators())
      if (const OpSchema* schema = OpRegistry::Global().FindSchema(name);
          schema && !schema->is_private())
        out.push_back(name);
    return out;
  });
  m.def("drop_ready_operators", &DropReadyOperators);
}

}  // namespace opkit_python
