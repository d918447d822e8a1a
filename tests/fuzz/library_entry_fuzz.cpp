// A library described by any bytes, with null pointers, wrong sizes, counts and names, and
// functions that fail, throw, answer absurdly and call the host with any arguments: it is refused
// with an Error, or runs to an Error or a result; and whatever it was, nothing of it is left
// registered.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "host_calls.hpp"
#include "opkit/graph.hpp"
#include "opkit/ops/control_flow.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/plugin.hpp"
#include "small_memory.hpp"

namespace {

// How a function ends.
opkit_status Answer() {
  const uint8_t how = In().Byte() % 32;
  if (how == 31) throw std::runtime_error("thrown");
  if (how == 30) throw 5;
  if (how == 29)
    WithText(
        [](const char* text, uint64_t size) { g_host->set_error(OPKIT_NOT_FOUND, text, size); });
  if (how >= 26) return static_cast<opkit_status>(In().Number());
  return OPKIT_OK;
}
void Answer(opkit_value* values, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    opkit_value& value = *opkit_value_at(values, i);
    if (In().Rarely()) value.dtype = In().Small();
    value.rank = In().Mostly(1, In().Small());
    for (int64_t& extent : value.dims) extent = 3;
    if (In().Rarely())
      for (int64_t& extent : value.dims) extent = In().Number();
  }
}
opkit_status ParseAttrs(const opkit_op*, const opkit_node*, int32_t* inputs, int32_t* outputs) {
  *inputs = In().Mostly(1, In().Small());
  *outputs = In().Mostly(1, In().Small());
  return Answer();
}
opkit_status Infer(const opkit_op*, const opkit_node* node, opkit_value* inputs,
                   opkit_value* outputs) {
  if (In().Rarely()) Answer(inputs, node->num_inputs);
  Answer(outputs, node->num_outputs);
  return Answer();
}
opkit_status InferType(const opkit_op*, const opkit_node* node, opkit_value*,
                       opkit_value* outputs) {
  for (uint64_t i = 0; i < node->num_outputs; ++i)
    opkit_value_at(outputs, i)->dtype = In().Mostly<int32_t>(OPKIT_FLOAT32, In().Small());
  return Answer();
}
opkit_status Mutated(const opkit_op*, const opkit_node* node, uint8_t* mutated) {
  for (uint64_t i = 0; i < node->num_inputs; ++i) mutated[i] = In().Rarely();
  return Answer();
}
opkit_status Scratch(const opkit_op*, const opkit_node*, const opkit_value*, int64_t* bytes) {
  *bytes = In().Mostly(int64_t{64}, In().Number());
  return Answer();
}
opkit_status Cost(const opkit_op*, const opkit_node*, const opkit_value*, const opkit_value*,
                  opkit_cost* cost) {
  cost->flops = static_cast<uint64_t>(In().Number());
  return Answer();
}
opkit_status Create(const opkit_kernel*, const opkit_node*, void** instance) {
  *instance = new int(7);
  const opkit_status status = [&] {
    try {
      return Answer();
    } catch (...) {
      delete static_cast<int*>(*instance);
      throw;
    }
  }();
  if (status != OPKIT_OK) delete static_cast<int*>(*instance);
  return status;
}
void Destroy(void* instance) {
  delete static_cast<int*>(instance);
  if (In().Rarely()) throw 5;
}
opkit_status Gradient(const opkit_op*, const opkit_gradient* gradient) {
  for (int calls = In().Byte() % 8; calls > 0; --calls) CallGradient(gradient);
  return Answer();
}
opkit_status Run(void*, const opkit_call* call) {
  for (int calls = In().Byte() % 8; calls > 0; --calls) CallHost(call);
  if (call->scratch) std::memset(call->scratch, 1, static_cast<size_t>(call->scratch_bytes));
  for (uint64_t i = 0; i < call->num_outputs; ++i) {
    const opkit_tensor& out = *opkit_output(call, i);
    if (out.data && opkit_numel(&out) > 0)
      std::memset(out.data, 0, static_cast<size_t>(opkit_numel(&out)));  // a byte for each
  }
  return Answer();
}

struct Description {
  opkit_library library{};
  opkit_op ops[3]{};
  const opkit_op* op_pointers[3]{};
  opkit_kernel kernels[3][2]{};
  const opkit_kernel* kernel_pointers[3][2]{};
  int32_t inplace[2]{};
  opkit_parameter parameter{};
  const opkit_parameter* parameters[1]{};
  opkit_attr attr{};
  int64_t ints[2] = {1, 0};
  double floats[2] = {0.5, 2};
  const char* strings[2] = {"a", "bc"};
  uint64_t string_sizes[2] = {1, 2};
  int64_t shape[1] = {1}, strides[1] = {1};
  float element = 1;
  opkit_tensor tensor{};
  const opkit_tensor* tensors[2] = {&tensor, nullptr};
};
Description* g_description = nullptr;

const opkit_library* Entry(const opkit_host* host) {
  g_host = host;
  if (In().Rarely()) throw std::runtime_error("no entry");
  if (In().Rarely()) return nullptr;
  return &g_description->library;
}

// Counts are too large only where the host must refuse them before it reads, or are those of the
// arrays behind.
uint64_t Count(uint64_t right) {
  constexpr uint64_t kAbsurd[] = {0, 1, uint64_t{1} << 32, UINT64_MAX};
  if (!In().Rarely()) return right;
  const uint64_t count = In().Of(kAbsurd);
  return count <= 1 && count > right ? right : count;
}
uint64_t Size(uint64_t right) {
  const uint64_t kSizes[] = {right + 8, 0, 8, right - 8, right - 1, UINT64_MAX};
  return In().Rarely() ? In().Of(kSizes) : right;
}

void Fill(Description& d) {
  static const std::string kLong(300, 'x');
  const char* const kNames[] = {
      "FuzzedB", "FuzzedA", "",     "a::b",        "with space",      "\x01",
      "ok.name", nullptr,   "\xff", kLong.c_str(), "FuzzedA_backward"};
  const char* const kDevices[] = {"cpu", "cpu_stream", "gpu", "tpu", "", nullptr};
  constexpr uint64_t kFlags[] = {OPKIT_OP_ASYNC,
                                 OPKIT_OP_ALLOCATES_OUTPUTS,
                                 OPKIT_OP_CLOSED_ATTRS,
                                 OPKIT_OP_ACCEPTS_STRIDES,
                                 OPKIT_OP_ACCEPTS_ADD,
                                 OPKIT_OP_EFFECTS,
                                 OPKIT_OP_SUBGRAPH,
                                 OPKIT_OP_NO_GRADIENT,
                                 OPKIT_OP_SHOULD_NOT_GRADIENT,
                                 OPKIT_OP_GRADIENT_NOT_IMPLEMENTED,
                                 OPKIT_OP_OPEN_ATTRS};
  Bytes& in = In();
  d.library.size = Size(sizeof d.library);
  d.library.abi_major = in.Mostly(uint32_t{OPKIT_ABI_MAJOR}, uint32_t{in.Byte()});
  d.library.abi_minor = in.Byte();
  d.library.name = in.Mostly<const char*>(nullptr, in.Of(kNames));
  d.library.version = in.Mostly("1.0", static_cast<const char*>(nullptr));
  if (in.Rarely()) d.library.initialize = [](uint32_t, uint32_t) { return Answer(); };
  if (in.Rarely())
    d.library.finalize = [] {
      if (In().Rarely()) throw 5;
    };
  d.library.num_ops = Count(1 + in.Byte() % 3);
  d.library.ops = in.Rarely() ? nullptr : d.op_pointers;
  d.library.num_partitioners = in.Mostly(uint64_t{0}, uint64_t{1});
  for (size_t o = 0; o < 3; ++o) {
    opkit_op& op = d.ops[o];
    d.op_pointers[o] = in.Rarely() ? nullptr : &op;
    op.size = Size(sizeof op);
    op.name = o == 0 && !in.Rarely() ? "FuzzedA" : in.Of(kNames);
    op.doc = in.Mostly("doc", static_cast<const char*>(nullptr));
    op.line = in.Small();
    op.flags = in.Byte() % 2 ? in.Of(kFlags) : 0;
    if (in.Rarely()) op.flags |= uint64_t{in.Byte()} << in.Byte() % 57;
    op.num_kernels = Count(1 + in.Byte() % 2);
    op.kernels = in.Rarely() ? nullptr : d.kernel_pointers[o];
    for (size_t k = 0; k < 2; ++k) {
      opkit_kernel& kernel = d.kernels[o][k];
      d.kernel_pointers[o][k] = in.Rarely() ? nullptr : &kernel;
      kernel.size = Size(sizeof kernel);
      kernel.device = in.Rarely() ? in.Of(kDevices) : kDevices[k];
      kernel.forward = in.Rarely() ? nullptr : &Run;
      if (in.Byte() % 4 == 3) kernel.backward = &Run;
      if (in.Byte() % 4 == 3) {
        kernel.create = &Create;
        kernel.destroy = &Destroy;
      }
      kernel.flags = in.Byte() % 2;
      kernel.backend = in.Rarely() ? in.Of(kNames) : nullptr;
    }
    op.num_inplace = in.Rarely() ? Count(1) : 0;
    op.inplace = in.Rarely() ? nullptr : d.inplace;
    op.parse_attrs = in.Rarely() ? nullptr : &ParseAttrs;
    if (in.Byte() % 2) op.infer_type = &InferType;
    op.infer_shape = in.Rarely() ? nullptr : &Infer;
    if (in.Rarely()) op.mutated_inputs = &Mutated;
    if (in.Rarely()) op.scratch_bytes = &Scratch;
    if (in.Rarely()) op.cost = &Cost;
    op.num_attrs = in.Byte() % 4 == 3 ? Count(1) : 0;
    op.attrs = in.Rarely() ? nullptr : d.parameters;
    op.num_inputs = in.Rarely() ? Count(1) : 0;
    op.inputs = in.Rarely() ? nullptr : d.parameters;
    if (in.Byte() % 2) op.gradient = &Gradient;
  }
  d.inplace[0] = in.Mostly(0, in.Small());
  d.inplace[1] = in.Mostly(0, in.Small());
  d.parameters[0] = in.Rarely() ? nullptr : &d.parameter;
  d.parameter.size = Size(sizeof d.parameter);
  d.parameter.name = in.Mostly("p", static_cast<const char*>(nullptr));
  d.parameter.type = in.Mostly(-1, in.Small());
  d.parameter.required = in.Rarely();
  d.parameter.dtypes = uint64_t{in.Byte()} << in.Byte() % 57;
  d.parameter.default_value = in.Byte() % 2 ? &d.attr : nullptr;
  opkit_attr& attr = d.attr;
  attr.size = Size(sizeof attr);
  attr.name = in.Mostly("p", static_cast<const char*>(nullptr));
  attr.type = in.Rarely() ? in.Small() : in.Byte() % 10;
  attr.count = Count(attr.type < OPKIT_ATTR_INTS ? 1 : in.Byte() % (attr.type % 5 == 4 ? 2 : 3));
  attr.ints = in.Rarely() ? nullptr : d.ints;
  attr.floats = in.Rarely() ? nullptr : d.floats;
  d.strings[1] = in.Mostly("bc", static_cast<const char*>(nullptr));
  attr.strings = in.Rarely() ? nullptr : d.strings;
  attr.string_sizes = in.Rarely() ? nullptr : d.string_sizes;
  attr.tensors = in.Rarely() ? nullptr : d.tensors;
  attr.text = "1";
  d.tensor.size = Size(sizeof d.tensor);
  d.tensor.data = in.Rarely() ? nullptr : &d.element;
  d.tensor.shape = in.Rarely() ? nullptr : d.shape;
  d.tensor.strides = in.Rarely() ? nullptr : d.strides;
  d.tensor.rank = in.Rarely() ? in.Of({0, 1, -1, 33, INT32_MAX}) : 1;
  d.tensor.dtype = in.Mostly<int32_t>(OPKIT_FLOAT32, in.Of({0, 6, 16, -1}));
  d.tensor.device_type = in.Mostly<int32_t>(OPKIT_CPU, in.Of({0, 2, 64, 77}));
}

std::string Registrations() {
  std::string out;
  for (const std::string& op : opkit::RegisteredOperators())
    out += opkit::StrCat(op, " ", opkit::OpRegistry::Global().KernelsOf(op).size(), " ",
                         opkit::GradientRegistry::Global().Find(op) != nullptr, "; ");
  return out + opkit::StrCat(opkit::CheckRegistrations());
}

// Everything that a program does with an operator; only Errors may come out.
template <class F>
void Try(F&& body) {
  try {
    body();
  } catch (const opkit::Error&) {
  }
}
void Use(const std::string& op) {
  using namespace opkit;
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3});
  Try([&] { static_cast<void>(OpRegistry::Global().GetSchema(op)); });
  Try([&] {
    const OperatorDef def(op, {"x"}, {"y"});
    InferenceContext context(def, {TensorInfo(DType::kFloat32, {Dim(), Sym("N")})});
    OpRegistry::Global().GetSchema(op).Infer(context);
    const TensorInfo info = TensorInfo::Of(x);
    static_cast<void>(OpRegistry::Global().GetSchema(op).Cost(def, {info}, {info}));
  });
  Try([&] { Invoke(op, {x}); });
  Try([&] {
    InvokeOptions options;
    options.num_outputs = 1;
    Invoke(op, {x}, {}, options);
  });
  Try([&] {
    Workspace ws;
    *ws.CreateTensor("x") = x;
    *ws.CreateTensor("y") = Tensor({3}, DType::kFloat32);
    *ws.CreateTensor("dy") = x;
    const OperatorDef def(op, {"x"}, {"y"});
    auto forward = CreateOperator(def, &ws);
    Try([&] { forward->Run(); });
    Try([&] {
      for (const OperatorDef& backward : GetGradientForOp(def, {"dy"}).ops)
        CreateOperator(backward, &ws)->Run();
    });
  });
  // Returns when the stream has come past all that was issued, also where that has failed.
  Try([&] {
    Workspace ws;
    *ws.CreateTensor("x") = x;
    const Device stream{DeviceType::kCPUStream};
    auto forward = CreateOperator(OperatorDef(op, {"x"}, {"y"}).Device(stream), &ws);
    Try([&] { forward->Run(); });
    Event end(stream);
    detail::CPUStream::Get(stream, 0).Record(end);
    Try([&] { end.Finish(); });
  });
  Try([&] {
    Graph g;
    g.AddInput("x", DType::kFloat32, {3});
    g.AddNode(OperatorDef(op, {"x"}, {"a"}));
    g.AddNode(OperatorDef(op, {"a"}, {"y"}));
    g.AddOutput("y");
    PlanOptions options;
    options.schedule.mode = ReplayMode::kWalk;
    Executor exec(Compile(g, options));
    exec.Run({{"x", x}});
  });
}

// The library can be unloaded after it: nothing of it is under way.
void UseAll(const opkit::Library& library) {
  for (const std::string& op : library.operators()) Use(op);
  EndLater();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static opkit::Allocator* const replaced =
      opkit::SetAllocator(opkit::DeviceType::kCPU, new SmallMemory);
  opkit::SetLogHook([](opkit::LogLevel level, std::string_view, std::string_view text) {
    Require(level <= opkit::LogLevel::kError && std::string(text).size() == text.size());
  });
  Bytes bytes(data, size);
  Description description;
  t_bytes = &bytes;
  g_description = &description;
  Fill(description);
  static const std::string before = Registrations();
  try {
    opkit::LoadOptions options;
    options.allow_override = bytes.Byte() % 2;
    opkit::Library first = opkit::Library::LoadEntry(&Entry, "fuzzed", options);
    // The same once more: other backends of the same operators.
    std::vector<opkit::Library> second;
    if (bytes.Byte() % 4 == 3)
      Try([&] { second.push_back(opkit::Library::LoadEntry(&Entry, "fuzzed", options)); });
    UseAll(first);
    if (bytes.Byte() % 2) first.Unload();
    for (opkit::Library& library : second) {
      UseAll(library);
      library.Unload();
    }
    if (first.is_loaded()) first.Unload();
  } catch (const opkit::Error&) {
  }
  Require(Registrations() == before && opkit::Library::All().empty() && g_undropped == 0);
  return 0;
}
