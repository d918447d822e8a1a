// ProcessParts: the parts of a graph that several processes run, one each. Compile calls it for
// PlanOptions::cluster; programs and tools call it to look at a part.
#ifndef OPKIT_CLUSTER_PROCESS_PARTS_HPP_
#define OPKIT_CLUSTER_PROCESS_PARTS_HPP_

#include "opkit/base/indexed_vector.hpp"
#include "opkit/cluster/communicator.hpp"
#include "opkit/graph/graph_inference.hpp"
#include "opkit/graph/plan/options.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A value that crosses from one process to another in each run.
struct CrossingValue {
  std::string value;
  int from = 0, to = 0;
  int64_t channel = 0;
  TensorInfo info;
};

// The nodes of a graph, by the processes that run them. A node runs on the process of
// OperatorDef::Process, on the members of its attribute "group" if it is a collective, or else on
// every process. Inputs and constants of the graph are on every process.
//
//   const ProcessParts parts(graph, 2);
//   parts.Part(0);     // the graph of process 0, with the nodes Send and Recv
//   parts.crossing();  // what crosses, and from where to where
class ProcessParts {
 public:
  // Throws kInvalidArgument for a node of a process that does not exist, and for Send and Recv
  // nodes of the graph's author that do not match or wait for each other in a circle, which the
  // message shows. Throws kUnsupported for a value that crosses although it has no numbers
  // (strings, sequences), for a value that is read on a process which does not run the nodes that
  // rewrite it, for a control input that crosses, and for a process or a communication inside the
  // graph of a node. A gradient that a collective makes does not cross to nodes that its processes
  // run too: it is zero on other processes, and throws kUnsupported if its shape is not known.
  ProcessParts(const Graph& graph, int processes);

  int processes() const { return processes_; }
  // Returns the whole graph, whose nodes processes_of() numbers.
  const Graph& graph() const { return graph_; }
  // Returns the types of its values.
  const GraphTypes& types() const { return types_; }
  // Returns the graph of a process. Its nodes name `communicator`, if any. If that takes buffers of
  // a device, the nodes that communicate run there. Then, and if `is_in_order` is true, they also
  // wait for each other by control inputs, in the order of the whole graph. Inputs and constants
  // that the part does not read are left out, and so are the outputs that the process does not make
  // or does not rewrite as other processes do, and nodes of all processes that this process does
  // not need.
  Graph Part(int process, const Communicator* communicator = nullptr,
             bool is_in_order = false) const;
  // Returns the processes that run a node, ascending. Of a collective, the root alone reads or
  // makes a value that the others do not have.
  const std::vector<int>& processes_of(int node) const { return places_[node]; }
  const std::vector<CrossingValue>& crossing() const { return crossing_; }
  // Return the processes that read an input of the graph, and those that make an output, ascending.
  std::vector<int> ReadersOfInput(const std::string& input) const;
  std::vector<int> MakersOfOutput(const std::string& output) const;
  // Returns the groups in which processes communicate, each once. Messages are in the group of all.
  const std::vector<std::vector<int>>& groups() const { return groups_; }

 private:
  // The place of a collective among those of its group.
  struct Turn {
    int64_t channel = -1, collectives = 0;
  };

  // A gradient that is zero on a process outside of the group of the collective that makes it.
  struct Zeros {
    std::string value;
    int process = 0;
    TensorInfo info;
  };

  // Sets the attribute "processes" of collectives, which decides the shapes of outputs.
  static Graph WithProcesses(Graph graph, int processes);
  void Place(int node);
  // Return the processes that read the inputs of a node, and those that have its outputs.
  std::vector<int> ReadersOf(int node) const;
  std::vector<int> WritersOf(int node) const;
  // Adds the edges from the author's Send nodes to their Recv nodes and sorts all nodes.
  void Order();
  void CheckRewritten() const;
  void FindCrossing();
  void AddZeros(int node, int value, int process);
  void NumberCollectives();
  OperatorDef NodeOf(int node, int process) const;

  const Graph graph_;
  const GraphView view_{graph_};
  const GraphTypes types_ = InferGraph(view_);
  const int processes_;
  std::vector<int> everywhere_;                             // the numbers of all processes
  detail::IndexedVector<std::vector<int>> places_;          // for each node
  std::vector<int> order_;                                  // of the nodes, on all processes
  std::vector<CrossingValue> crossing_;                     // in that order
  detail::IndexedVector<std::vector<size_t>> crossing_of_;  // for each node
  std::vector<Zeros> zeros_;
  detail::IndexedVector<Turn> turns_;     // for each node
  detail::IndexedVector<int> sender_of_;  // for each Recv of the author, its Send; -1 for others
  std::vector<std::vector<int>> groups_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/cluster/impl/process_parts.ipp"
#endif

#endif  // OPKIT_CLUSTER_PROCESS_PARTS_HPP_
