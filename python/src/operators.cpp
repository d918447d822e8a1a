#include "operators.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "arrays.hpp"
#include "attributes.hpp"
#include "errors.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/op_registry.hpp"

namespace opkit_python {
namespace {

using namespace opkit;

// Operators with the same attributes, inputs and dtypes. All members need the GIL, except those of
// `turn`.
struct ReadyOperators {
  std::vector<std::unique_ptr<ResolvedOperator>> idle;  // of a stateless operator
  // The one operator that keeps state between calls: calls from several threads take turns.
  std::unique_ptr<ResolvedOperator> stateful;
  struct Turn {
    std::mutex mutex;
    std::condition_variable changed;
    std::thread::id holder;
  };
  std::unique_ptr<Turn> turn;
};

// The most combinations of attributes and dtypes for which a function keeps operators.
constexpr size_t kMostKept = 128;

// A function of Python that calls an operator.
struct OperatorFunction {
  std::string name, doc;
  nb::object bound;  // the attributes of an opkit.Operator; a dict, or nothing
  std::string backends;
  PyMethodDef method{};
  const OpSchema* schema = nullptr;  // null until the next call
  std::unordered_map<std::string, std::shared_ptr<ReadyOperators>> kept;

  void Forget() {
    kept.clear();
    schema = nullptr;
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

void AddKeyword(const OperatorFunction& function, std::string_view name, PyObject* value,
                Call* call) {
  const OpSchema& schema = *function.schema;
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
    if (name == "num_outputs") {
      call->num_outputs = PyLong_AsLong(value);
      if (call->num_outputs == -1 && PyErr_Occurred()) throw nb::python_error();
      return;
    }
  }
  if (value != Py_None) call->attributes.emplace_back(name, value);
}

Arguments ArgumentsOf(const OpSchema* schema, const Call& call) {
  Arguments out;
  for (const auto& [name, value] : call.attributes) {
    const std::string text(name);
    out.Set(text, ToAttribute(schema, text.c_str(), value));
  }
  return out;
}

std::unique_ptr<ResolvedOperator> Make(const OperatorFunction& function, const Call& call,
                                       const std::vector<Tensor>& inputs) {
  std::vector<int> present;
  for (const Tensor& input : inputs) present.push_back(input.dtype() != DType::kUndefined);
  Arguments arguments = ArgumentsOf(function.schema, call);
  InvokeOptions options;
  options.num_outputs = call.num_outputs;
  options.backends = function.backends;
  for (const Tensor& input : inputs) {
    if (input.dtype() == DType::kUndefined) continue;
    options.device = input.device();
    break;
  }
  const nb::gil_scoped_release release;
  return std::make_unique<ResolvedOperator>(function.name, present, std::move(arguments), options);
}

// Makes the key of a call's ready operators. Returns false if an attribute has no key.
bool MakeKey(const Call& call, const std::vector<Tensor>& inputs, std::string* key) {
  for (const Tensor& input : inputs) {
    key->push_back(static_cast<char>(input.dtype()));
    key->push_back(static_cast<char>(input.device().type));
  }
  key->push_back(static_cast<char>(call.num_outputs));
  for (const auto& [name, value] : call.attributes) {
    key->append(name);
    key->push_back('\0');
    if (!AddToKey(value, key)) return false;
  }
  return true;
}

// Runs without the GIL; the inputs' and outputs' Python objects are held by the caller.
void RunWith(ResolvedOperator& op, std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  if (outputs.empty()) outputs.resize(static_cast<size_t>(op.num_outputs()));
  const nb::gil_scoped_release release;
  op.Run(inputs, outputs);
}

void RunStateful(ReadyOperators& ready, std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  if (outputs.empty()) outputs.resize(static_cast<size_t>(ready.stateful->num_outputs()));
  const nb::gil_scoped_release release;
  ReadyOperators::Turn& turn = *ready.turn;
  {
    std::unique_lock lock(turn.mutex);
    if (turn.holder != std::this_thread::get_id())  // else the call below is refused
      turn.changed.wait(lock, [&] { return turn.holder == std::thread::id(); });
    else
      Throw(ErrorCode::kFailedPrecondition, "an operator with state calls itself");
    turn.holder = std::this_thread::get_id();
  }
  struct End {
    ReadyOperators::Turn& turn;
    ~End() {
      {
        const std::lock_guard lock(turn.mutex);
        turn.holder = {};
      }
      turn.changed.notify_one();
    }
  } end{turn};
  ready.stateful->Run(inputs, outputs);
}

void RunReady(OperatorFunction& function, const Call& call, std::vector<Tensor>& inputs,
              std::vector<Tensor>& outputs) {
  thread_local std::string key;
  key.clear();
  if (!MakeKey(call, inputs, &key)) {
    const std::unique_ptr<ResolvedOperator> once = Make(function, call, inputs);
    return RunWith(*once, inputs, outputs);
  }
  std::shared_ptr<ReadyOperators> ready;
  if (const auto found = function.kept.find(key); found != function.kept.end()) {
    ready = found->second;
  } else {
    if (function.kept.size() >= kMostKept) function.kept.clear();
    ready = function.kept[key] = std::make_shared<ReadyOperators>();
  }
  if (function.schema->is_stateful()) {
    if (!ready->stateful) {
      std::unique_ptr<ResolvedOperator> made = Make(function, call, inputs);
      if (!ready->stateful) {  // another thread may have been here meanwhile
        ready->turn = std::make_unique<ReadyOperators::Turn>();
        ready->stateful = std::move(made);
      }
    }
    return RunStateful(*ready, inputs, outputs);
  }
  std::unique_ptr<ResolvedOperator> op;
  if (ready->idle.empty()) {
    op = Make(function, call, inputs);
  } else {
    op = std::move(ready->idle.back());
    ready->idle.pop_back();
  }
  RunWith(*op, inputs, outputs);
  // After an Error the operator is dropped, as its next run would begin with what the error left.
  ready->idle.push_back(std::move(op));
}

// The arrays of `out=`, compared with what the inputs decide before anything runs.
class GivenOutputs {
 public:
  GivenOutputs(const OperatorFunction& function, const Call& call,
               const std::vector<Tensor>& inputs) {
    if (PyTuple_Check(call.out))
      for (nb::handle item : nb::borrow<nb::tuple>(call.out)) arrays_.push_back(item.ptr());
    else
      arrays_.push_back(call.out);
    for (size_t i = 0; i < arrays_.size(); ++i)
      tensors_.push_back(FromArray(arrays_[i], StrCat("out[", i, "]").c_str(), Access::kWrite));
    OperatorDef def(function.name);
    std::vector<TensorInfo> infos;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool present = inputs[i].dtype() != DType::kUndefined;
      def.Input(present ? StrCat("input", i) : std::string());
      TensorInfo info;
      if (present) {
        info = TensorInfo(inputs[i].dtype(), inputs[i].shape());
        info.device = inputs[i].device();
        info.constant = &inputs[i];
      }
      infos.push_back(std::move(info));
    }
    for (size_t i = 0; i < arrays_.size(); ++i) def.Output(StrCat("output", i));
    def.mutable_args() = ArgumentsOf(function.schema, call);
    std::vector<TensorInfo> expected;
    {
      const nb::gil_scoped_release release;
      if (const std::string wrong = function.schema->Verify(def); !wrong.empty())
        Throw(ErrorCode::kInvalidArgument, wrong);
      expected = function.schema->InferOutputs(def, std::move(infos));
    }
    for (size_t i = 0; i < arrays_.size() && i < expected.size(); ++i) Check(i, expected[i]);
  }

  // Returns the tensors for the run: the given memory, or nothing where a run cannot write to it.
  std::vector<Tensor> ForRun(const std::vector<Tensor>& inputs) const {
    std::vector<Tensor> out(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (IsWrittenDirectly(i, inputs)) out[i] = tensors_[i];
    return out;
  }
  // Copies the results that lie elsewhere.
  void Finish(const std::vector<Tensor>& results) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor& result = results[i];
      if (result.raw_data() == tensors_[i].raw_data()) continue;
      TensorInfo found(result.dtype(), result.shape());
      Check(i, found);
      if (IsNumPy(arrays_[i])) {
        CopyInto(arrays_[i], result);
      } else {
        Tensor view = tensors_[i];
        if (!view.is_dense())
          Throw(ErrorCode::kUnsupported, "out[", i, "] has strides; give a contiguous array");
        const Tensor dense = result.Contiguous();
        if (dense.nbytes() > 0)
          std::memcpy(view.raw_mutable_data(), dense.raw_data(),
                      static_cast<size_t>(dense.nbytes()));
      }
    }
  }

 private:
  void Check(size_t i, const TensorInfo& expected) const {
    const Tensor& given = tensors_[i];
    if (expected.dtype != DType::kUndefined && expected.dtype != given.dtype())
      Throw(ErrorCode::kTypeMismatch, "out[", i, "] is ", given.dtype(), ", the result is ",
            expected.dtype);
    const SymbolicShape& shape = expected.shape;
    if (shape.is_known() && shape.ToShape() != given.shape())
      Throw(ErrorCode::kInvalidArgument, "out[", i, "] has shape ", given.shape(),
            ", the result has ", shape.ToShape());
  }
  bool IsWrittenDirectly(size_t i, const std::vector<Tensor>& inputs) const {
    const Tensor& given = tensors_[i];
    if (!given.is_dense()) return false;
    for (const Tensor& input : inputs)
      if (input.initialized() && Overlap(given, input)) return false;
    for (size_t other = 0; other < i; ++other)
      if (Overlap(given, tensors_[other]))
        Throw(ErrorCode::kInvalidArgument, "out[", other, "] and out[", i, "] share memory");
    return true;
  }
  // Views of two arrays have storages of their own, so the addresses decide.
  static bool Overlap(const Tensor& a, const Tensor& b) {
    const auto begin = [](const Tensor& t) { return static_cast<const char*>(t.raw_data()); };
    const auto end = [](const Tensor& t) {
      return static_cast<const char*>(t.storage()->data()) + t.storage()->nbytes();
    };
    return a.numel() && b.numel() && begin(a) < end(b) && begin(b) < end(a);
  }

  std::vector<PyObject*> arrays_;
  std::vector<Tensor> tensors_;
};

// Returns the result as an array that shares no memory with the inputs.
nb::object Returned(const Tensor& result, const std::vector<Tensor>& inputs, PyObject* like) {
  for (const Tensor& input : inputs)
    if (result.storage() && result.storage() == input.storage())
      return ToArrayLike(result.Contiguous(), like);
  return ToArrayLike(result, like);
}

PyObject* Run(OperatorFunction& function, PyObject* const* args, Py_ssize_t count,
              PyObject* keywords) {
  if (!function.schema) function.schema = &OpRegistry::Global().GetSchema(function.name);
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

  std::vector<Tensor> inputs(call.inputs.size()), outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    PyObject* given = call.inputs[i];
    if (!given || given == Py_None) continue;
    if (!call.like && !IsNumPy(given)) call.like = given;
    inputs[i] = FromArray(given, {function.name.c_str(), static_cast<int>(i)});
  }
  if (!call.out) {
    RunReady(function, call, inputs, outputs);
    if (outputs.size() == 1) return Returned(outputs[0], inputs, call.like).release().ptr();
    if (outputs.empty()) Py_RETURN_NONE;
    nb::list all;
    for (const Tensor& output : outputs) all.append(Returned(output, inputs, call.like));
    return nb::tuple(all).release().ptr();
  }
  const GivenOutputs given(function, call, inputs);
  outputs = given.ForRun(inputs);
  RunReady(function, call, inputs, outputs);
  given.Finish(outputs);
  Py_INCREF(call.out);
  return call.out;
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
  int arity = -1;
  try {
    arity = schema.Arity({}).first;
  } catch (const Error&) {  // the attributes decide, and some must be given
  }
  out["arity"] = arity;
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
