// Partitioner: the interface by which an author moves nodes of a graph to another runtime. It takes
// nodes, names the operator that replaces them, and accepts or rejects each subgraph.
// REGISTER_PARTITIONER (register_partitioner.hpp) makes a Partitioner of functions; partitioners of
// loaded libraries are another implementation. PartitionerRegistry contains them by name.
#ifndef OPKIT_GRAPH_PARTITION_PARTITIONER_HPP_
#define OPKIT_GRAPH_PARTITION_PARTITIONER_HPP_

#include <memory>

#include "opkit/base/registration/named_parts.hpp"
#include "opkit/graph/partition/cut.hpp"
#include "opkit/graph/partition/request.hpp"
#include "opkit/graph/partition/view.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The nodes that a partitioner takes or refuses. Taking a node again changes its kind and set.
class PartitionAnswer {
 public:
  // An answer that takes nothing yet.
  explicit PartitionAnswer(const PartitionView& view)
      : view_(&view),
        kinds_(detail::Index(view.num_nodes()), kNotTaken),
        sets_(detail::Index(view.num_nodes()), 0),
        reasons_(detail::Index(view.num_nodes())) {}

  // Takes a node. `kind` is kAnySubgraph or a number from 0 on; `set` is a number from 0 on. Nodes
  // with different numbers as kind, or with different sets, are never in one subgraph. Throws
  // kOutOfRange for a node that does not exist, a kind below -1 or a set below 0. Throws kNotFound,
  // with the nearest name, for an unknown name, and kInvalidArgument for a name that two nodes
  // have.
  void Take(const PartitionNode& node, int kind = kAnySubgraph, int set = 0) {
    Take(node.index(), kind, set);
  }
  void Take(int node, int kind = kAnySubgraph, int set = 0);
  void Take(std::string_view name, int kind = kAnySubgraph, int set = 0);
  // Leaves the node in the graph; the report shows the reason.
  void Refuse(const PartitionNode& node, std::string why) { Refuse(node.index(), std::move(why)); }
  void Refuse(int node, std::string why);

  // Returns the view of the graph that the answer is about.
  const PartitionView& view() const { return *view_; }
  // By node: its kind (kNotTaken if it stays); its set; the reason why it was refused.
  const detail::IndexedVector<int>& kinds() const { return kinds_; }
  const detail::IndexedVector<int>& sets() const { return sets_; }
  const detail::IndexedVector<std::string>& reasons() const { return reasons_; }

 private:
  const PartitionView* view_;
  detail::IndexedVector<int> kinds_, sets_;
  detail::IndexedVector<std::string> reasons_;
};

// A subgraph that can run as one node. The partitioner may reject it, or add attributes and
// constants to it.
class SubgraphReview {
 public:
  SubgraphReview(const PartitionView& view, const std::vector<int>& nodes, Graph& body,
                 OperatorDef& def, int id, int kind)
      : view_(&view), nodes_(&nodes), body_(&body), def_(&def), id_(id), kind_(kind) {}

  // The whole graph, and the indices of the subgraph's nodes in it.
  const PartitionView& view() const { return *view_; }
  const std::vector<int>& nodes() const { return *nodes_; }
  // The subgraph as a graph. Its inputs and outputs have the names of the values in the graph.
  const Graph& body() const { return *body_; }
  // The node that replaces the subgraph. It does not carry the subgraph yet.
  const OperatorDef& def() const { return *def_; }
  int id() const { return id_; }      // counts the subgraphs of one run of the partitioner
  int kind() const { return kind_; }  // kAnySubgraph, or a number from 0 on
  // True if input i of the subgraph is an input of the whole graph; false if a node makes it.
  bool IsArg(int i) const;
  // Returns IsArg(i) for every input i.
  std::vector<bool> IsArg() const;

  // Keeps the nodes of this subgraph in the graph. The reason of the last call is reported.
  void Reject(std::string why) { rejected_ = true, why_ = std::move(why); }
  // Sets an attribute of the new node. Text is parsed as the type that the operator declares, if
  // the text has that form: MXNet's functions give only text.
  void SetAttribute(const std::string& name, Attribute value);
  // Adds data to the body, such as packed weights or a compiled engine. Throws kAlreadyExists if
  // the body has a value of that name.
  void AddConstant(const std::string& name, const Tensor& value);

  bool is_rejected() const { return rejected_; }
  const std::string& why_rejected() const { return why_; }

 private:
  const PartitionView* view_;
  const std::vector<int>* nodes_;
  Graph* body_;
  OperatorDef* def_;
  int id_, kind_;
  bool rejected_ = false;
  std::string why_;
};

// The run of one partitioner on one graph. Partitioner::Begin makes a new object for each graph, so
// that the object may keep state between its calls: first Mark once, then Review for each subgraph.
class PartitionWork {
 public:
  virtual ~PartitionWork() = default;
  virtual void Mark(PartitionAnswer& answer) = 0;
  virtual void Review(SubgraphReview&) {}
};

// A registered partitioner. Immutable after registration. Several threads may call Begin.
class Partitioner : public detail::RefCounted {
 public:
  virtual const std::string& name() const = 0;
  // Returns the operator that replaces a subgraph of this kind.
  virtual std::string SubgraphOperator(int kind) const = 0;
  // Starts a run on one graph. `arguments` are the partitioner's own options. The view outlives the
  // returned object.
  virtual std::unique_ptr<PartitionWork> Begin(const PartitionView& view,
                                               const PartitionArguments& arguments) const = 0;
  // Returns the fault of the registration, which PartitionerRegistry::Get throws; empty if there is
  // none.
  virtual std::string problem() const { return {}; }
  // Returns the name of the library that has the partitioner; empty for the program itself.
  virtual std::string library() const { return {}; }
};

// The partitioners of this program. Thread-safe.
class PartitionerRegistry {
 public:
  static PartitionerRegistry& Global();

  // Adds a partitioner; RegisterPartitioner of partition.hpp calls this. Returns false if the name
  // is registered already. If the name was registered at another place, Get throws. A second
  // registration at the same place is no error, since headers may register.
  bool Register(detail::IntrusivePtr<const Partitioner> partitioner, const char* file,
                int line) noexcept {
    return parts_.Register(std::move(partitioner), file, line);
  }
  // Removes a partitioner, before its library is unloaded. Returns false if it is not registered.
  bool Unregister(const Partitioner& partitioner) noexcept {
    return parts_.Unregister(partitioner);
  }
  // Throws kNotFound, with the nearest name, for an unknown name; kAlreadyExists for a name that is
  // registered at two places; kInvalidArgument with the partitioner's problem().
  detail::IntrusivePtr<const Partitioner> Get(std::string_view name) const;
  bool Has(std::string_view name) const { return parts_.Has(name); }
  // Returns the partitioners that a request for `name` runs, one after the other: the one of that
  // name, or else its strategies, "name.first" and "name.second", in the order of their
  // registration. Throws kNotFound if there is neither.
  std::vector<std::string> Requested(const std::string& name) const;
  // Returns the names in alphabetical order.
  std::vector<std::string> Names() const { return parts_.Names(); }

 private:
  detail::NamedParts<Partitioner> parts_{"partitioner", "REGISTER_PARTITIONER"};
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/partitioner.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_PARTITIONER_HPP_
