// The operators by which the processes of a plan communicate, in the domain "opkit.cluster": Send,
// Recv and the collectives of MPI, with gradients. Their kernels run on the CPU, where plans copy
// the values of other devices; opkit/backends/nccl has kernels for CUDA.
#ifndef OPKIT_CLUSTER_OPERATORS_HPP_
#define OPKIT_CLUSTER_OPERATORS_HPP_

#include <algorithm>
#include <cstring>

#include "opkit/cluster/communicator.hpp"
#include "opkit/cluster/names.hpp"
#include "opkit/cluster/reduce.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the number of processes of a collective; -1 if it is not known before the plan is cut.
inline int64_t GroupSize(const OperatorDef& def) {
  const auto group = static_cast<int64_t>(GroupOf(def).size());
  return group > 0 ? group : def.args().Get<int64_t>("processes", -1);
}

// Returns the attribute "dtype".
inline DType GivenDTypeOf(const OperatorDef& def) {
  const auto number = def.args().Get<int64_t>("dtype", 0);
  if (number < 0 || number >= kNumDTypes)
    Throw(ErrorCode::kInvalidArgument, def.type(), ": the attribute dtype is ", number,
          ", which is no DType");
  return static_cast<DType>(number);
}
// Output i has the dtype and shape of input i; those of the attributes if the node has no input.
inline void InferBesideRoot(InferenceContext& c) {
  if (!c.def().args().Has("dtype")) return;
  SymbolicShape shape;
  if (c.def().args().Has("shape")) {
    const auto dims = c.Arg<std::vector<int64_t>>("shape", {});
    shape = SymbolicShape(Shape(dims));
  }
  for (int o = 0; o < c.num_outputs(); ++o) c.SetOutput(o, GivenDTypeOf(c.def()), shape);
}
// A message of the author's own says what comes; Compile lets those that it adds bring it.
inline void InferReceived(InferenceContext& c) {
  const auto& args = c.def().args();
  if (args.Get<int64_t>("is_dynamic", 0) == 0 && !(args.Has("dtype") && args.Has("shape")))
    Throw(ErrorCode::kInvalidArgument, c.def().type(),
          ": the attributes dtype and shape are missing, those of the tensor that comes");
  InferBesideRoot(c);
}
inline void InferSame(InferenceContext& c) {
  InferBesideRoot(c);
  for (int o = 0; o < c.num_outputs() && o < c.num_inputs(); ++o)
    if (c.HasInput(o)) c.SetOutput(o, c.input_dtype(o), c.input_shape(o));
}
// The output has the input's shape with the first extent times, or by, the number of processes.
template <bool kTimes>
void InferBlocks(InferenceContext& c) {
  InferBesideRoot(c);
  if (!c.HasInput(0)) return;
  SymbolicShape shape = c.input_shape(0);
  if (shape.has_rank()) {
    if (shape.rank() == 0)
      Throw(ErrorCode::kInvalidArgument, c.def().type(),
            ": the input is a scalar, expected rank 1 or more");
    const int64_t n = GroupSize(c.def());
    const Dim first = shape.dim(0);
    if (!first.is_known() || n < 0) {
      shape[0] = Dim();
    } else if (kTimes) {
      shape[0] = first.value() * n;
    } else {
      if (first.value() % n != 0)
        Throw(ErrorCode::kInvalidArgument, c.def().type(), ": the first extent of the input, ",
              first.value(), ", is no multiple of the number of processes, ", n);
      shape[0] = first.value() / n;
    }
  }
  c.SetOutput(0, c.input_dtype(0), shape);
}

}  // namespace detail

// Starts the communication of its node in each run, and completes when that ends. A node without
// a communicator is one of a single process: collectives then copy their inputs. On a device, puts
// the communication on the context's stream.
template <class Context>
class CommunicationOp : public Operator<Context>, public detail::ReceivesOutputs {
 public:
  OPKIT_USE_OPERATOR_FUNCTIONS(Context);
  CommunicationOp(const OperatorDef& node, Workspace* ws, const KernelConfig* chosen = nullptr)
      : Operator<Context>(node, ws, chosen), communicator_(FindCommunicator()), plan_(MakePlan()) {
    n_ = !communicator_        ? 1
         : plan_.group.empty() ? communicator_->processes()
                               : static_cast<int64_t>(plan_.group.size());
  }
  bool HasAsyncPart() const override { return true; }
  bool SupportsRecording() const override { return false; }

  bool RunOnDevice() override {
    if (!communication_ || communication_->is_pending()) NewCommunication();
    Communication& run = *communication_;
    finisher_ = nullptr;
    run.input = nullptr;
    run.output = nullptr;
    run.dtype = DType::kUndefined;
    run.count = 0;
    run.more.clear();
    run.invocation = 0;
    if (detail::CurrentSpanSink()) [[unlikely]]
      DescribeMessage();
    switch (plan_.kind) {
      case CommunicationKind::kSend:
        SetInput(Dense(0));
        run.shape = Input(0).shape();
        break;
      case CommunicationKind::kReceive:
        if (plan_.is_dynamic)
          run.received = std::exchange(*Output(0), Tensor());
        else
          SetOutput(Output(0, GivenShape(), GivenDType()), 1);
        break;
      case CommunicationKind::kAllReduce:
      case CommunicationKind::kReduce:
        PrepareReduction();
        break;
      case CommunicationKind::kBroadcast:
        if (HasInput(0)) SetInput(Dense(0));
        SetOutput(Output(0, ShapeOf(0), DTypeOf(0)), 1);
        break;
      case CommunicationKind::kAllGather:
      case CommunicationKind::kGather:
        SetInput(Dense(0));
        if (HasOutput(0)) SetOutput(Output(0, Blocks(n_, 1), DTypeOf(0)), n_);
        break;
      case CommunicationKind::kReduceScatter:
      case CommunicationKind::kScatter:
        if (HasInput(0)) SetInput(Dense(0));
        SetOutput(Output(0, HasInput(0) ? Blocks(1, n_) : GivenShape(), DTypeOf(0)), 1);
        break;
      case CommunicationKind::kAllToAll:
        SetInput(Dense(0));
        Blocks(1, n_);  // checks the extent
        SetOutput(Output(0, Input(0).shape(), DTypeOf(0)), n_);
        break;
      case CommunicationKind::kBarrier:
        break;
    }
    detail::IntrusivePtr<EventState> completion;
    if (!this->IsEventDisabled()) completion = event().state();
    if constexpr (kIsOnDevice) {
      if (completion)
        completion->SetContext(this->failure_context());  // a failure may come at once
      run.stream = context_.native_stream();
      run.completion = std::move(completion);
      communicator_->Start(communication_);
      run.Record();
      run.completion = {};
      run.TakeBuffers();  // the operator's event keeps the memory
      return true;
    }
    run.Begin(std::move(completion), std::move(finisher_));
    if (!communicator_) return RunAlone(), true;
    try {
      communicator_->Start(communication_);
    } catch (...) {
      run.Finish(std::current_exception());
      throw;
    }
    return true;
  }
  void TakeOutputs() override {
    if (plan_.kind == CommunicationKind::kReceive && plan_.is_dynamic)
      *Output(0) = std::move(communication_->received);
  }

 private:
  static constexpr bool kIsOnDevice = Context::kAsynchronous;

  CommunicatorPtr FindCommunicator() const {
    const auto number = def().args().template Get<int64_t>("communicator", -1);
    if (number < 0) {
      if (kIsOnDevice)
        Throw(ErrorCode::kFailedPrecondition, "the node communicates on ", ToString(device()),
              ", and its plan was made without a communicator");
      return {};
    }
    CommunicatorPtr found = Communicator::Find(number);
    if (!found)
      Throw(ErrorCode::kFailedPrecondition, "the communicator ", number,
            " of the node is gone; compile the graph again, in this program");
    return found;
  }
  CommunicationPlan MakePlan() const {
    CommunicationPlan plan;
    const std::string_view name = detail::CommunicationOf(def());
    while (ToString(plan.kind) != name) {
      OPKIT_ASSERT(plan.kind != CommunicationKind::kSend);
      plan.kind = static_cast<CommunicationKind>(static_cast<int>(plan.kind) - 1);
    }
    const bool is_message =
        plan.kind == CommunicationKind::kSend || plan.kind == CommunicationKind::kReceive;
    plan.process = detail::ProcessNumber(
        def(), def().args().template Get<int64_t>(is_message ? "process" : "root", 0));
    for (const int64_t process : detail::GroupOf(def()))
      plan.group.push_back(detail::ProcessNumber(def(), process));
    std::sort(plan.group.begin(), plan.group.end());
    plan.channel = def().args().template Get<int64_t>("channel", is_message ? 0 : -1);
    plan.collectives = def().args().template Get<int64_t>("collectives", 0);
    plan.is_dynamic = is_message && def().args().template Get<int64_t>("is_dynamic", 0) != 0;
    const auto reduction = def().args().template Get<std::string>("reduction", "sum");
    plan.is_mean = reduction == "mean";
    for (const Reduction r :
         {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin})
      if (ToString(r) == reduction) plan.reduction = r;
    return plan;
  }
  // Says to the profile what is sent or received.
  OPKIT_COLD void DescribeMessage() {
    const bool is_send = plan_.kind == CommunicationKind::kSend;
    if (!communicator_ || (!is_send && plan_.kind != CommunicationKind::kReceive)) return;
    const int here = communicator_->process();
    communication_->invocation = CurrentInvocation().id;
    communication_->message = {is_send ? here : plan_.process, is_send ? plan_.process : here,
                               communicator_->plan(), plan_.channel};
  }
  void NewCommunication() {
    CommunicationPlan plan = plan_;
    if (is_deterministic_) plan.kind = CommunicationKind::kAllGather;
    communication_ = detail::MakeIntrusive<Communication>(std::move(plan), ToString(def()));
  }

  const Tensor& Dense(int i) { return DenseInput(i); }
  DType GivenDType() const { return detail::GivenDTypeOf(def()); }
  Shape GivenShape() const {
    return Shape(def().args().template Get<std::vector<int64_t>>("shape", {}));
  }
  DType DTypeOf(int i) const { return HasInput(i) ? Input(i).dtype() : GivenDType(); }
  Shape ShapeOf(int i) const { return HasInput(i) ? Input(i).shape() : GivenShape(); }
  // Returns the shape of input 0 with its first extent times `times`, by `by`.
  Shape Blocks(int64_t times, int64_t by) const {
    std::vector<int64_t> extents(Input(0).shape().begin(), Input(0).shape().end());
    if (extents.empty() || extents[0] % by != 0)
      Throw(ErrorCode::kInvalidArgument, "the input has shape ", Input(0).shape(),
            ", but its first extent must be a multiple of the number of processes, ", by);
    extents[0] = extents[0] / by * times;
    return Shape(extents);
  }
  bool HasBlocksInInput() const {
    return plan_.kind == CommunicationKind::kReduceScatter ||
           plan_.kind == CommunicationKind::kScatter || plan_.kind == CommunicationKind::kAllToAll;
  }
  void SetInput(const Tensor& x) {
    communication_->input = x.raw_data();
    communication_->dtype = x.dtype();
    communication_->count = x.numel() / (HasBlocksInInput() ? n_ : 1);
    communication_->Keep(x);
  }
  void SetOutput(Tensor* y, int64_t blocks) {
    communication_->output = y->raw_mutable_data();
    communication_->dtype = y->dtype();
    communication_->count = y->numel() / blocks;
    communication_->Keep(*y);
    if (plan_.is_mean && plan_.kind == CommunicationKind::kReduceScatter)
      finisher_ = [out = y->raw_mutable_data(), dtype = y->dtype(), count = y->numel(), n = n_] {
        detail::DivideElements(dtype, count, n, out);
      };
  }

  // AllReduce and Reduce: several inputs are one block, and so are their results.
  struct Piece {
    void* result;  // null on a process other than the root of Reduce
    int64_t bytes;
  };
  void PrepareReduction() {
    Communication& run = *communication_;
    const bool has_result = HasOutput(0);
    pieces_.clear();
    const DType dtype = Input(0).dtype();
    int64_t count = 0;
    for (int i = 0; i < InputSize(); ++i) {
      const Tensor& x = Input(i);
      if (x.dtype() != dtype)
        Throw(ErrorCode::kTypeMismatch, "input 0 is ", ToString(dtype), ", but input ", i, " is ",
              ToString(x.dtype()));
      Tensor* y = has_result ? Output(i, x.shape(), dtype) : nullptr;
      if (y) run.Keep(*y);
      pieces_.push_back({y ? y->raw_mutable_data() : nullptr, x.numel() * ItemSize(dtype)});
      count += x.numel();
    }
    run.dtype = dtype;
    run.count = count;
    if constexpr (kIsOnDevice) {
      for (int i = InputSize(); i-- > 0;) {
        SetInput(Dense(i));
        run.output = pieces_[detail::Index(i)].result;
        if (i > 0) run.more.push_back({run.input, run.output, run.count});
      }
      return;
    }
    if (InputSize() == 1) {
      SetInput(Dense(0));
    } else {
      char* packed = Buffer(packed_, count, dtype);
      run.input = packed;
      for (int i = 0; i < InputSize(); ++i) {
        const size_t bytes = static_cast<size_t>(pieces_[detail::Index(i)].bytes);
        if (bytes > 0) std::memcpy(packed, Dense(i).raw_data(), bytes);
        packed += bytes;
      }
    }
    // In order: where the communicator writes, and what is left to do then.
    char* written = nullptr;
    if (is_deterministic_)
      written = Buffer(gathered_, count * n_, dtype);
    else if (has_result && InputSize() > 1)
      written = static_cast<char*>(const_cast<void*>(run.input));
    run.output = written ? written : pieces_[0].result;
    if (!has_result || (!written && !plan_.is_mean)) return;
    finisher_ = [written, dtype, count, pieces = pieces_, n = n_, mean = plan_.is_mean,
                 deterministic = is_deterministic_, reduction = plan_.reduction] {
      char* from = written ? written : static_cast<char*>(pieces[0].result);
      const int64_t bytes = count * ItemSize(dtype);
      for (int64_t i = 1; deterministic && i < n; ++i)
        detail::ReduceInto(reduction, dtype, count, from + i * bytes, from);
      if (mean) detail::DivideElements(dtype, count, n, from);
      for (const Piece& piece : pieces) {
        if (piece.bytes > 0 && piece.result != from)
          std::memcpy(piece.result, from, static_cast<size_t>(piece.bytes));
        from += piece.bytes;
      }
    };
  }
  // Returns memory of the operator that the communication keeps while it needs it.
  char* Buffer(Tensor& buffer, int64_t count, DType dtype) {
    if (buffer.numel() != count || buffer.dtype() != dtype || buffer.storage().use_count() > 1)
      buffer = Tensor(Shape{count}, dtype);
    communication_->Keep(buffer);
    return static_cast<char*>(buffer.raw_mutable_data());
  }

  // The communication of a single process: the one block is the result.
  void RunAlone() {
    Communication& run = *communication_;
    if (plan_.kind == CommunicationKind::kSend || plan_.kind == CommunicationKind::kReceive ||
        detail::GroupSize(def()) > 1) {
      run.Finish(std::make_exception_ptr(
          Error(ErrorCode::kFailedPrecondition,
                "the node communicates, and its plan was made without a communicator")));
      return;
    }
    if (run.output && run.output != run.input && run.bytes() > 0)
      std::memcpy(run.output, run.input, static_cast<size_t>(run.bytes()));
    run.Finish(nullptr);
  }

  const CommunicatorPtr communicator_;
  const bool is_deterministic_ = this->def().args().template Get<int64_t>("deterministic", 0) != 0;
  const CommunicationPlan plan_;
  int64_t n_ = 1;
  detail::IntrusivePtr<Communication> communication_;
  UniqueFunction<void()> finisher_;
  std::vector<Piece> pieces_;
  Tensor packed_, gathered_;  // several inputs in one block; the blocks of all processes
};

namespace detail {

// The gradient of a collective is another collective of the gradient of its output: that of the sum
// of the losses of the processes that have the output. ProcessParts makes it zero on processes that
// do not take part, which compute nodes of the backward graph with these zeros. Reductions
// other than the sum have the gradients of ReduceMean, ReduceProd, ReduceMax and ReduceMin.
class CollectiveGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override {
    const auto reduction = Def().args().Get<std::string>("reduction", "sum");
    const bool is_mean = reduction == "mean";
    for (int i = 0; i < static_cast<int>(Def().inputs().size()); ++i) {
      if (!HasGO(i)) continue;
      if (reduction == "sum")
        Give(i, Backward(), {GO(i)}, Args(Backward(), "sum"));
      else if (is_mean && IsAllReduce())
        Give(i, Backward(), {GO(i)}, Args(Backward(), "mean"));
      else if (is_mean)
        Give(i, "Div", {Arrived(GO(i)), Processes(GO(i))});
      else if (reduction == "product")
        GiveProduct(i);
      else
        GiveExtreme(i);
    }
  }
  bool IsAllReduce() const { return CommunicationOf(Def()) == "AllReduce"; }
  // Returns the collective that carries the gradient back.
  std::string Backward() const {
    constexpr std::pair<std::string_view, std::string_view> kGradients[] = {
        {"AllReduce", "AllReduce"},     {"Reduce", "Broadcast"},       {"Broadcast", "Reduce"},
        {"Gather", "Scatter"},          {"Scatter", "Gather"},         {"AllToAll", "AllToAll"},
        {"AllGather", "ReduceScatter"}, {"ReduceScatter", "AllGather"}};
    for (const auto& [forward, backward] : kGradients)
      if (forward == CommunicationOf(Def())) return StrCat(kClusterDomain, backward);
    OPKIT_ASSERT(false);
    return {};
  }
  // Returns the arguments of this node that `op` takes, with another reduction.
  Arguments Args(const std::string& op, const char* reduction) const {
    const OpSchema& schema = OpRegistry::Global().GetSchema(op);
    Arguments args;
    for (const NamedAttribute& arg : Def().args())
      if (arg.name != "reduction" && schema.TakesArgument(arg.name)) args.Set(arg.name, arg.value);
    if (schema.TakesArgument("reduction")) args.Set("reduction", reduction);
    return args;
  }
  // Returns the reduction of a value over the processes of the group, on each of them.
  std::string Reduced(const std::string& value, const char* reduction = "sum") {
    const std::string op = StrCat(kClusterDomain, "AllReduce");
    return Node(op, {value}, Args(op, reduction));
  }
  // Returns the gradient of the reduction, of the shape of the input, on each process.
  std::string Arrived(const std::string& gradient) {
    return IsAllReduce() ? Reduced(gradient)
                         : Node(Backward(), {gradient}, Args(Backward(), "sum"));
  }
  // Returns the result of the reduction, of the shape of the input, on each process.
  std::string Result(int i) {
    return IsAllReduce() ? O(i) : Node(Backward(), {O(i)}, Args(Backward(), "sum"));
  }
  // Returns the number of processes. Counts in float32, which has all of them.
  std::string Processes(const std::string& like) {
    if (const size_t group = GroupOf(Def()).size(); group > 0)
      return Number(static_cast<float>(group), like);
    const std::string one = Node("Constant", {}, {{"value_float", 1.f}});
    return Node("CastLike", {Reduced(one), like});
  }
  void GiveExtreme(int i) {
    const std::string mask = Node("Equal", {I(i), Result(i)});
    // At least 1, because sums are zero on a process outside of the group.
    const std::string sum = Reduced(Node("CastLike", {mask, I(i)}));
    const std::string count = Node("Max", {sum, Number(1, sum)});
    const std::string share = Node("Div", {Arrived(GO(i)), count});
    Give(i, "Where", {mask, share, Number(0, share)});
  }
  void GiveProduct(int i) {
    const std::string zero = Node("Equal", {I(i), Number(0, I(i))});
    const std::string others = Node("Where", {zero, Number(1, I(i)), I(i)});
    const std::string zeros = Reduced(Node("CastLike", {zero, I(i)}));
    const std::string single = Node("Equal", {zeros, Number(1, zeros)});
    const std::string arrived = Arrived(GO(i));
    const std::string product = Node("Mul", {arrived, Reduced(others, "product")});
    const std::string quotient = Node("Div", {Node("Mul", {arrived, Result(i)}), others});
    Give(i, "Where", {zero, Masked(single, product), quotient});
  }
};

// Declare the attributes that schemas share: those of messages and of collectives, those of a node
// whose output may have no input here, and how a reduction combines elements.
inline void DeclareMessage(OpSchema& schema) {
  schema.Stateful()
      .Arg<int64_t>("communicator", "the number of the communicator; Compile sets it", -1)
      .Arg<int64_t>("channel", "the number of the message among those from one process to another",
                    0)
      .Arg<int64_t>("process", "the other process", 0)
      .Arg<int64_t>("is_dynamic", "1: the message brings its dtype and shape", 0);
}
inline void DeclareCollective(OpSchema& schema) {
  schema.Stateful()
      .Arg<int64_t>("communicator", "the number of the communicator; Compile sets it", -1)
      .Arg<int64_t>("channel", "the place among the collectives of the group; Compile sets it", -1)
      .Arg<int64_t>("collectives", "the number of the group's collectives; Compile sets it", 0)
      .Arg<std::vector<int64_t>>("group", "the processes that take part; by default all", {})
      .Arg<int64_t>("processes", "the number of processes; Compile sets it", -1);
}
inline void DeclareGivenOutput(OpSchema& schema) {
  schema.Arg<int64_t>("dtype", "the dtype of the output where the node has no input", 0)
      .Arg<std::vector<int64_t>>("shape", "the shape of the output there", {});
}
inline void DeclareReduction(OpSchema& schema) {
  schema.Arg("reduction", "how elements are combined", {"sum", "mean", "product", "max", "min"});
}

}  // namespace detail

OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.AllReduce", detail::CollectiveGradient);
OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.Reduce", detail::CollectiveGradient);
OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.Broadcast", detail::CollectiveGradient);
OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.AllGather", detail::CollectiveGradient);
OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.Gather", detail::CollectiveGradient);
OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.ReduceScatter", detail::CollectiveGradient);
OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.Scatter", detail::CollectiveGradient);
OPKIT_REGISTER_GRADIENT_STR("opkit.cluster.AllToAll", detail::CollectiveGradient);

OPKIT_DOMAIN_OPERATOR("opkit.cluster", Send, kNotImplemented, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareMessage)
    .NumOutputs(0)
    .Input(0, "input", "the tensor to send", AllDTypes())
    .Infer([](InferenceContext&) {})
    .Doc("Sends a tensor to another process.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", Recv, kNotImplemented, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareMessage)
    .FillUsing(&detail::DeclareGivenOutput)
    .NumInputs(0)
    .Output(0, "output", "the tensor that arrives", AllDTypes())
    .Infer(detail::InferReceived)
    .Doc("Receives a tensor from another process.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", AllReduce, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .FillUsing(&detail::DeclareReduction)
    .Arg<int64_t>("deterministic",
                  "1: elements are combined in the order of the processes, so that results do "
                  "not depend on the communicator",
                  0)
    .NumInputs(1, 1 << 20)
    .NumOutputs(1, 1 << 20)
    .SameNumberOfOutput()
    .OneToOneInplace()
    .Input(0, "inputs", "tensors of one dtype, communicated as one block", NumericTypes::DTypes())
    .Output(0, "outputs", "the reductions of the processes' inputs", NumericTypes::DTypes())
    .Infer(detail::InferSame)
    .Doc("Reduces tensors over all processes of a group; each gets the results.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", Reduce, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .FillUsing(&detail::DeclareReduction)
    .Arg<int64_t>("root", "the process that gets the result", 0)
    .Input(0, "input", "a tensor", NumericTypes::DTypes())
    .Output(0, "output", "the reduction, on the root", NumericTypes::DTypes())
    .Infer(detail::InferSame)
    .Doc("Reduces a tensor over all processes of a group; the root gets the result.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", Broadcast, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .Arg<int64_t>("root", "the process that has the input", 0)
    .FillUsing(&detail::DeclareGivenOutput)
    .Input(0, "input", "a tensor of the root", AllDTypes())
    .Output(0, "output", "that tensor, on each process", AllDTypes())
    .Infer(detail::InferSame)
    .Doc("Gives a tensor of the root to all processes of a group.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", AllGather, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .Input(0, "input", "a tensor; its shape is the same on each process", AllDTypes())
    .Output(0, "output", "the tensors of all, along the first axis", AllDTypes())
    .Infer(detail::InferBlocks<true>)
    .Doc("Concatenates the tensors of all processes of a group; each gets the result.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", Gather, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .Arg<int64_t>("root", "the process that gets the result", 0)
    .Input(0, "input", "a tensor; its shape is the same on each process", AllDTypes())
    .Output(0, "output", "the tensors of all, along the first axis, on the root", AllDTypes())
    .Infer(detail::InferBlocks<true>)
    .Doc("Concatenates the tensors of all processes of a group on the root.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", ReduceScatter, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .FillUsing(&detail::DeclareReduction)
    .Input(0, "input", "a block for each process along the first axis", NumericTypes::DTypes())
    .Output(0, "output", "the reduction of the blocks of this process", NumericTypes::DTypes())
    .Infer(detail::InferBlocks<false>)
    .Doc("Reduces a tensor over all processes of a group; each gets one block of the result.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", Scatter, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .Arg<int64_t>("root", "the process that has the input", 0)
    .FillUsing(&detail::DeclareGivenOutput)
    .Input(0, "input", "a block for each process along the first axis, on the root", AllDTypes())
    .Output(0, "output", "the block of this process", AllDTypes())
    .Infer(detail::InferBlocks<false>)
    .Doc("Splits a tensor of the root among the processes of a group.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", AllToAll, kMaker, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .Input(0, "input", "a block for each process along the first axis", AllDTypes())
    .Output(0, "output", "the block of each process for this one, along the first axis",
            AllDTypes())
    .Infer(detail::InferSame)
    .Doc("Sends block i of each process to process i.");

OPKIT_DOMAIN_OPERATOR("opkit.cluster", Barrier, kNone, CommunicationOp<CPUContext>)
    .FillUsing(&detail::DeclareCollective)
    .NumInputs(0)
    .NumOutputs(0)
    .Infer([](InferenceContext&) {})
    .Doc("Waits for all processes of a group.");

}}  // namespace opkit

#endif  // OPKIT_CLUSTER_OPERATORS_HPP_
