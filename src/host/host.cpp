// libopkit.so: the functions of opkit/abi/opkit_host.h. Each function checks its pointers, calls
// the toolkit, and turns an exception into a status and the thread's error text.
#include "opkit/abi/opkit_host.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "opkit/export/core.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes/pass_rules.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "opkit/interop/json.hpp"
#include "opkit/interop/mapped_file.hpp"
#include "opkit/interop/onnx.hpp"
#include "opkit/op/boundary/convert/abi_node.hpp"
#include "opkit/plugin/library.hpp"
#include "opkit/profile/profiler.hpp"

#include "host_json.hpp"

using namespace opkit;
using detail::ForeignTensor;
using detail::Index;
using host::Json;
using host::JsonObject;

namespace {

// A library that handles of the program hold. A library that another one has replaced is not loaded
// any more.
struct LoadedLibrary {
  Library library;
  int handles = 1;
};

}  // namespace

struct opkit_host_library {
  static constexpr const char* kKind = "library";
  const char* const kind = kKind;  // the first member of every handle
  std::shared_ptr<LoadedLibrary> loaded = {};
};

// The members are hidden outside of libopkit.so. The struct is not: a function with a parameter of
// a hidden type is hidden too.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
struct opkit_host_operator {
  opkit_host_operator(const char* op, std::vector<int> is_present, Arguments args, int num_outputs,
                      std::string backends)
      : name(op),
        exported(name.c_str()),
        present(std::move(is_present)),
        pool(exported, present, std::move(args),
             InvokeOptions{.backends = std::move(backends), .num_outputs = num_outputs}),
        outputs(Index(pool.Take()->num_outputs())) {}

  static constexpr const char* kKind = "operator";
  const char* const kind = kKind;
  const std::string name;
  const detail::ExportedOperator exported;
  const std::vector<int> present;
  detail::OperatorPool pool;
  const size_t outputs;
};
#pragma GCC diagnostic pop

struct opkit_host_graph {
  static constexpr const char* kKind = "graph";
  const char* const kind = kKind;
  Graph graph = {};
  std::vector<TensorInfo> outputs = {};  // unknown types if the graph cannot be inferred
};

struct opkit_host_plan {
  explicit opkit_host_plan(Plan made) : plan(std::move(made)) {
    idle.push_back(std::make_unique<Executor>(plan));
  }

  // Returns an executor that no other thread uses.
  std::unique_ptr<Executor> Take() {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        auto executor = std::move(idle.back());
        idle.pop_back();
        return executor;
      }
    }
    return std::make_unique<Executor>(plan);
  }
  void GiveBack(std::unique_ptr<Executor> executor) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(executor));
  }

  static constexpr const char* kKind = "plan";
  const char* const kind = kKind;
  const Plan plan;
  std::mutex mutex;  // guards `idle`
  std::vector<std::unique_ptr<Executor>> idle;
};

namespace {

thread_local std::string t_error;

// Returns OPKIT_OK, or the status of what `call` throws.
template <class F>
opkit_status Guard(F&& call) noexcept {
  return detail::GuardBoundary(
      [&]() -> opkit_status {
        call();
        return OPKIT_OK;
      },
      [](ErrorCode code, const char* text) -> opkit_status {
        try {
          t_error = text;
        } catch (...) {  // no memory for the text
          t_error.clear();
        }
        return detail::StatusOf(code);
      });
}

void CheckGiven(const void* pointer, const char* name) {
  if (!pointer) Throw(ErrorCode::kInvalidArgument, "the argument '", name, "' is null");
}

// The handles that the program has not freed.
std::mutex g_handles_mutex;
std::unordered_set<const void*>& Handles() {
  static auto* handles = new std::unordered_set<const void*>;
  return *handles;
}
template <class Handle>
Handle* NewHandle(std::unique_ptr<Handle> handle) {
  const std::lock_guard lock(g_handles_mutex);
  Handles().insert(handle.get());
  return handle.release();
}
template <class Handle>
bool IsHandle(const Handle* handle) {
  return handle && handle->kind == Handle::kKind;
}
// Throws for a handle of another type, which languages without types of pointers pass. The handle
// must not have been freed.
template <class Handle>
void CheckHandle(const Handle* handle, const char* name) {
  CheckGiven(handle, name);
  if (IsHandle(handle)) [[likely]]
    return;
  for (const char* const kind : {opkit_host_library::kKind, opkit_host_operator::kKind,
                                 opkit_host_graph::kKind, opkit_host_plan::kKind})
    if (handle->kind == kind)
      Throw(ErrorCode::kInvalidArgument, "the argument '", name, "' is the handle of a different ",
            "kind: ", kind);
  Throw(ErrorCode::kInvalidArgument, "the argument '", name, "' is no handle");
}
// Throws for a handle that is freed already, also if it looks like one, and for any other pointer.
template <class Handle>
void CheckLives(const Handle* handle, const char* name) {
  {
    const std::lock_guard lock(g_handles_mutex);
    if (!Handles().contains(handle))
      Throw(ErrorCode::kInvalidArgument, "the argument '", name,
            "' is no handle, or one that is freed already");
  }
  CheckHandle(handle, name);
}
template <class Handle>
void Free(Handle* handle, const char* name) {
  if (!handle) return;
  Guard([&] {
    CheckLives(handle, name);
    {
      const std::lock_guard lock(g_handles_mutex);
      Handles().erase(handle);
    }
    delete handle;
  });
}

// Sets a result to null before anything can fail.
template <class T>
void Clear(T** result, const char* name) {
  CheckGiven(result, name);
  *result = nullptr;
}

char* CopyText(std::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) Throw(ErrorCode::kOutOfMemory, "no memory for a text of ", text.size(), " bytes");
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}
// Replaces bytes that are not UTF-8, since docs come from libraries.
char* CopyJson(const Json& json) {
  return CopyText(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Throws kInvalidArgument for a negative extent, and kOutOfRange for a tensor that ends beyond 64
// bits.
void CheckExtents(const ForeignTensor& tensor) {
  for (int axis = 0; axis < tensor.rank; ++axis)
    if (tensor.shape[axis] < 0)
      Throw(ErrorCode::kInvalidArgument, "extent ", tensor.shape[axis], " of axis ", axis,
            " is negative");
  if (tensor.HasNoElements()) return;
  int64_t count = ItemSize(tensor.dtype), reach = 0;
  bool fits = true;
  for (int axis = 0; axis < tensor.rank && fits; ++axis) {
    const int64_t extent = tensor.shape[axis];
    fits = !__builtin_mul_overflow(count, extent, &count);
    if (!tensor.strides || extent == 1) continue;
    const int64_t stride = tensor.strides[axis];
    int64_t step = 0;
    fits = fits && stride != INT64_MIN &&
           !__builtin_mul_overflow(stride < 0 ? -stride : stride, extent - 1, &step) &&
           !__builtin_mul_overflow(step, ItemSize(tensor.dtype), &step) &&
           !__builtin_add_overflow(reach, step, &reach);
  }
  if (!fits)
    Throw(ErrorCode::kOutOfRange, "a tensor ", tensor.dtype,
          Dims(tensor.shape, static_cast<size_t>(tensor.rank)),
          " has more bytes than 64 bits count");
}

// Returns the caller's tensor, which is input or output i.
ForeignTensor ForeignOf(const opkit_dl_tensor& tensor, const char* what, size_t i) {
  return detail::AtPath(StrCat(what, " ", i), [&] {
    if (tensor.ndim < 0 || tensor.ndim > OPKIT_MAX_RANK || (tensor.ndim > 0 && !tensor.shape))
      Throw(ErrorCode::kInvalidArgument, "a tensor has ndim ", tensor.ndim,
            tensor.shape ? "" : " and no shape", "; ", OPKIT_MAX_RANK, " axes are the most");
    ForeignTensor out = detail::FromDLTensor(tensor);
    CheckExtents(out);
    if (static_cast<int32_t>(tensor.device.device_type) != OPKIT_CPU)
      Throw(ErrorCode::kUnsupported, "a tensor is on a device of DLPack's type ",
            static_cast<int32_t>(tensor.device.device_type),
            ", but libopkit.so runs on the CPU; copy it there first");
    return out;
  });
}
void CheckHasData(const ForeignTensor& tensor, const char* what, size_t i) {
  if (!tensor.data && !tensor.HasNoElements())
    Throw(ErrorCode::kInvalidArgument, what, " ", i, " has elements, but its data is null");
}

void CheckWritable(const ForeignTensor& tensor, size_t o) {
  for (int axis = 0; axis < tensor.rank && tensor.strides; ++axis)
    if (tensor.strides[axis] == 0 && tensor.shape[axis] > 1)
      Throw(ErrorCode::kInvalidArgument, "output ", o, " has stride 0 on axis ", axis,
            ": its elements share memory");
}

// The tensors of a call, checked before anything runs.
struct Call {
  Call(uint64_t num_inputs, const opkit_dl_tensor* const* given_inputs, uint64_t num_outputs,
       const opkit_dl_tensor* const* given_outputs, opkit_dl_managed_tensor** made,
       size_t expected_inputs, size_t expected_outputs)
      : made_(made) {
    if (made)
      for (uint64_t o = 0; o < num_outputs; ++o) made[o] = nullptr;
    const auto check = [](const char* what, uint64_t found, size_t expected) {
      if (found != expected)
        Throw(ErrorCode::kInvalidArgument, "expected ", expected, " ", what, ", found ", found);
    };
    check("inputs", num_inputs, expected_inputs);
    check("outputs", num_outputs, expected_outputs);
    if (num_inputs) CheckGiven(given_inputs, "inputs");
    for (size_t i = 0; i < num_inputs; ++i) {
      inputs.emplace_back();
      if (!given_inputs[i]) continue;
      inputs[i] = ForeignOf(*given_inputs[i], "input", i);
      CheckHasData(*inputs[i], "input", i);
    }
    for (size_t o = 0; o < num_outputs; ++o) {
      outputs.emplace_back();
      if (given_outputs && given_outputs[o]) {
        outputs[o] = ForeignOf(*given_outputs[o], "output", o);
        CheckHasData(*outputs[o], "output", o);
        CheckWritable(*outputs[o], o);
      } else if (!made) {
        Throw(ErrorCode::kInvalidArgument, "output ", o,
              " is not given, and the argument 'made' is null: the output would be lost");
      }
    }
  }

  // Hands the results for outputs that are not given to the caller: all, or none after an Error.
  void HandOut(std::vector<Tensor>& results) const {
    std::vector<std::unique_ptr<opkit_dl_managed_tensor, void (*)(opkit_dl_managed_tensor*)>> owned;
    for (size_t o = 0; o < results.size(); ++o)
      owned.emplace_back(
          outputs[o] ? nullptr : ToDLPackVersioned<opkit_dl_managed_tensor>(results[o]),
          [](opkit_dl_managed_tensor* tensor) { tensor->deleter(tensor); });
    for (size_t o = 0; made_ && o < owned.size(); ++o) made_[o] = owned[o].release();
  }

  std::vector<std::optional<ForeignTensor>> inputs,
      outputs;  // without a value: left out, not given

 private:
  opkit_dl_managed_tensor** const made_;
};

void RunOperator(opkit_host_operator& op, const Call& call) {
  const detail::Lease ready = op.pool.Take();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].has_value() != (op.present[i] != 0))
      Throw(ErrorCode::kInvalidArgument, "input ", i,
            op.present[i] ? " is null; an operator leaves an optional input out if its option "
                            "'present' says so"
                          : " is given, but the operator was made without it");
    if (call.inputs[i]) ready->SetInput(static_cast<int>(i), *call.inputs[i]);
  }
  for (size_t o = 0; o < call.outputs.size(); ++o)
    if (call.outputs[o]) ready->SetOutput(static_cast<int>(o), *call.outputs[o]);
  ready->Run();
  std::vector<Tensor> results(op.outputs);
  for (size_t o = 0; o < op.outputs; ++o)
    if (!call.outputs[o]) results[o] = ready->TakeOutput(static_cast<int>(o));
  call.HandOut(results);
}

// Infers as a run does. Throws the errors of the operator's inference.
void InferOperator(opkit_host_operator& op, const opkit_dl_tensor* const* inputs,
                   std::vector<TensorInfo>& outputs) {
  const detail::Lease ready = op.pool.Take();
  std::vector<Tensor> tensors(op.present.size());
  std::vector<TensorInfo> infos(op.present.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    if (!op.present[i]) continue;
    if (!inputs[i]) Throw(ErrorCode::kInvalidArgument, "input ", i, " is null");
    const ForeignTensor given = ForeignOf(*inputs[i], "input", i);
    if (given.data || given.HasNoElements()) {
      detail::ViewForeign(given, tensors[i]);
      infos[i] = TensorInfo::OfConstant(tensors[i]);
    } else {
      infos[i] = TensorInfo(given.dtype, Shape(given.shape, static_cast<size_t>(given.rank)));
    }
  }
  outputs = ready->schema().InferOutputs(ready->def(), std::move(infos));
}

void FillIn(const TensorInfo& info, opkit_value* value) {
  if (value->size == 0 || !OPKIT_ABI_HAS(value, dims))
    Throw(ErrorCode::kInvalidArgument, "an opkit_value has the size ", value->size,
          "; set it to sizeof(opkit_value) before the call");
  if (info.shape.has_rank() && info.shape.rank() > OPKIT_MAX_RANK)
    Throw(ErrorCode::kUnsupported, "a value has ", info.shape.rank(), " axes; ", OPKIT_MAX_RANK,
          " are the most");
  value->present = 1;
  value->dtype = info.dtype == DType::kUndefined ? -1 : static_cast<int32_t>(info.dtype);
  value->rank = info.shape.has_rank() ? info.shape.rank() : -1;
  for (int axis = 0; axis < value->rank; ++axis)
    value->dims[axis] = detail::AbiExtent(info.shape[axis]);
}

// Returns a view of the input.
Tensor InputOf(const ForeignTensor& given) {
  Tensor view;
  detail::ViewForeign(given, view);
  return view;
}

void CheckSameType(const Tensor& result, const ForeignTensor& given, const std::string& name) {
  const Shape shape(given.shape, static_cast<size_t>(given.rank));
  const bool same_type = result.dtype() == given.dtype;
  if (!same_type || result.shape() != shape)
    Throw(same_type ? ErrorCode::kInvalidArgument : ErrorCode::kTypeMismatch, "output '", name,
          "' of the graph is ", result.dtype(), result.shape(), ", but the tensor given is ",
          given.dtype, shape);
}

void RunGraph(opkit_host_plan& plan, const Call& call) {
  const Graph& graph = plan.plan.graph();
  std::vector<NamedTensor> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i])
      Throw(ErrorCode::kInvalidArgument, "input ", i, " '", graph.inputs()[i].name, "' is null");
    inputs.push_back({graph.inputs()[i].name, InputOf(*call.inputs[i])});
  }
  // An executor that failed is not given back, so that nothing of this call stays bound.
  std::unique_ptr<Executor> executor = plan.Take();
  std::vector<char> copied(call.outputs.size());  // outputs that the run cannot write in place
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    if (!call.outputs[o]) continue;
    const ForeignTensor& given = *call.outputs[o];
    const std::string& name = graph.outputs()[o];
    copied[o] = true;
    if (graph.Producer(name) >= 0) {
      Tensor view;
      copied[o] = !detail::ViewForeignOutput(given, view);
      // The executor compares what is bound with the plan before it runs.
      if (copied[o])
        view = Tensor(Shape(given.shape, static_cast<size_t>(given.rank)), given.dtype);
      executor->Bind(name, std::move(view));
    } else {
      for (const NamedTensor& input : inputs)  // the output is an input
        if (input.name == name) CheckSameType(input.tensor, given, name);
    }
  }
  std::vector<Tensor> results;
  for (const NamedTensor& output : executor->Run(inputs)) results.push_back(output.tensor);
  for (size_t o = 0; o < results.size(); ++o)
    if (copied[o]) CheckSameType(results[o], *call.outputs[o], graph.outputs()[o]);
  for (size_t o = 0; o < results.size(); ++o) {
    if (copied[o]) detail::CopyToForeign(results[o], *call.outputs[o]);
    if (!call.outputs[o]) {  // an output that is an input, or shares its memory
      for (const NamedTensor& input : inputs)
        if (results[o].SharesMemoryWith(input.tensor)) results[o] = results[o].Contiguous();
    } else if (graph.Producer(graph.outputs()[o]) >= 0) {
      executor->Bind(graph.outputs()[o], Tensor());
    }
  }
  call.HandOut(results);
  plan.GiveBack(std::move(executor));
}

PlanOptions PlanOptionsOf(const JsonObject& options) {
  PlanOptions plan;
  plan.threads = options.Read("threads", host::NumberFromJson, 0);
  plan.backends = host::BackendsFromJson(options);
  plan.schedule.deterministic = options.Read("deterministic", detail::BoolFromJson, false);
  plan.memory.capacity_bytes = options.Read("capacity_bytes", detail::IntFromJson, int64_t{0});
  const std::string use = options.Read("tuning", detail::StringFromJson, std::string("none"));
  using Use = PlanOptions::TuningOptions::Use;
  if (use == "cached" || use == "measure")
    plan.tuning.use = use == "cached" ? Use::kCached : Use::kMeasure;
  else if (use != "none")
    detail::ThrowAtPath(
        options.PathOf("tuning"),
        StrCat("expected \"none\", \"cached\" or \"measure\", found \"", use, "\""));
  plan.tuning.cache = options.Read("tuning_cache", detail::StringFromJson, std::string());
  plan.tuning.seconds = options.Read("tuning_seconds", detail::FloatFromJson, plan.tuning.seconds);
  return plan;
}

// Returns the graph with the shapes of the option `shapes`.
Graph WithShapes(const Graph& graph, const JsonObject& options) {
  std::vector<Graph::Input> inputs = graph.inputs();
  options.ForEachMember("shapes", [&](const std::string& name, const Json& json,
                                      const std::string& path) {
    std::vector<std::string> names;
    for (Graph::Input& input : inputs) {
      names.push_back(input.name);
      if (input.name != name) continue;
      const auto merged = SymbolicShape::Merge(input.info.shape, detail::ShapeFromJson(json, path));
      if (!merged) detail::ThrowAtPath(path, StrCat("the input is ", ToString(input.info.shape)));
      input.info.shape = *merged;
      return;
    }
    detail::ThrowAtPath(path, StrCat("the graph has no such input", SuggestName(name, names)),
                        ErrorCode::kNotFound);
  });
  return detail::WithInputs(graph, inputs);
}

// True for the toolkit's JSON. No ONNX model begins with a brace, which would be the number of no
// field of a ModelProto.
bool IsJson(std::string_view bytes) {
  const size_t begin = bytes.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && bytes[begin] == '{';
}
opkit_host_graph* NewGraph(Graph graph) {
  auto made = std::make_unique<opkit_host_graph>();
  made->graph = std::move(graph);
  made->outputs.resize(made->graph.outputs().size());
  try {
    const GraphView view(made->graph);
    const GraphTypes types = InferGraph(view);
    for (size_t o = 0; o < made->outputs.size(); ++o) {
      made->outputs[o] = types.Get(made->graph.outputs()[o]);
      made->outputs[o].constant = nullptr;
    }
  } catch (const Error&) {  // Compile reports it, with the shapes of its options
  }
  return NewHandle(std::move(made));
}

Json DescribeValue(const std::string& name, const TensorInfo& info) {
  return {{"name", name},
          {"dtype", info.dtype == DType::kUndefined ? Json(nullptr) : Json(ToString(info.dtype))},
          {"shape", detail::ToJson(info.shape)}};
}

[[noreturn]] void ThrowNoValue(const char* what, uint64_t i, size_t count) {
  Throw(ErrorCode::kOutOfRange, "there is no ", what, " ", i, ": the graph has ", count, " ", what,
        "s");
}

// The loaded libraries that have handles. A library may load or unload another one when it is
// loaded or unloaded itself, so the lock is recursive.
std::recursive_mutex g_libraries_mutex;
std::vector<std::shared_ptr<LoadedLibrary>>& Libraries() {
  static auto* libraries = new std::vector<std::shared_ptr<LoadedLibrary>>;
  return *libraries;
}

Library LoadOrBuild(const char* path, const BuildOptions& build, const LoadOptions& load) {
  if (!IsLibrarySource(path)) return Library::Load(path, load);
  try {
    return Library::Build(path, build, load);
  } catch (...) {
    // A new result that could not be loaded: the one before it is loaded again.
    for (const auto& loaded : Libraries())
      for (const Library& library : Library::All())
        if (!loaded->library.is_loaded() && loaded->library.path() == library.path())
          loaded->library = library;
    throw;
  }
}

}  // namespace

extern "C" {

uint32_t opkit_host_interface(void) { return OPKIT_HOST_INTERFACE; }
opkit_status opkit_host_require(uint32_t compiled) {
  return Guard([&] {
    constexpr uint32_t kMajor = OPKIT_HOST_MAJOR, kMinor = OPKIT_HOST_MINOR;
    const uint32_t major = compiled >> 16, minor = compiled & 0xffff;
    if (major == kMajor && minor <= kMinor) return;
    Throw(ErrorCode::kUnsupported, "the program was compiled with version ", major, ".", minor,
          " of opkit_host.h, but this libopkit.so, of opkit ", OPKIT_VERSION_STRING,
          ", has version ", kMajor, ".", kMinor, "; ",
          major < kMajor ? "compile the program again" : "install a newer libopkit.so");
  });
}
const char* opkit_host_version(void) { return OPKIT_VERSION_STRING; }
const char* opkit_host_error(void) { return t_error.c_str(); }
void opkit_host_free_text(char* text) { std::free(text); }

opkit_status opkit_host_load(const char* path, const char* options, opkit_host_library** library) {
  return Guard([&] {
    Clear(library, "library");
    CheckGiven(path, "path");
    const Json json = host::ReadJson(options, "options");
    const JsonObject object(
        json, "options",
        {"backend", "allow_override", "own_copy", "flags", "compiler", "include_dir", "cache_dir"});
    LoadOptions load;
    load.backend = object.Read("backend", detail::StringFromJson, std::string());
    load.allow_override = object.Read("allow_override", detail::BoolFromJson, false);
    load.own_copy = object.Read("own_copy", detail::BoolFromJson, false);
    BuildOptions build;
    if (object.Find("flags"))
      build.flags =
          host::ListOf(object.Get("flags"), object.PathOf("flags"), detail::StringFromJson);
    for (const auto& [name, value] :
         {std::pair("compiler", &build.compiler), std::pair("include_dir", &build.include_dir),
          std::pair("cache_dir", &build.cache_dir)})
      *value = object.Read(name, detail::StringFromJson, std::string());
    for (const char* name : {"flags", "compiler", "include_dir", "cache_dir"})
      if (object.Find(name) && !IsLibrarySource(path))
        detail::ThrowAtPath(object.PathOf(name),
                            StrCat("is for a source, and ", path, " is not one"));
    auto made = std::make_unique<opkit_host_library>();
    // Other threads need not wait for the compiler: Library::Build then finds the result.
    if (IsLibrarySource(path)) static_cast<void>(BuildLibrary(path, build));
    const std::lock_guard lock(g_libraries_mutex);
    const Library loaded = LoadOrBuild(path, build, load);
    for (const auto& known : Libraries())
      if (known->library == loaded) made->loaded = known;
    if (made->loaded)
      ++made->loaded->handles;
    else
      made->loaded =
          Libraries().emplace_back(std::make_shared<LoadedLibrary>(LoadedLibrary{loaded}));
    *library = NewHandle(std::move(made));
  });
}

opkit_status opkit_host_unload(opkit_host_library* library) {
  return Guard([&] {
    if (!library) return;
    CheckLives(library, "library");
    {
      const std::lock_guard lock(g_libraries_mutex);
      LoadedLibrary& loaded = *library->loaded;
      if (loaded.handles == 1 && loaded.library.is_loaded()) loaded.library.Unload();
      --loaded.handles;
      std::erase_if(Libraries(), [](const auto& row) { return row->handles == 0; });
    }
    Free(library, "library");
  });
}

opkit_status opkit_host_operators(const opkit_host_library* library, char** json) {
  return Guard([&] {
    Clear(json, "json");
    if (library) CheckHandle(library, "library");
    std::optional<Library> loaded;
    if (library) {
      const std::lock_guard lock(g_libraries_mutex);
      loaded = library->loaded->library;
    }
    const detail::RegistryUse use;
    const OpRegistry& registry = OpRegistry::Global();
    Json out = Json::array();
    for (const std::string& name : loaded ? loaded->operators() : registry.Operators())
      if (const OpSchema* schema = registry.FindSchema(name); schema && !schema->is_private())
        out.push_back(host::DescribeOperator(*schema));
    *json = CopyJson(out);
  });
}

opkit_status opkit_host_make(const char* op, uint64_t num_inputs, const char* attributes,
                             const char* options, opkit_host_operator** made) {
  return Guard([&] {
    Clear(made, "made");
    CheckGiven(op, "op");
    if (num_inputs > host::kMostInputs)
      Throw(ErrorCode::kInvalidArgument, num_inputs, " inputs are more than ", host::kMostInputs);
    const Json json = host::ReadJson(options, "options");
    const JsonObject object(json, "options", {"backends", "num_outputs", "present"});
    std::vector<int> present(num_inputs, 1);
    if (const Json* given = object.Find("present")) {
      const auto is_present = host::ListOf(*given, object.PathOf("present"), detail::BoolFromJson);
      if (is_present.size() != num_inputs)
        detail::ThrowAtPath(
            object.PathOf("present"),
            StrCat("has ", is_present.size(), " elements for ", num_inputs, " inputs"));
      present.assign(is_present.begin(), is_present.end());
    }
    const int num_outputs = object.Read("num_outputs", host::NumberFromJson, -1);
    if (num_outputs > host::kMostInputs)
      detail::ThrowAtPath(object.PathOf("num_outputs"),
                          StrCat("is ", num_outputs, ", more than ", host::kMostInputs),
                          ErrorCode::kOutOfRange);
    std::string backends;
    for (const std::string& name : host::BackendsFromJson(object))
      backends += (backends.empty() ? "" : ",") + name;
    *made = NewHandle(std::make_unique<opkit_host_operator>(op, std::move(present),
                                                            host::AttributesOf(op, attributes),
                                                            num_outputs, std::move(backends)));
  });
}

void opkit_host_free_operator(opkit_host_operator* op) { Free(op, "op"); }
uint64_t opkit_host_num_outputs(const opkit_host_operator* op) {
  return IsHandle(op) ? op->outputs : 0;
}

opkit_status opkit_host_infer(opkit_host_operator* op, uint64_t num_inputs,
                              const opkit_dl_tensor* const* inputs, uint64_t num_outputs,
                              opkit_value* outputs) {
  return Guard([&] {
    CheckHandle(op, "op");
    if (num_inputs) CheckGiven(inputs, "inputs");
    if (num_outputs) CheckGiven(outputs, "outputs");
    if (num_inputs != op->present.size() || num_outputs != op->outputs)
      Throw(ErrorCode::kInvalidArgument, "expected ", op->present.size(), " inputs and ",
            op->outputs, " outputs, found ", num_inputs, " and ", num_outputs);
    std::vector<TensorInfo> infos;
    InferOperator(*op, inputs, infos);
    for (size_t o = 0; o < infos.size(); ++o) FillIn(infos[o], opkit_value_at(outputs, o));
  });
}

opkit_status opkit_host_run(opkit_host_operator* op, uint64_t num_inputs,
                            const opkit_dl_tensor* const* inputs, uint64_t num_outputs,
                            const opkit_dl_tensor* const* outputs, opkit_dl_managed_tensor** made) {
  return Guard([&] {
    CheckHandle(op, "op");
    RunOperator(
        *op, Call(num_inputs, inputs, num_outputs, outputs, made, op->present.size(), op->outputs));
  });
}

opkit_status opkit_host_load_graph(const char* path, opkit_host_graph** graph) {
  return Guard([&] {
    Clear(graph, "graph");
    CheckGiven(path, "path");
    const Storage file = MapFile(path);
    if (IsJson(BytesOf(file)))
      *graph = NewGraph(detail::AtPath(path, [&] { return LoadGraphJson(BytesOf(file)); }));
    else
      *graph = NewGraph(LoadOnnx(path));
  });
}

opkit_status opkit_host_parse_graph(const void* bytes, uint64_t num_bytes, const char* folder,
                                    opkit_host_graph** graph) {
  return Guard([&] {
    Clear(graph, "graph");
    CheckGiven(bytes, "bytes");
    const std::string_view text(static_cast<const char*>(bytes), num_bytes);
    *graph = NewGraph(IsJson(text) ? LoadGraphJson(text)
                                   : ParseOnnxModel(text, {}, folder ? folder : "").graph);
  });
}

void opkit_host_free_graph(opkit_host_graph* graph) { Free(graph, "graph"); }

opkit_status opkit_host_describe_graph(const opkit_host_graph* graph, char** json) {
  return Guard([&] {
    Clear(json, "json");
    CheckHandle(graph, "graph");
    Json inputs = Json::array(), outputs = Json::array();
    for (const Graph::Input& input : graph->graph.inputs())
      inputs.push_back(DescribeValue(input.name, input.info));
    for (size_t o = 0; o < graph->outputs.size(); ++o)
      outputs.push_back(DescribeValue(graph->graph.outputs()[o], graph->outputs[o]));
    *json = CopyJson({{"inputs", std::move(inputs)},
                      {"outputs", std::move(outputs)},
                      {"num_nodes", graph->graph.num_nodes()}});
  });
}

uint64_t opkit_host_graph_num_inputs(const opkit_host_graph* graph) {
  return IsHandle(graph) ? graph->graph.inputs().size() : 0;
}
uint64_t opkit_host_graph_num_outputs(const opkit_host_graph* graph) {
  return IsHandle(graph) ? graph->outputs.size() : 0;
}

opkit_status opkit_host_graph_input(const opkit_host_graph* graph, uint64_t i, const char** name,
                                    opkit_value* value) {
  return Guard([&] {
    Clear(name, "name");
    CheckHandle(graph, "graph");
    const auto& inputs = graph->graph.inputs();
    if (i >= inputs.size()) ThrowNoValue("input", i, inputs.size());
    if (value) FillIn(inputs[i].info, value);
    *name = inputs[i].name.c_str();
  });
}
opkit_status opkit_host_graph_output(const opkit_host_graph* graph, uint64_t i, const char** name,
                                     opkit_value* value) {
  return Guard([&] {
    Clear(name, "name");
    CheckHandle(graph, "graph");
    if (i >= graph->outputs.size()) ThrowNoValue("output", i, graph->outputs.size());
    if (value) FillIn(graph->outputs[i], value);
    *name = graph->graph.outputs()[i].c_str();
  });
}

opkit_status opkit_host_compile(const opkit_host_graph* graph, const char* options,
                                opkit_host_plan** plan) {
  return Guard([&] {
    Clear(plan, "plan");
    CheckHandle(graph, "graph");
    const Json json = host::ReadJson(options, "options");
    const JsonObject object(json, "options",
                            {"threads", "backends", "shapes", "deterministic", "capacity_bytes",
                             "tuning", "tuning_cache", "tuning_seconds"});
    const PlanOptions made = PlanOptionsOf(object);
    *plan = NewHandle(
        std::make_unique<opkit_host_plan>(Compile(WithShapes(graph->graph, object), made)));
  });
}

void opkit_host_free_plan(opkit_host_plan* plan) { Free(plan, "plan"); }

opkit_status opkit_host_run_plan(opkit_host_plan* plan, uint64_t num_inputs,
                                 const opkit_dl_tensor* const* inputs, uint64_t num_outputs,
                                 const opkit_dl_tensor* const* outputs,
                                 opkit_dl_managed_tensor** made) {
  return Guard([&] {
    CheckHandle(plan, "plan");
    const Graph& graph = plan->plan.graph();
    RunGraph(*plan, Call(num_inputs, inputs, num_outputs, outputs, made, graph.inputs().size(),
                         graph.outputs().size()));
  });
}

opkit_status opkit_host_start_profile(void) {
  return Guard([] { Profiler::Start(); });
}
opkit_status opkit_host_stop_profile(char** text) {
  return Guard([&] {
    if (text) *text = nullptr;
    if (!Profiler::IsRunning())
      Throw(ErrorCode::kFailedPrecondition, "no profile runs; call opkit_host_start_profile first");
    Profiler::Stop();
    if (text) *text = CopyText(ToString(MakeProfileTable(Profiler::Read())));
  });
}

}  // extern "C"
