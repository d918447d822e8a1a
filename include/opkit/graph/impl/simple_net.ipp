// SimpleNet's definitions: fills the workspace, runs the nodes and times them.
#ifndef OPKIT_GRAPH_IMPL_SIMPLE_NET_IPP_
#define OPKIT_GRAPH_IMPL_SIMPLE_NET_IPP_

#include <algorithm>
#include <optional>

#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/graph_view.hpp"
#include "opkit/graph/simple_net.hpp"
#include "opkit/op/kernel_candidates.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Puts a constant into the workspace. Throws kAlreadyExists if its blob has other contents.
inline void PutConstant(Workspace& ws, const std::string& name, const Tensor& value) {
  Blob* blob = ws.CreateBlob(name);
  if (blob->empty()) *blob->GetMutable<Tensor>() = value;
  if (!blob->IsType<Tensor>() || Attribute(blob->Get<Tensor>()) != Attribute(value))
    Throw(ErrorCode::kAlreadyExists, "blob '", name,
          "' of the workspace differs from the graph's constant of that name; rename one of them");
}

// Throws the errors of SimpleNet::Run for inputs that differ from the graph's declarations.
inline void CheckInputs(const Graph& graph, Workspace& ws) {
  NameTable<std::optional<int64_t>> extents;  // by symbol
  for (const Graph::Input& input : graph.inputs()) {
    const Tensor& found = *ws.GetTensor(input.name);
    const auto fail = [&](ErrorCode code, const std::string& more = "") {
      Throw(code, "input '", input.name, "' of the graph is ", ToString(found), ", expected ",
            input.info, more);
    };
    if (input.info.dtype != DType::kUndefined && found.dtype() != input.info.dtype)
      fail(found.initialized() ? ErrorCode::kTypeMismatch : ErrorCode::kUninitialized);
    const SymbolicShape& declared = input.info.shape;
    if (!declared.has_rank()) continue;
    bool fits = declared.rank() == found.rank();
    for (int axis = 0; fits && axis < declared.rank(); ++axis) {
      const Dim& dim = declared[axis];
      if (dim.is_symbol()) {
        std::optional<int64_t>& extent = extents[dim.symbol()];
        if (!extent) extent = found.shape()[axis];
        if (extent != found.shape()[axis])
          fail(ErrorCode::kInvalidArgument,
               StrCat("; an earlier input has ", dim.symbol(), " = ", *extent));
      }
      fits = !dim.is_known() || dim.value() == found.shape()[axis];
    }
    if (!fits) fail(ErrorCode::kInvalidArgument);
  }
}

// Returns the types of all values for the inputs in the workspace. Returns nullopt if these do not
// fit the graph; Run then reports the error.
inline std::optional<GraphTypes> TypesNow(const GraphView& view, Workspace& ws) {
  std::vector<Graph::Input> inputs = view.graph().inputs();
  for (Graph::Input& input : inputs)
    if (ws.HasTensor(input.name) && ws.GetTensor(input.name)->initialized())
      input.info = TensorInfo::Of(*ws.GetTensor(input.name));
  try {
    return InferGraph(view, inputs);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns the median of times in ns, in ms.
inline double MedianMs(std::vector<int64_t> times) {
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  return static_cast<double>(times[(n - 1) / 2] + times[n / 2]) * 0.5e-6;
}

inline NetBenchmark::Row BenchmarkRow(const OperatorBase& op, const Workspace& ws, double ms) {
  const OperatorDef& def = op.def();
  const OpCost cost = OpRegistry::Global()
                          .GetSchema(def.type())
                          .Cost(def, TypesIn(ws, def.inputs()), TypesIn(ws, def.outputs()));
  return {.op = def.type(),
          .name = def.name(),
          .node = op.net_position(),
          .ms = ms,
          .flops = static_cast<double>(cost.flops),
          .bytes = static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written)};
}

}  // namespace detail

OPKIT_INLINE SimpleNet::SimpleNet(Graph graph, Workspace* ws)
    : graph_(std::move(graph)), workspace_(ws) {
  if (!ws)
    Throw(ErrorCode::kInvalidArgument, "SimpleNet needs a workspace, but its pointer is null");
  Check(graph_);
  for (const Graph::Input& input : graph_.inputs())
    if (!ws->HasBlob(input.name) && !input.has_default())
      Throw(ErrorCode::kNotFound, "input '", input.name,
            "' of the graph is not in the workspace; create it before the net",
            SuggestName(input.name, ws->Blobs()));
  std::vector<std::string> made;
  try {
    for (const Graph::Input& input : graph_.inputs())
      if (!ws->HasBlob(input.name)) {
        made.push_back(input.name);
        ws->CreateBlob(input.name)->GetMutable<Tensor>()->CopyFrom(input.default_value);
      }
    for (const Graph::Constant& constant : graph_.constants()) {
      if (!ws->HasBlob(constant.name)) made.push_back(constant.name);
      detail::PutConstant(*ws, constant.name, constant.value);
    }
    const GraphView view(graph_);
    const std::optional<GraphTypes> types = detail::TypesNow(view, *ws);
    for (const int node : view.order()) {
      const OperatorDef& def = graph_.node(node);
      for (const std::string& output : def.outputs())
        if (!output.empty() && !ws->HasBlob(output)) made.push_back(output);
      ops_.push_back(types ? CreateSelected(def, ws, types->Of(view.inputs(node)),
                                            types->Of(view.outputs(node)),
                                            {.net_position = node, .any_shapes = true})
                           : CreateOperator(def, ws, node));
    }
  } catch (...) {
    ops_.clear();
    for (const std::string& name : made) ws->RemoveBlob(name);
    throw;
  }
}

OPKIT_INLINE bool SimpleNet::Run() {
  const InvocationScope scope(Invocation::Kind::kRun,
                              [] { return detail::SpanNames{InternName("SimpleNet::Run")}; });
  detail::ObserverScope<SimpleNet> observers(*this);
  detail::CheckInputs(graph_, *workspace_);
  for (const auto& op : ops_) op->Run();
  observers.Succeeded();
  return true;
}

OPKIT_INLINE NetBenchmark SimpleNet::Benchmark(const NetBenchmark::Options& options) {
  if (options.runs < 1 || options.warmup < 0)
    Throw(ErrorCode::kInvalidArgument,
          "a benchmark needs at least 1 run and 0 or more warmup runs, found ", options.runs,
          " and ", options.warmup);
  for (int i = 0; i < options.warmup; ++i) Run();
  const auto time_ns = [](auto&& run) {
    const int64_t start_ns = detail::MonotonicNs();
    run();
    return detail::MonotonicNs() - start_ns;
  };
  std::vector<int64_t> whole;
  for (int i = 0; i < options.runs; ++i) whole.push_back(time_ns([&] { Run(); }));
  std::vector<std::vector<int64_t>> times(ops_.size());
  for (int i = 0; i < options.runs; ++i)
    for (size_t at = 0; at < ops_.size(); ++at)
      times[at].push_back(time_ns([&] { ops_[at]->Run(); }));
  NetBenchmark result;
  result.runs = options.runs;
  result.net_ms = detail::MedianMs(whole);
  for (size_t at = 0; at < ops_.size(); ++at)
    result.nodes.push_back(
        detail::BenchmarkRow(*ops_[at], *workspace_, detail::MedianMs(times[at])));
  result.SumUp();
  return result;
}

}}  // namespace opkit

#endif  // OPKIT_GRAPH_IMPL_SIMPLE_NET_IPP_
