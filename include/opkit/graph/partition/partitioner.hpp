// Partitioner: an author's say in which nodes of a graph go to a runtime of the author's own, which
// operator takes their place, and whether each subgraph is worth it; and the registry of them.
// REGISTER_PARTITIONER (register_partitioner.hpp) makes one of functions; a loaded library's is
// another implementation of this class.
#ifndef OPKIT_GRAPH_PARTITION_PARTITIONER_HPP_
#define OPKIT_GRAPH_PARTITION_PARTITIONER_HPP_

#include <memory>

#include "opkit/base/registration/named_parts.hpp"
#include "opkit/graph/partition/cut.hpp"
#include "opkit/graph/partition/request.hpp"
#include "opkit/graph/partition/view.hpp"

namespace opkit::inline OPKIT_ABI {

// Which nodes are taken, filled in by a partitioner. Taking a node again changes its kind.
class PartitionAnswer {
 public:
  explicit PartitionAnswer(const PartitionView& view)
      : view_(&view),
        kinds_(detail::Index(view.num_nodes()), kNotTaken),
        sets_(detail::Index(view.num_nodes()), 0),
        reasons_(detail::Index(view.num_nodes())) {}

  // `kind`: kAnySubgraph, or a number from 0 on: nodes of different numbers are never in one
  // subgraph. Nor are nodes of different sets, which are numbers from 0 on as well and mean nothing
  // else. Errors: kOutOfRange for a node that there is not, a kind below -1 or a set below 0,
  // kNotFound, with the nearest name, for a name that no node has, kInvalidArgument for one that
  // two have.
  void Take(const PartitionNode& node, int kind = kAnySubgraph, int set = 0) {
    Take(node.index(), kind, set);
  }
  void Take(int node, int kind = kAnySubgraph, int set = 0);
  void Take(std::string_view name, int kind = kAnySubgraph, int set = 0);
  // Leaves the node where it is; the report shows why.
  void Refuse(const PartitionNode& node, std::string why) { Refuse(node.index(), std::move(why)); }
  void Refuse(int node, std::string why);

  const PartitionView& view() const { return *view_; }
  // By node: kNotTaken where it stays.
  const std::vector<int>& kinds() const { return kinds_; }
  const std::vector<int>& sets() const { return sets_; }
  const std::vector<std::string>& reasons() const { return reasons_; }

 private:
  const PartitionView* view_;
  std::vector<int> kinds_, sets_;
  std::vector<std::string> reasons_;
};

// A legal subgraph that the author may still refuse, or equip.
class SubgraphReview {
 public:
  SubgraphReview(const PartitionView& view, const std::vector<int>& nodes, Graph& body,
                 OperatorDef& def, int id, int kind)
      : view_(&view), nodes_(&nodes), body_(&body), def_(&def), id_(id), kind_(kind) {}

  // The whole graph, and the subgraph's nodes in it, by index.
  const PartitionView& view() const { return *view_; }
  const std::vector<int>& nodes() const { return *nodes_; }
  // The subgraph by itself. Its inputs and outputs have the names of the values in the graph.
  const Graph& body() const { return *body_; }
  // The operator that takes its place, without the subgraph yet.
  const OperatorDef& def() const { return *def_; }
  int id() const { return id_; }      // counts the subgraphs of one run of the partitioner
  int kind() const { return kind_; }  // kAnySubgraph, or a number from 0 on
  // Input i of the subgraph is an input of the model, which the caller of a run gives; it is
  // another operator's output otherwise.
  bool IsArg(int i) const;
  // The same of every input.
  std::vector<bool> IsArg() const;

  // Leaves the graph as it was here. The last reason counts.
  void Reject(std::string why) { rejected_ = true, why_ = std::move(why); }
  // Gives the operator an attribute; one that it has is replaced. Text becomes a value of the type
  // that the operator declares, where it reads as one: MXNet's functions give text alone.
  void SetAttribute(const std::string& name, Attribute value);
  // Puts data into the body under a name that no value of it has: packed weights, a compiled
  // engine. Error (kAlreadyExists).
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

// One partitioner at work on one graph. Made for each, so that it may keep state between its
// calls, which come in this order: Mark once, then Review for each subgraph.
class PartitionWork {
 public:
  virtual ~PartitionWork() = default;
  virtual void Mark(PartitionAnswer& answer) = 0;
  virtual void Review(SubgraphReview&) {}
};

// Immutable once registered. Begin may be called on several threads.
class Partitioner : public detail::RefCounted {
 public:
  virtual const std::string& name() const = 0;
  // The operator that takes the place of a subgraph of this kind.
  virtual std::string SubgraphOperator(int kind) const = 0;
  // `arguments`: the options that are not the toolkit's own. The view outlives the work.
  virtual std::unique_ptr<PartitionWork> Begin(const PartitionView& view,
                                               const PartitionArguments& arguments) const = 0;
  // What is wrong with its registration; empty: nothing.
  virtual std::string problem() const { return {}; }
  // The library that it came from; empty for the program itself.
  virtual std::string library() const { return {}; }
};

// The partitioners of this program. Thread-safe.
class PartitionerRegistry {
 public:
  static PartitionerRegistry& Global();

  // RegisterPartitioner of partition.hpp calls this. A name that is registered at two places is an
  // Error where it is used; at the same place twice it is one, since a header may register.
  bool Register(detail::IntrusivePtr<const Partitioner> partitioner, const char* file,
                int line) noexcept;
  // False where it is not registered: a library that is unloaded takes its partitioners away.
  bool Unregister(const Partitioner& partitioner) noexcept;
  // Errors: kNotFound with the nearest name, kAlreadyExists for a name registered twice,
  // kInvalidArgument with the partitioner's problem.
  detail::IntrusivePtr<const Partitioner> Get(std::string_view name) const;
  bool Has(std::string_view name) const;
  // In alphabetical order.
  std::vector<std::string> Names() const;

 private:
  detail::NamedParts<Partitioner> parts_{"partitioner", "REGISTER_PARTITIONER"};
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/partition/impl/partitioner.ipp"
#endif

#endif  // OPKIT_GRAPH_PARTITION_PARTITIONER_HPP_
