// The candidates for a node, and that CreateOperator makes the chosen one.
#include "opkit/op/kernel_candidates.hpp"

#include "opkit/backends/cuda/registration.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "opkit/op/function/function_operator.hpp"
#include "opkit/op/registration.hpp"
#include "support/bench.hpp"
#include "support/error_of.hpp"

namespace kernel_candidates_test { namespace {

using opkit::CPUContext;
using opkit::CreateOperator;
using opkit::DType;
using opkit::Error;
using opkit::ErrorCode;
using opkit::Kernel;
using opkit::KernelCandidate;
using opkit::KernelCandidates;
using opkit::KernelConfig;
using opkit::KernelQuery;
using opkit::Layout;
using opkit::Operator;
using opkit::OperatorDef;
using opkit::OpRegistry;
using opkit::Shape;
using opkit::Tensor;
using opkit::TensorInfo;
using opkit::UnsupportedOperatorFeature;
using opkit::Workspace;

// y = x + 1, in the order in which the constructor or the caller says nothing at all.
class PlainOp : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    const float* from = x.data<float>();
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i) y->mutable_data<float>()[i] = from[i] + 1;
    return true;
  }
};

// Offers a blocked layout in place with scratch, and a plain way; refuses other dtypes.
class BlockedOp final : public PlainOp {
 public:
  BlockedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : PlainOp(def, ws, config),
        layout_at_construction(config ? config->input_layouts.size() : 0) {
    if (HasArgument("refuse")) throw UnsupportedOperatorFeature("refused when it was made");
  }
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    if (query.inputs[0].dtype == DType::kFloat64) throw UnsupportedOperatorFeature("no doubles");
    if (query.inputs[0].dtype != DType::kFloat32) return {};
    if (query.def.args().Has("broken")) {
      KernelConfig broken;
      broken.inplace = {{0, query.def.args().Get<int>("broken")}};
      return {broken};
    }
    if (query.def.args().Has("throw")) throw std::out_of_range("at");
    KernelConfig blocked;
    blocked.input_layouts = blocked.output_layouts = {Layout{7, {}}};
    blocked.inplace = {{0, 0}};
    blocked.scratch_bytes = 256;
    return {blocked, KernelConfig()};
  }
  bool RunOnDevice() override {
    scratch = config() ? Scratch(config()->scratch_bytes) : nullptr;
    return PlainOp::RunOnDevice();
  }
  size_t layout_at_construction;
  void* scratch = nullptr;
};

OPERATOR_SCHEMA(Candidate)
    .NumInputs(1)
    .NumOutputs(1)
    .Inplace({{0, 0}})
    .Arg("refuse", "")
    .Arg("broken", "")
    .Arg("throw", "")
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(Candidate, PlainOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Candidate, BLOCKED, BlockedOp);

// Runs a node in its usual way or in one with a name, of which it remembers which.
class VariedOp final : public PlainOp {
 public:
  VariedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : PlainOp(def, ws, config), variant(config ? config->variant : "none") {
    if (variant == "swift" && HasArgument("refuse"))
      throw UnsupportedOperatorFeature("not so swift");
  }
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    KernelConfig swift, odd;
    swift.variant = "swift";
    odd.variant = query.def.args().Get<std::string>("odd", "odd");
    return {swift, KernelConfig(), odd};
  }
  std::string variant;
};
OPERATOR_SCHEMA(VariedCandidate)
    .NumInputs(1)
    .NumOutputs(1)
    .Arg("refuse", "")
    .Arg<std::string>("odd", "", "odd")
    .IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR(VariedCandidate, VariedOp);

OPERATOR_SCHEMA(CandidateElsewhere).NumInputs(1).NumOutputs(1);
REGISTER_CUDA_OPERATOR_CREATOR(CandidateElsewhere, [](const OperatorDef&, Workspace*) {
  return std::unique_ptr<opkit::OperatorBase>();
});

const OperatorDef kNode = OperatorDef("Candidate", {"x"}, {"y"}).Backends("BLOCKED");

std::vector<KernelCandidate> Candidates(const OperatorDef& def, DType dtype = DType::kFloat32) {
  const TensorInfo info(dtype, Shape{4});
  return KernelCandidates(def, {&info, 1}, {&info, 1});
}

KernelCandidate InStandardLayout(KernelCandidate candidate) {
  candidate.config.input_layouts = candidate.config.output_layouts = {};
  return candidate;
}

struct NodeBench : Bench {
  explicit NodeBench(OperatorDef node = kNode) : def(std::move(node)) { Add("x", {0, 1, 2, 3}); }
  OperatorDef def;
};

TEST_CASE("candidates come in the order of preference, with every configuration") {
  const auto all = Candidates(kNode);
  REQUIRE(all.size() == 3);
  CHECK(all[0].kernel->backend == "BLOCKED");
  CHECK(all[0].config.scratch_bytes == 256);
  CHECK(all[1].kernel == all[0].kernel);
  CHECK(all[1].config.inplace.empty());
  CHECK(all[2].kernel->backend == "reference");
  CHECK(all[0].backend == "BLOCKED");
  CHECK(
      all[0].dropped ==
      "it proposes layout 7 for input 0, and nothing converts between it and the standard layout");
  CHECK(all[1].dropped.empty());
  CHECK(all[2].dropped.empty());
  // One that proposes nothing works in the standard layout, in place as the schema allows.
  CHECK(all[2].config.inplace == std::vector<std::pair<int, int>>{{0, 0}});
  CHECK(all[2].config.input_layouts.empty());
}

// Two backends that differ in rank alone, registered in the wrong order, and one without a rank.
OPERATOR_SCHEMA(Ranked).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(Ranked, UNRANKED, PlainOp);
REGISTER_CPU_OPERATOR(Ranked, PlainOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Ranked, LOWER, PlainOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Ranked, HIGHER, PlainOp);
OPKIT_REGISTER_BACKEND_RANK("HIGHER", 20);
OPKIT_REGISTER_BACKEND_RANK("LOWER", 10);

TEST_CASE("unrequested backends come by rank; those without a rank come after the plain kernel") {
  auto order = [](const OperatorDef& def) {
    std::string backends;
    for (const KernelCandidate& one : Candidates(def)) backends += one.kernel->backend + " ";
    return backends;
  };
  const OperatorDef node("Ranked", {"x"}, {"y"});
  CHECK(order(node) == "HIGHER LOWER reference UNRANKED ");
  CHECK(order(OperatorDef(node).Backends("UNRANKED")) == "UNRANKED HIGHER LOWER reference ");
  CHECK(order(OperatorDef(node).Backends("reference")) == "reference HIGHER LOWER UNRANKED ");
  // Without known types, as CreateOperator has them, the plain one comes before those.
  Workspace ws;
  ws.CreateTensor("x");
  CHECK(opkit::detail::KernelOrder(node).front()->backend == "reference");
}

OPERATOR_SCHEMA(HasAbsent).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(HasAbsent, ABSENT, PlainOp);
REGISTER_CPU_OPERATOR(HasAbsent, PlainOp);
OPERATOR_SCHEMA(OnlyAbsent).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
REGISTER_CPU_OPERATOR_WITH_ENGINE(OnlyAbsent, ABSENT, PlainOp);
OPKIT_REGISTER_BACKEND_RANK("ABSENT", 900);
int asked = 0;
OPKIT_REGISTER_BACKEND_AVAILABILITY("ABSENT", [] { return ++asked, "its card is not here"; });

TEST_CASE("an unavailable backend is dropped with its reason, which is computed once") {
  const auto all = Candidates(OperatorDef("HasAbsent", {"x"}, {"y"}));
  REQUIRE(all.size() == 2);
  CHECK(all[0].backend == "ABSENT");
  CHECK(all[0].dropped == "its card is not here");
  CHECK(all[1].dropped.empty());
  NodeBench bench;
  CHECK(CreateOperator(OperatorDef("HasAbsent", {"x"}, {"y"}), &bench.ws)->Run());
  for (const char* engine : {"", "ABSENT"}) {
    const opkit::Error error = ErrorOf([&] {
      CreateOperator(OperatorDef("OnlyAbsent", {"x"}, {"y"}).Backends(engine), &bench.ws);
    });
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(Contains(error.message(), "\n  backend ABSENT: its card is not here"));
  }
  CHECK(asked == 1);
  const auto backends = OpRegistry::Global().Backends();
  const auto absent = std::ranges::find(backends, "ABSENT", &opkit::OpRegistry::Backend::name);
  REQUIRE(absent != backends.end());
  CHECK(absent->kernels == 2);
  CHECK(absent->rank == 900);
  CHECK(absent->why_unavailable == "its card is not here");
}

TEST_CASE("a configuration of another layout is passed over, with the reason") {
  NodeBench bench;
  const TensorInfo info(DType::kFloat32, Shape{4});
  KernelCandidate chosen;
  std::string passed_over;
  auto op =
      opkit::CreateSelected(kNode, &bench.ws, {&info, 1}, {&info, 1}, {}, &chosen, &passed_over);
  CHECK(chosen.backend == "BLOCKED");
  CHECK(chosen.config.input_layouts.empty());
  CHECK(dynamic_cast<BlockedOp*>(op.get())->layout_at_construction == 0);
  CHECK(
      passed_over ==
      "\n  backend BLOCKED: it proposes layout 7 for input 0, and nothing converts between it and "
      "the standard layout");
}

TEST_CASE("the name of a variant reaches the kernel, and stands in texts") {
  const OperatorDef def("VariedCandidate", {"x"}, {"y"});
  const auto all = Candidates(def);
  REQUIRE(all.size() == 3);
  CHECK(all[0].name() == "reference swift");
  CHECK(all[1].name() == "reference");
  CHECK(all[2].config.variant == "odd");
  NodeBench bench(def);
  for (const KernelCandidate& one : all) {
    const auto op = CreateOperator(def, &bench.ws, {.kernel = one.kernel, .config = &one.config});
    CHECK(dynamic_cast<VariedOp*>(op.get())->variant == one.config.variant);
    CHECK(op->config()->variant == one.config.variant);
  }
  const TensorInfo info(DType::kFloat32, Shape{4});
  KernelCandidate chosen;
  std::string passed_over;
  opkit::CreateSelected(OperatorDef(def).Arg("refuse", 1), &bench.ws, {&info, 1}, {&info, 1}, {},
                        &chosen, &passed_over);
  CHECK(chosen.name() == "reference");
  CHECK(passed_over == "\n  backend reference swift: not so swift");
  for (const char* odd : {"a\tb", "a\nb", "\x7f"}) {
    const Error error = ErrorOf([&] { Candidates(OperatorDef(def).Arg("odd", odd)); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), "has a variant whose name contains a control character"));
  }
}

TEST_CASE(
    "a preferred backend that is not there is listed with the nearest; a required one is not") {
  const auto all = Candidates(OperatorDef(kNode).Backends("BLOCKD,BLOCKED"));
  REQUIRE(all.size() == 4);
  CHECK(all[0].kernel == nullptr);
  CHECK(all[0].backend == "BLOCKD");
  CHECK(Contains(all[0].dropped,
                 "no backend 'BLOCKD' has a kernel in this program (did you mean 'BLOCKED'?"));
  CHECK(all[1].backend == "BLOCKED");
  const auto required = Candidates(OperatorDef(kNode).Backends("BLOCKD,BLOCKED", opkit::kRequired));
  for (const KernelCandidate& one : required)
    if (one.kernel) CHECK(one.backend == "BLOCKED");
  const Error error =
      ErrorOf([] { Candidates(OperatorDef(kNode).Backends("BLOCKD", opkit::kRequired)); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "did you mean 'BLOCKED'?"));
  const Error elsewhere =
      ErrorOf([] { Candidates(OperatorDef(kNode).Backends("LOWER", opkit::kRequired)); });
  CHECK(Contains(elsewhere.message(),
                 "Candidate (x) -> (y) requires a kernel of backend LOWER on cpu"));
}

TEST_CASE("a kernel that proposes nothing is listed with the reason") {
  auto all = Candidates(kNode, DType::kFloat64);
  REQUIRE(all.size() == 2);
  CHECK(all[0].dropped == "no doubles");
  CHECK(all[1].dropped.empty());
  all = Candidates(kNode, DType::kInt32);
  CHECK(all[0].dropped == "it proposes no configuration for this node");
}

TEST_CASE("a proposal that does not fit the node, or fails, is an Error that names the kernel") {
  const Error error = ErrorOf([] { Candidates(OperatorDef(kNode).Arg("broken", 1)); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.message(),
                 "pairs input 0 with output 1 in place, but the node has 1 inputs "
                 "and 1 outputs"));
  CHECK(Contains(error.message(), "kernel_candidates_test.cpp:"));
  CHECK(Contains(error.what(), "in the proposal for operator Candidate (x) -> (y)"));
}

TEST_CASE("a proposal that throws is an Error with its place, for every caller") {
  const OperatorDef def = OperatorDef(kNode).Arg("throw", 1);
  NodeBench bench(def);
  const char* const place = "in the proposal for operator Candidate (x) -> (y)";
  CHECK(Contains(ErrorOf([&] { Candidates(def); }).what(), place));
  CHECK(Contains(ErrorOf([&] { CreateOperator(def, &bench.ws); }).what(), place));
}

TEST_CASE("no kernel for the node's device is the Error that CreateOperator gives") {
  const Error error = ErrorOf([] { Candidates(OperatorDef("CandidateElsewhere", {"x"}, {"y"})); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "has no kernel for cpu"));
}

TEST_CASE("the kernel and the configuration that were chosen are the operator's") {
  NodeBench bench;
  const auto all = Candidates(kNode);
  auto op = CreateOperator(bench.def, &bench.ws,
                           {.kernel = all[0].kernel, .config = &all[0].config, .net_position = 3});
  auto* blocked = dynamic_cast<BlockedOp*>(op.get());
  REQUIRE(blocked);
  CHECK(blocked->layout_at_construction == 1);
  CHECK(op->net_position() == 3);
  REQUIRE(op->config());
  CHECK(op->config() != &all[0].config);
  CHECK(op->config()->output_layouts[0].id == 7);

  // Without looking for another: the preference of the node says BLOCKED.
  op = CreateOperator(bench.def, &bench.ws, {.kernel = all[2].kernel, .config = &all[2].config});
  CHECK_FALSE(dynamic_cast<BlockedOp*>(op.get()));
  REQUIRE(op->config());
  CHECK(op->config()->inplace.size() == 1);

  // Without a choice, the node's preference selects BLOCKED's kernel, which gets no config.
  op = CreateOperator(bench.def, &bench.ws);
  CHECK(dynamic_cast<BlockedOp*>(op.get()));
  CHECK(op->config() == nullptr);
}

TEST_CASE(
    "a chosen kernel refuses the node by a type of Error, so that the next kernel can be taken") {
  NodeBench bench(OperatorDef(kNode).Arg("refuse", 1));
  const auto all = Candidates(bench.def);
  CHECK_THROWS_AS(CreateOperator(bench.def, &bench.ws, {.kernel = all[0].kernel}),
                  UnsupportedOperatorFeature);
  CHECK_FALSE(bench.ws.HasBlob("y"));
  CHECK(CreateOperator(bench.def, &bench.ws, {.kernel = all[2].kernel})->Run());
}

TEST_CASE("a kernel and a configuration that do not belong together are an Error") {
  NodeBench bench;
  const auto all = Candidates(kNode);
  KernelConfig config = all[0].config;
  auto refused = [&](const OperatorDef& def, opkit::CreateOptions options) {
    const Error error = ErrorOf([&] { CreateOperator(def, &bench.ws, options); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    return error.message();
  };
  CHECK(Contains(refused(kNode, {.config = &config}), "without the kernel that proposed it"));
  config.input_layouts.resize(2);
  CHECK(Contains(refused(kNode, {.kernel = all[0].kernel, .config = &config}),
                 "has layouts for 2 inputs, expected none or 1"));
  config = all[0].config;
  config.scratch_bytes = -8;
  CHECK(Contains(refused(kNode, {.kernel = all[0].kernel, .config = &config}),
                 "needs -8 bytes of scratch"));
  CHECK(Contains(
      refused(OperatorDef(kNode).Device(opkit::DeviceType::kCUDA), {.kernel = all[0].kernel}),
      "cannot run Candidate (x) -> (y) on cuda"));
  const Kernel* other = OpRegistry::Global().KernelsOf("CandidateElsewhere")[0];
  CHECK(Contains(refused(kNode, {.kernel = other}), "of CandidateElsewhere"));
}

TEST_CASE("an output shares an input's memory as the chosen configuration says") {
  for (const bool may : {true, false}) {
    CAPTURE(may);
    for (const char* output : {"x", "y"}) {  // by name, and by memory alone
      CAPTURE(output);
      NodeBench bench(OperatorDef("Candidate", {"x"}, {output}).Backends("BLOCKED"));
      const auto all = Candidates(bench.def);
      const KernelCandidate chosen = InStandardLayout(all[may ? 0 : 1]);
      auto op =
          CreateOperator(bench.def, &bench.ws, {.kernel = chosen.kernel, .config = &chosen.config});
      Tensor* out = bench.ws.CreateTensor(output);
      *out = *bench.ws.GetTensor("x");
      const void* before = out->raw_data();
      const Tensor kept = *out;
      op->Run();
      CHECK((out->raw_data() == before) == may);
      CHECK(out->data<float>()[3] == 4);
      CHECK(kept.data<float>()[3] == (may ? 4 : 3));
    }
  }
}

TEST_CASE("scratch is the planned memory where that is large enough, and the operator's own else") {
  NodeBench bench;
  const KernelCandidate chosen = InStandardLayout(Candidates(kNode)[0]);
  auto op =
      CreateOperator(bench.def, &bench.ws, {.kernel = chosen.kernel, .config = &chosen.config});
  auto* blocked = dynamic_cast<BlockedOp*>(op.get());
  op->Run();
  void* const own = blocked->scratch;
  CHECK(reinterpret_cast<uintptr_t>(own) % 64 == 0);
  op->Run();
  CHECK(blocked->scratch == own);
  alignas(64) char planned[256];
  op->SetScratch(planned, 256);
  op->Run();
  CHECK(blocked->scratch == planned);
  op->SetScratch(planned, 128);
  op->Run();
  CHECK(blocked->scratch == own);
  op->SetScratch(nullptr, 0);
  op->Run();
  CHECK(blocked->scratch == own);
  CHECK(op->Scratch(0) == nullptr);
  CHECK(ErrorOf([&] { op->Scratch(-1); }).code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(ErrorOf([&] { op->SetScratch(planned + 8, 64); }).message(),
                 "give it memory aligned to 64 bytes"));
  CHECK(ErrorOf([&] { op->SetScratch(nullptr, 64); }).code() == ErrorCode::kInvalidArgument);
  CHECK(ErrorOf([&] { op->SetScratch(planned, -1); }).code() == ErrorCode::kInvalidArgument);
}

void* g_scratch = nullptr;
int64_t g_scratch_bytes = 0;
REGISTER_OP(CandidateFunction)
    .setForward([](const opkit::AttrMap&, std::span<const opkit::OpTensor>,
                   std::span<opkit::OpTensor>, opkit::OpResource& res) {
      g_scratch = res.scratch();
      g_scratch_bytes = res.scratch_bytes();
    })
    .setParseAttrs([](const opkit::AttrMap&, int* in, int* out) {
      *in = *out = 1;
      return true;
    })
    .setInferShape([](const opkit::AttrMap&, opkit::ShapeVectors& in, opkit::ShapeVectors& out) {
      out = in;
      return true;
    })
    .scratch(96);

TEST_CASE("a function operator's scratch is proposed, and is the planned one") {
  NodeBench bench(OperatorDef("CandidateFunction", {"x"}, {"y"}));
  const auto all = Candidates(bench.def);
  REQUIRE(all.size() == 1);
  CHECK(all[0].config.scratch_bytes == 96);
  auto op =
      CreateOperator(bench.def, &bench.ws, {.kernel = all[0].kernel, .config = &all[0].config});
  alignas(64) char planned[128];
  op->SetScratch(planned, 128);
  op->Run();
  CHECK(g_scratch == planned);
  CHECK(g_scratch_bytes == 96);
  op->SetScratch(nullptr, 0);
  op->Run();
  CHECK(g_scratch != planned);
  CHECK(g_scratch != nullptr);
}

}  // namespace
}  // namespace kernel_candidates_test
