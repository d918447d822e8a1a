// SimpleNet: a graph run node after node in a workspace, where every value can be looked at: for
// debugging, and to know what each node costs. What Compile and Executor run is compared with it.
#ifndef OPKIT_GRAPH_SIMPLE_NET_HPP_
#define OPKIT_GRAPH_SIMPLE_NET_HPP_

#include "opkit/graph/graph_view.hpp"
#include "opkit/graph/net_benchmark.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit::inline OPKIT_ABI {

// Inputs of the graph are tensors in the workspace, outputs and everything between stay there.
// Constants are put there and share the graph's memory. The net copies the graph and not the
// workspace, which must outlive it; several nets may work in one. Not synchronised.
//
//   Workspace ws;
//   *ws.CreateTensor("X") = x;
//   SimpleNet net(graph, &ws);
//   net.Run();
//   const Tensor& y = *ws.GetTensor("Y");
//   std::puts(ToString(net.Benchmark({.runs = 20})).c_str());
//
// A template, so that programs without nets do not compile it.
template <class Base, class Graph>
class BasicSimpleNet : public Observable<BasicSimpleNet<Base, Graph>> {
 public:
  // Errors: as Check(graph), which finds outputs that nothing makes; kNotFound, with the nearest
  // name, for an input that is not in the workspace; kAlreadyExists where another tensor has the
  // name of a constant; as CreateOperator. What was put into the workspace is then gone again.
  BasicSimpleNet(Graph graph, Workspace* ws) : graph_(std::move(graph)), workspace_(ws) {
    if (!ws) Throw(ErrorCode::kInvalidArgument, "a net needs a workspace");
    Check(graph_);
    for (const auto& input : graph_.inputs())
      if (!ws->HasBlob(input.name))
        Throw(ErrorCode::kNotFound, "input '", input.name,
              "' of the graph is not in the workspace; create it before the net",
              SuggestName(input.name, ws->Blobs()));
    std::vector<std::string> made;
    try {
      for (const auto& constant : graph_.constants()) {
        if (!ws->HasBlob(constant.name)) made.push_back(constant.name);
        PutConstant(constant.name, constant.value);
      }
      const BasicGraphView<Graph> view(graph_);
      for (const int node : view.order()) {
        const auto& def = graph_.node(node);
        for (const std::string& output : def.outputs())
          if (!output.empty() && !ws->HasBlob(output)) made.push_back(output);
        ops_.push_back(CreateOperator(def, ws, node));
      }
    } catch (...) {
      ops_.clear();
      for (const std::string& name : made) ws->RemoveBlob(name);
      throw;
    }
  }

  // Runs every node to completion, in the graph's order. True, or the Error of the first that
  // fails: later ones do not run, and its index is the workspace's last_failed_op_net_position.
  // Error (kTypeMismatch, kInvalidArgument) before anything runs for an input whose dtype or shape
  // is not what the graph declares.
  bool Run() {
    ObserverScope<BasicSimpleNet> observers(*this);
    CheckInputs();
    for (const auto& op : ops_) op->Run();
    observers.Succeeded();
    return true;
  }

  // Times every node alone and the net as a whole, observers included. Error (kInvalidArgument)
  // without runs; what a run throws.
  template <class Result = NetBenchmark>
  Result Benchmark(const NetBenchmarkOptions& options = {}) {
    if (options.runs < 1 || options.warmup < 0)
      Throw(ErrorCode::kInvalidArgument, "a benchmark of ", options.runs, " runs after ",
            options.warmup, " for warming up; expected at least one run");
    for (int i = 0; i < options.warmup; ++i) Run();
    Result result;
    result.runs = options.runs;
    std::vector<int64_t> whole;
    for (int i = 0; i < options.runs; ++i) AddSorted(whole, TimeNs([&] { Run(); }));
    result.net_ms = MedianMs(whole);
    std::vector<std::vector<int64_t>> times(ops_.size());
    for (int i = 0; i < options.runs; ++i)
      for (size_t at = 0; at < ops_.size(); ++at)
        AddSorted(times[at], TimeNs([&] { ops_[at]->Run(); }));
    for (size_t at = 0; at < ops_.size(); ++at)
      result.nodes.push_back(Row(at, MedianMs(times[at])));
    result.SumUp();
    return result;
  }

  const Graph& graph() const { return graph_; }
  Workspace* workspace() const { return workspace_; }
  int num_ops() const { return static_cast<int>(ops_.size()); }
  // The operators in the order they run; each one's net_position() is its node's index.
  Base& op(int i) {
    if (i < 0 || i >= num_ops())
      Throw(ErrorCode::kOutOfRange, "operator ", i, " of a net that has ", num_ops());
    return *ops_[static_cast<size_t>(i)];
  }

 private:
  void PutConstant(const std::string& name, const Tensor& value) {
    Blob* blob = workspace_->CreateBlob(name);
    if (blob->empty()) *blob->GetMutable<Tensor>() = value;
    if (!blob->IsType<Tensor>() || Attribute(blob->Get<Tensor>()) != Attribute(value))
      Throw(ErrorCode::kAlreadyExists, "blob '", name,
            "' of the workspace holds something else than the graph's constant of that name; "
            "rename one of them");
  }
  void CheckInputs() const {
    NameIndex symbols;
    std::vector<int64_t> extents;
    for (const auto& input : graph_.inputs()) {
      const Tensor& found = *workspace_->GetTensor(input.name);
      const DType dtype = input.info.dtype;
      if (dtype != DType::kUndefined && found.dtype() != dtype)
        Throw(found.initialized() ? ErrorCode::kTypeMismatch : ErrorCode::kUninitialized, "input '",
              input.name, "' of the graph is ", found.Describe(), ", expected ",
              ToString(input.info));
      const SymbolicShape& declared = input.info.shape;
      if (!declared.has_rank()) continue;
      bool fits = declared.rank() == found.rank();
      for (int axis = 0; fits && axis < declared.rank(); ++axis) {
        const Dim& dim = declared[axis];
        if (dim.is_symbol()) {
          const auto number = static_cast<size_t>(symbols.Add(dim.symbol()));
          if (number == extents.size()) extents.push_back(found.shape()[axis]);
          if (extents[number] != found.shape()[axis])
            Throw(ErrorCode::kInvalidArgument, "input '", input.name, "' of the graph is ",
                  found.Describe(), ", expected ", ToString(input.info), " where ", dim.symbol(),
                  " is ", extents[number], " in an input before");
        }
        fits = !dim.is_known() || dim.value() == found.shape()[axis];
      }
      if (!fits)
        Throw(ErrorCode::kInvalidArgument, "input '", input.name, "' of the graph is ",
              found.Describe(), ", expected ", ToString(input.info));
    }
  }

  template <class F>
  static int64_t TimeNs(F&& run) {
    const int64_t start_ns = detail::MonotonicNs();
    run();
    return detail::MonotonicNs() - start_ns;
  }
  template <class Times>
  static void AddSorted(Times& times, int64_t time) {
    auto at = times.end();
    while (at != times.begin() && *(at - 1) > time) --at;
    times.insert(at, time);
  }
  static double MedianMs(const std::vector<int64_t>& sorted) {
    const size_t n = sorted.size();
    return static_cast<double>(sorted[(n - 1) / 2] + sorted[n / 2]) * 0.5e-6;
  }
  NetBenchmarkRow Row(size_t at, double ms) const {
    const OperatorDef& def = ops_[at]->def();
    const OpCost cost = OpRegistry::Global()
                            .GetSchema(def.type())
                            .Cost(def, Infos(def.inputs()), Infos(def.outputs()));
    NetBenchmarkRow row;
    row.op = def.type();
    row.name = def.name();
    row.node = ops_[at]->net_position();
    row.ms = ms;
    row.flops = static_cast<double>(cost.flops);
    row.bytes = static_cast<double>(cost.bytes_read) + static_cast<double>(cost.bytes_written);
    return row;
  }
  std::vector<TensorInfo> Infos(const std::vector<std::string>& names) const {
    std::vector<TensorInfo> infos;
    for (const std::string& name : names) {
      const bool is_tensor = !name.empty() && workspace_->HasTensor(name);
      infos.push_back(is_tensor ? TensorInfo::Of(*workspace_->GetTensor(name)) : TensorInfo());
    }
    return infos;
  }

  const Graph graph_;
  Workspace* workspace_;
  std::vector<std::unique_ptr<Base>> ops_;
};
using SimpleNet = BasicSimpleNet<OperatorBase, Graph>;

}  // namespace opkit

#endif  // OPKIT_GRAPH_SIMPLE_NET_HPP_
