// One operator for each feature of a library's author that library_test.cpp checks.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_map>

#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/plugin/author.hpp"

namespace {
using namespace opkit;  // NOLINT: as an author writes it

using Map = std::map<std::string, std::string>;
using Hashed = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<OpTensor>;
using Ins = std::span<const OpTensor>;
using Outs = std::span<OpTensor>;

int g_host_major = 0, g_host_minor = -1;
int Initialize(int major, int minor) {
  g_host_major = major;
  g_host_minor = minor;
  return SUCCESS;
}
OPKIT_LIBRARY_INITIALIZE(Initialize);

int OneToOne(const AttrMap&, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return SUCCESS;
}
int TwoToOne(const AttrMap&, int* num_in, int* num_out) {
  *num_in = 2;
  *num_out = 1;
  return SUCCESS;
}
int AnyNumber(const AttrMap&, int*, int*) { return SUCCESS; }
int SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
  for (auto& shape : out) shape = in[0];
  return SUCCESS;
}

// ------------------------------------------------------------------ signatures: y = scale * x

float ScaleOf(const std::string& text) { return std::stof(text); }
void Scale(float scale, const OpTensor& x, const OpTensor& y) {
  for (int64_t i = 0; i < x.size(); ++i) y.data<float>()[i] = scale * x.data<float>()[i];
}

int ByValue(Map attrs, Tensors in, Tensors out, OpResource) {
  Scale(ScaleOf(attrs.at("scale")), in[0], out[0]);
  return 1;
}
bool ByReference(const Hashed& attrs, const Tensors& in, const Tensors& out, const OpResource&) {
  Scale(ScaleOf(attrs.at("scale")), in[0], out[0]);
  return true;
}
ReturnValue ByPointer(Hashed attrs, std::vector<OpTensor>* in, std::vector<OpTensor>* out,
                      OpResource& resource) {
  if (resource.device().type != DeviceType::kCPU) return FAIL;
  Scale(ScaleOf(attrs.at("scale")), (*in)[0], (*out)[0]);
  return SUCCESS;
}
void Void(const Map& attrs, Tensors& in, Tensors& out, OpResource) {
  Scale(ScaleOf(attrs.at("scale")), in[0], out[0]);
}
Status Fast(const AttrMap& attrs, Ins in, Outs out, OpResource&) {
  Scale(attrs.Get("scale", 0.f), in[0], out[0]);
  return SUCCESS;
}
int ParseByValue(Map, int* num_in, int* num_out) { return OneToOne(AttrMap(), num_in, num_out); }
ReturnValue ParseHashed(const Hashed&, int* num_in, int* num_out) {
  *num_in = *num_out = 1;
  return SUCCESS;
}
int TypesOfInts(Map, std::vector<int>& in, std::vector<int>& out) {
  if (in[0] == -1) in[0] = out[0];
  out[0] = in[0];
  return 1;
}
bool TypesByPointer(const Hashed&, std::vector<DType>* in, std::vector<DType>* out) {
  (*out)[0] = (*in)[0];
  return true;
}
int NarrowShapes(Map, std::vector<std::vector<unsigned int>>& in,
                 std::vector<std::vector<unsigned int>>& out) {
  if (in[0].empty()) in[0] = out[0];
  out = in;
  return 1;
}
void WideShapes(Map, std::vector<std::vector<int64_t>> in, std::vector<std::vector<int64_t>>* out) {
  *out = in;
}

REGISTER_OP(LibByValue)
    .setForward(ByValue)
    .setParseAttrs(ParseByValue)
    .setInferType(TypesOfInts)
    .setInferShape(NarrowShapes)
    .doc("Multiplies by scale.");
REGISTER_OP(LibByReference)
    .setForward(&ByReference, "cpu")
    .setParseAttrs(ParseHashed)
    .setInferType(TypesByPointer)
    .setInferShape(WideShapes);
REGISTER_OP(LibByPointer).setForward(ByPointer).setParseAttrs(OneToOne).setInferShape(SameShape);
REGISTER_OP(LibVoid).setForward(Void).setParseAttrs(OneToOne).setInferShape(SameShape);
REGISTER_OP(LibFast).setForward(Fast).setParseAttrs(OneToOne).setInferShape(SameShape).inplace(
    {{0, 0}});
REGISTER_OP(LibLambda)
    .setForward([times = 1.f](const AttrMap& attrs, Ins in, Outs out, OpResource) mutable {
      Scale(times * attrs.Get("scale", 0.f), in[0], out[0]);
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = (x + bias) * factor ^ times, all declared: parseAttrs follows from the names.
REGISTER_OP(LibDeclared)
    .setForward([](const AttrMap& attrs, Ins in, Outs out, OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i) {
        float y = in[0].data<float>()[i] + attrs.Get<float>("bias");
        for (int k = 0; k < attrs.Get<int>("times"); ++k) y *= attrs.Get<float>("factor");
        out[0].data<float>()[i] = y;
      }
    })
    .input("x", "numbers", {DType::kFloat32})
    .output("y", "numbers times factor")
    .requiredArg<float>("factor", "what is multiplied by")
    .arg("times", "how often", 1)
    .arg("bias", "what is added before", 0.5f)
    .arg("comment", "anything")
    .arg<std::vector<int64_t>>("axes", "not looked at")
    .setInferShape(SameShape)
    .flops([](const AttrMap& attrs, const ShapeVectors& in, const ShapeVectors& out) {
      int64_t flops = attrs.Get<int64_t>("times") + 1;
      for (const int64_t extent : in[0]) flops *= extent;
      return flops + (out[0] == in[0] ? 0 : 1);
    })
    .doc("Multiplies.");

// The indices of elements that are not 0, whose number the data decides, and y = their number.
REGISTER_OP(LibNonZero)
    .setForward([](const AttrMap& attrs, Ins in, Outs out, OpResource& res) -> Status {
      std::vector<int64_t> found;
      for (int64_t i = 0; i < in[0].size(); ++i)
        if (in[0].data<float>()[i] != 0) found.push_back(i);
      const auto count = static_cast<int64_t>(found.size());
      *out[1].data<int64_t>() = count;
      const std::string wrong = attrs.Get("wrong", "");
      if (wrong == "none") return SUCCESS;
      if (wrong == "early") *out[0].data<int64_t>() = 0;
      if (wrong == "of the other") res.allocate_output(1, {1}, DType::kInt64);
      if (wrong == "no output") res.allocate_output(2, {1}, DType::kInt64);
      if (wrong == "dtype") res.allocate_output(0, {1}, DType::kFloat32);
      if (wrong == "extent") res.allocate_output(0, {-1}, DType::kInt64);
      if (out[0].req() == OpReq::kNone) return SUCCESS;
      const OpTensor made = res.allocate_output(0, {count}, DType::kInt64);
      for (int64_t k = 0; k < count; ++k) made.data<int64_t>()[k] = found[static_cast<size_t>(k)];
      if (out[0].raw_data() != made.raw_data()) return Status::Failure("it is not the output");
      if (wrong == "twice") res.allocate_output(0, {1}, DType::kInt64);
      return SUCCESS;
    })
    .input("x")
    .output("indices")
    .output("count")
    .allocatesOutputs()
    .setInferType([](const AttrMap&, std::vector<DType>&, std::vector<DType>& out) {
      out[0] = out[1] = DType::kInt64;
    })
    .setInferShape([](const AttrMap&, ShapeVectors&, ShapeVectors& out) {
      out = {{-1}, {1}};
    });
// The same names without an end: attributes that it does not know go to its functions, too.
REGISTER_OP(LibOpen)
    .setForward([](const AttrMap& attrs, Ins, Outs out, OpResource&) {
      *out[0].data<float>() = attrs.Get("__mine", 0.f) + attrs.Get("other", 0.f);
    })
    .input("x")
    .output("y")
    .arg("factor", "not looked at", 1.f)
    .allowUncheckedAttributes()
    .setInferShape(SameShape);

// ------------------------------------------------------------- requests, mutation, strides

// The request of each output goes to its elements; of one without memory, to those of output 0.
Status Requests(const AttrMap&, Ins, Outs out, OpResource&) {
  for (const OpTensor& one : out)
    if (one.has_value())
      for (int64_t i = 0; i < one.size(); ++i) one.data<float>()[i] = static_cast<float>(one.req());
  if (out.size() > 1 && !out[1].has_value())
    out[0].data<float>()[0] = out[1].raw_data() ? -1.f : 100.f;
  return SUCCESS;
}
Status RequestsAdding(const AttrMap&, Ins in, Outs out, OpResource&) {
  float* y = out[0].data<float>();
  for (int64_t i = 0; i < in[0].size(); ++i)
    if (out[0].req() == OpReq::kAdd)
      y[i] += 1000;
    else
      y[i] = 0;
  return SUCCESS;
}
REGISTER_OP(LibRequests)
    .setForward(Requests)
    .setParseAttrs(AnyNumber)
    .setInferShape(SameShape)
    .inplace({{0, 0}});
REGISTER_OP(LibRequestsAdding)
    .setForward(RequestsAdding)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .acceptsAdd();

REGISTER_OP(LibMovingMean)
    .setForward([](const AttrMap&, Ins in, Outs out, OpResource&) {
      float& mean = *in[1].data<float>();
      mean = (mean + *in[0].data<float>()) / 2;
      *out[0].data<float>() = mean;
    })
    .setParseAttrs(TwoToOne)
    .setInferShape(SameShape)
    .setMutateInputs({1});
REGISTER_OP(LibMutatesByAttr)
    .setForward([](const AttrMap&, Ins, Outs, OpResource&) {})
    .setParseAttrs(AnyNumber)
    .setInferShape(SameShape)
    .setMutateInputs([](Map attrs, std::vector<int>& inputs) {
      inputs.push_back(std::stoi(attrs.at("which")));
      return 1;
    });

Status SeeStrides(const AttrMap&, Ins in, Outs out, OpResource&) {
  float* y = out[0].data<float>();
  for (int64_t i = 0; i < in[0].dim(0); ++i)
    for (int64_t j = 0; j < in[0].dim(1); ++j)
      *y++ = in[0].data<float>()[i * in[0].stride(0) + j * in[0].stride(1)] +
             (in[0].is_dense() ? 0.f : 100.f);
  return SUCCESS;
}
REGISTER_OP(LibStrided)
    .setForward(SeeStrides)
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .acceptsStrides();
REGISTER_OP(LibDense).setForward(SeeStrides).setParseAttrs(OneToOne).setInferShape(SameShape);

// Copies the bytes of any dtype.
REGISTER_OP(LibCopyBytes)
    .setForward([](const AttrMap&, Ins in, Outs out, OpResource&) {
      if (in[0].size() == 0) return;
      std::memcpy(out[0].raw_data(), in[0].raw_data(), static_cast<size_t>(in[0].nbytes()));
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// ---------------------------------------------------------------------------------- scratch

// y = x backwards, by way of the scratch; its size, where "bytes" asks for that.
REGISTER_OP(LibScratch)
    .setForward([](const AttrMap& attrs, Ins in, Outs out, OpResource& res) -> Status {
      const int64_t n = in[0].size();
      if (reinterpret_cast<uintptr_t>(res.scratch()) % 64 != 0)
        return Status::Failure("the scratch is not aligned");
      auto* scratch = static_cast<float*>(res.scratch());
      for (int64_t i = 0; i < n; ++i) scratch[i] = in[0].data<float>()[i];
      for (int64_t i = 0; i < n; ++i) out[0].data<float>()[i] = scratch[n - 1 - i];
      if (attrs.Has("bytes")) out[0].data<float>()[0] = static_cast<float>(res.scratch_bytes());
      return SUCCESS;
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .scratch([](const AttrMap& attrs, const ShapeVectors& in) {
      int64_t bytes = attrs.Get("unit", int64_t{4});
      for (int64_t extent : in[0]) bytes *= extent;
      return bytes;
    });

OPKIT_LIBRARY_VERSION("2.5");

// ------------------------------------------------------------------------------------ state

std::atomic<int> g_alive{0}, g_made{0};

// y = number of its run; dx = dy * runs.
class Counter final : public StatefulOp {
 public:
  explicit Counter(int runs = 0) : runs_(runs) { ++g_alive, ++g_made; }
  ~Counter() override { --g_alive; }
  int Forward(Tensors, Tensors outputs, const OpResource&) override {
    *outputs[0].data<float>() = static_cast<float>(++runs_);
    return SUCCESS;
  }
  int Backward(Tensors inputs, Tensors outputs, const OpResource&) override {
    *outputs[0].data<float>() = *inputs[0].data<float>() * static_cast<float>(runs_);
    return SUCCESS;
  }

 private:
  int runs_;
};
int MakeCounter(Map attrs, StatefulOp** state) {
  if (attrs.count("nothing")) return SUCCESS;
  *state = new Counter;
  if (attrs.count("fail")) {
    OPKIT_ERROR_MSG << "after making it";
    return FAIL;
  }
  return SUCCESS;
}
REGISTER_OP(LibCounter)
    .setCreateOpState(MakeCounter, "cpu")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .stateful();

// Counts from 10 times the extent of x on, separately for each shape and type.
int MakeCounterOfInputs(Map attrs, const OpContext& context,
                        const std::vector<std::vector<unsigned int>>& in_shapes,
                        const std::vector<int> in_types, StatefulOp** state) {
  const unsigned extent = in_shapes.at(0).at(0);
  if (extent == 3 || in_types.at(0) != static_cast<int>(DType::kFloat32)) {
    OPKIT_ERROR_MSG << "no " << context.node->op << " of " << extent;
    return FAIL;
  }
  if (attrs.at("from") != "10") return SUCCESS;
  *state = new Counter(static_cast<int>(10 * extent));
  return SUCCESS;
}
REGISTER_OP(LibCounterOfInputs)
    .setCreateOpState(MakeCounterOfInputs)
    .arg("from", "", "10")
    .input("x")
    .output("y")
    .setInferShape(SameShape)
    .stateful();

class DeviceTeller final : public StatefulOp {
 public:
  explicit DeviceTeller(Device device) : device_(device) {}
  Status Run(FunctionPass, Ins, Outs out, OpResource&) override {
    *out[0].data<float>() = static_cast<float>(device_.type);
    return SUCCESS;
  }

 private:
  Device device_;
};
REGISTER_OP(LibTellsDevice)
    .setCreateOpState([](const AttrMap&, OpContext context, std::unique_ptr<StatefulOp>* state) {
      *state = std::make_unique<DeviceTeller>(context.device);
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// {counters alive, counters made, the host's major and minor version}
REGISTER_OP(LibReport)
    .setForward([](const AttrMap&, Ins, Outs out, OpResource&) {
      float* y = out[0].data<float>();
      y[0] = static_cast<float>(g_alive);
      y[1] = static_cast<float>(g_made);
      y[2] = static_cast<float>(g_host_major);
      y[3] = static_cast<float>(g_host_minor);
    })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) {
      *num_in = 0;
      *num_out = 1;
    })
    .setInferType([](const AttrMap&, std::vector<DType>&, std::vector<DType>& out) {
      out[0] = DType::kFloat32;
    })
    .setInferShape([](const AttrMap&, ShapeVectors&, ShapeVectors& out) { out[0] = {4}; })
    .stateful();

// --------------------------------------------------------------------------------- gradient

REGISTER_OP(LibSquare)
    .setForward([](const AttrMap&, Ins in, Outs out, OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = in[0].data<float>()[i] * in[0].data<float>()[i];
    })
    .setBackward([](Map, Tensors in, Tensors out, OpResource) {  // {dy, x, y} -> {dx}
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = 2 * in[0].data<float>()[i] * in[1].data<float>()[i];
      return 1;
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// ---------------------------------------------------------------------------------- subgraph

// Runs the graph "body" that its node carries, by invoke.
class GraphRunner final : public StatefulOp {
 public:
  explicit GraphRunner(const opkit_graph& graph) : graph_(graph) {}
  Status Run(FunctionPass, Ins in, Outs out, OpResource& res) override {
    std::map<std::string, OpTensor> values;
    for (uint64_t i = 0; i < graph_.num_inputs; ++i) values[graph_.inputs[i]] = in[i];
    for (uint64_t i = 0; i < graph_.num_constants; ++i)
      values[graph_.constant_names[i]] = OpTensor(*graph_.constants[i]);
    for (uint64_t i = 0; i < graph_.num_nodes; ++i) {
      const opkit_node& node = *graph_.nodes[i];
      Tensors inputs;
      for (uint64_t k = 0; k < node.num_inputs; ++k) inputs.push_back(values.at(node.inputs[k]));
      const bool last = std::string(node.outputs[0]) == graph_.outputs[0];
      const OpTensor result = last ? out[0] : res.temporary(inputs[0].shape(), inputs[0].dtype());
      res.invoke(node.op, inputs, std::span(&result, 1),
                 detail::ArgumentsOfAbi(node.attrs, node.num_attrs));
      values[node.outputs[0]] = result;
    }
    return SUCCESS;
  }

 private:
  const opkit_graph& graph_;
};
REGISTER_OP(LibRunsGraph)
    .setCreateOpState([](Map, const OpContext& context, std::unique_ptr<StatefulOp>* state) {
      if (context.node->num_graphs != 1 || std::string(context.node->graphs[0]->name) != "body") {
        OPKIT_ERROR_MSG << "the node carries no graph named body";
        return FAIL;
      }
      *state = std::make_unique<GraphRunner>(*context.node->graphs[0]);
      return SUCCESS;
    })
    .setParseAttrs(AnyNumber)
    .setInferShape(SameShape)
    .setIsSubgraphOp();

// --------------------------------------------------------------------- what the host offers

// The test runs an operator of the same name and body in the program, and compares.
REGISTER_OP(LibRandom)
    .setForward([](const AttrMap&, Ins in, Outs out, OpResource& res) {
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = static_cast<float>(res.random()() >> 40);
      out[0].data<float>()[0] = static_cast<float>(res.random(7)() >> 40);
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .stateful();

REGISTER_OP(LibLogs)
    .setForward([](const AttrMap&, Ins in, Outs, OpResource& res) {
      res.log(LogLevel::kInfo, "x has ", in[0].size(), " elements");
      res.log(LogLevel::kError, "bad");
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// Writes three pairs of id and parent: of its own invocation, of a scope inside it, and of a thread
// that continues it.
REGISTER_OP(LibScopes)
    .setForward([](const AttrMap&, Ins, Outs out, OpResource& res) {
      auto* y = out[0].data<int64_t>();
      const auto put = [&](const Invocation& now) {
        *y++ = static_cast<int64_t>(now.id);
        *y++ = static_cast<int64_t>(now.parent);
        *y++ = static_cast<int64_t>(now.kind);
      };
      const Invocation own = res.invocation();
      put(own);
      {
        const OpScope scope = res.scope("part");
        put(res.invocation());
      }
      std::thread([&] {
        const OpAdoption adoption(own);
        put(res.invocation());
      }).join();
      put(res.invocation());
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

REGISTER_OP(LibAllocs)
    .setForward([](const AttrMap& attrs, Ins, Outs out, OpResource& res) -> Status {
      char* a = res.alloc<char>(100);
      char* b = res.alloc<char>(100);
      if (a == b || !(a + 100 <= b || b + 100 <= a)) return Status::Failure("they overlap");
      std::memset(a, 1, 100);
      std::memset(b, 2, 100);
      if (a[99] != 1 || b[0] != 2 || reinterpret_cast<uintptr_t>(b) % 64 != 0) return FAIL;
      if (res.alloc(0) != nullptr) return Status::Failure("0 bytes are not null");
      if (attrs.Has("negative")) res.alloc(-1);
      *out[0].data<float>() = 1;
      return SUCCESS;
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = (x + x) * x, by the host's operators.
REGISTER_OP(LibInvokes)
    .setForward([](const AttrMap& attrs, Ins in, Outs out, OpResource& res) {
      const std::string add = attrs.Get<std::string>("add", "LibHostAdd");
      const OpTensor sum = res.temporary(in[0].shape(), in[0].dtype());
      res.invoke(add, {in[0], in[0]}, {sum});
      res.invoke("LibHostAdd", {sum, in[0]}, {out[0]}, {{"scale", 10.f}});
    })
    .setForward(
        [](const AttrMap&, Ins in, Outs out, OpResource& res) {
          const OpTensor sum = res.temporary(in[0].shape(), in[0].dtype());
          res.invoke("LibHostAdd", {in[0], in[0]}, {sum});
          float *s = sum.data<float>(), *y = out[0].data<float>();
          const int64_t n = in[0].size();
          res.launch([=] {
            if (s[0] < 0) throw std::runtime_error("negative");
            for (int64_t i = 0; i < n; ++i) y[i] = s[i] + 1;
          });
        },
        "cpu_stream")
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// y = x + x, beside a scope of its own; with "fails", an invocation fails that is not waited for.
REGISTER_OP(LibInvokesBeside)
    .setForward([](const AttrMap& attrs, Ins in, Outs out, OpResource& res) {
      const OpPending sum = res.invoke_async("LibHostAdd", {in[0], in[0]}, {out[0]});
      if (attrs.Has("fails"))
        return static_cast<void>(res.invoke_async("LibHostAdd", {in[0], in[0]}, {}));
      const OpScope scope = res.scope("mine");
      sum.Wait();
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// The system's number of the thread that ran each index.
REGISTER_OP(LibThreads)
    .setForward([](const AttrMap& attrs, Ins in, Outs out, OpResource& res) {
      auto* y = out[0].data<int64_t>();
      const int64_t bad = attrs.Get("bad", int64_t{-1});
      res.parallel_for(
          in[0].size(),
          [=](int64_t i) {
            if (i == bad) throw std::runtime_error(StrCat("index ", i));
            y[i] = syscall(SYS_gettid);
          },
          1);
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

// ---------------------------------------------------------------------------- asynchronous

std::mutex g_pending_mutex;
struct Pending {
  OpCompletion completion;
  const float* x;
  float* y;
};
std::vector<Pending> g_pending;
std::vector<std::thread> g_threads;

void End(Pending pending, const std::string& how) {
  if (how == "fail") return pending.completion.Fail("it was told to");
  if (how == "drop") return;
  *pending.y = 2 * *pending.x;
  pending.completion.Complete();
}
REGISTER_OP(LibAsync)
    .setForward([](const AttrMap& attrs, Ins in, Outs out, OpResource& res) -> Status {
      if (attrs.Has("at_once")) {
        *out[0].data<float>() = -1;
        return SUCCESS;
      }
      Pending pending{res.defer(), in[0].data<float>(), out[0].data<float>()};
      if (attrs.Has("twice")) res.defer();
      if (attrs.Has("then_fail")) return Status::Failure("after it took its handle");
      const std::lock_guard lock(g_pending_mutex);
      if (attrs.Has("thread")) {
        g_threads.emplace_back(
            [pending = std::move(pending)]() mutable { End(std::move(pending), "complete"); });
      } else {
        g_pending.push_back(std::move(pending));
      }
      return SUCCESS;
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .stateful()
    .async();
// Ends what is pending; y = how many that were.
REGISTER_OP(LibEnd)
    .setForward([](const AttrMap& attrs, Ins, Outs out, OpResource&) {
      std::vector<Pending> pending;
      std::vector<std::thread> threads;
      {
        const std::lock_guard lock(g_pending_mutex);
        pending.swap(g_pending);
        threads.swap(g_threads);
      }
      *out[0].data<float>() = static_cast<float>(pending.size() + threads.size());
      for (std::thread& thread : threads) thread.join();
      for (Pending& one : pending) End(std::move(one), attrs.Get<std::string>("how", "complete"));
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape)
    .stateful();

// ----------------------------------------------------------------------------------- errors

// The failure that the attributes ask for: its phase and its kind.
struct Wish {
  explicit Wish(const AttrMap& attrs)
      : phase(attrs.Get<std::string>("phase", "")), how(attrs.Get<std::string>("how", "")) {}
  std::string phase, how;
};
Status Fail(const Wish& wish, const char* phase) {
  if (wish.phase != phase) return SUCCESS;
  const std::string& how = wish.how;
  if (how == "message") {
    OPKIT_ERROR_MSG << "x is " << 3 << ", not " << 2.5;
    return FAIL;
  }
  if (how == "status") return Status::Failure("as a ", "status");
  if (how == "error") Throw(ErrorCode::kOutOfRange, "an Error of the library");
  if (how == "std") throw std::logic_error("a standard exception");
  if (how == "other") throw 5;
  if (how == "leave") {
    OPKIT_ERROR_MSG << "said, but it succeeds";
    return SUCCESS;
  }
  return FAIL;
}
class Failing final : public StatefulOp {
 public:
  explicit Failing(Wish wish) : wish_(std::move(wish)) {}
  Status Run(FunctionPass pass, Ins in, Outs out, OpResource&) override {
    Status status = Fail(wish_, pass == FunctionPass::kForward ? "forward" : "backward");
    if (status.ok()) *out[0].data<float>() = *in[0].data<float>();
    return status;
  }

 private:
  Wish wish_;
};
REGISTER_OP(LibFails)
    .setCreateOpState([](const AttrMap& attrs, std::unique_ptr<StatefulOp>* state) -> Status {
      Status status = Fail(Wish(attrs), "createOpState");
      if (status.ok()) *state = std::make_unique<Failing>(Wish(attrs));
      return status;
    })
    .setParseAttrs([](const AttrMap& attrs, int* num_in, int* num_out) -> Status {
      *num_in = *num_out = 1;
      return Fail(Wish(attrs), "parseAttrs");
    })
    .setInferType([](const AttrMap& attrs, std::vector<int>& in, std::vector<int>& out) -> Status {
      out = in;
      return Fail(Wish(attrs), "inferType");
    })
    .setInferShape([](const AttrMap& attrs, ShapeVectors& in, ShapeVectors& out) -> Status {
      out = in;
      return Fail(Wish(attrs), "inferShape");
    })
    .setMutateInputs([](const AttrMap& attrs, std::vector<int>&) -> Status {
      return Fail(Wish(attrs), "mutateInputs");
    })
    .scratch([](const AttrMap& attrs, const ShapeVectors&) -> int64_t {
      const Status status = Fail(Wish(attrs), "scratch's function");
      if (!status.ok()) Throw(ErrorCode::kOperatorFailed, status.message());
      return 0;
    });

// Wrong answers of inference, which its attributes hold.
REGISTER_OP(LibWrongAnswers)
    .setForward([](const AttrMap&, Ins, Outs, OpResource&) {})
    .setInferType([](const AttrMap& attrs, std::vector<int>& in, std::vector<int>& out) {
      out[0] = attrs.Get("type", in[0]);
    })
    .setParseAttrs(OneToOne)
    .setInferShape([](const AttrMap& attrs, ShapeVectors&, ShapeVectors& out) {
      out.assign(attrs.Get("count", size_t{1}), attrs.Get<std::vector<int64_t>>("shape"));
    })
    .setMutateInputs([](const AttrMap& attrs, std::vector<int>& inputs) {
      if (attrs.Has("mutated")) inputs.push_back(attrs.Get<int>("mutated"));
    })
    .scratch([](const AttrMap& attrs, const ShapeVectors&) {
      return attrs.Get("scratch", int64_t{0});
    });

// Writes an element past its output.
REGISTER_OP(LibWritesPast)
    .setForward([](const AttrMap&, Ins in, Outs out, OpResource&) {
      const int64_t n = in[0].size();
      for (int64_t i = 0; n > 0 && i <= n; ++i) out[0].data<float>()[i] = 1;
    })
    .setParseAttrs(OneToOne)
    .setInferShape(SameShape);

}  // namespace
