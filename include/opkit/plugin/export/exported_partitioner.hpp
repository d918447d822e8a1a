// ExportedPartitioner and ExportedPass: describe a Partitioner and a NamedPass of this image to a
// host, as opkit_partitioner and opkit_pass, and run them over the host's graphs. Only definitions
// include this header.
#ifndef OPKIT_PLUGIN_EXPORT_EXPORTED_PARTITIONER_HPP_
#define OPKIT_PLUGIN_EXPORT_EXPORTED_PARTITIONER_HPP_

#include <map>
#include <memory>
#include <optional>

#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/op/function/mx_failure.hpp"
#include "opkit/plugin/export/library_export.hpp"
#include "opkit/plugin/export/library_partitioner.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns a copy of the host's graph whose constants share the host's memory.
inline Graph BorrowGraph(const opkit_graph& from) {
  return GraphOfAbi(
      &from, [](const std::string&, const opkit_tensor& view) { return TensorOfView(view); });
}
// Runs a partitioner of this library over one graph of the host.
class OPKIT_IMAGE_LOCAL ExportedPartitionWork {
 public:
  ExportedPartitionWork(const Partitioner& partitioner, const opkit_partition& partition)
      : graph_(BorrowGraph(*partition.graph)), structure_(graph_), types_(structure_) {
    const opkit_graph& graph = *partition.graph;
    for (uint64_t i = 0; i < graph.num_values; ++i) {
      const int value = structure_.FindValue(graph.value_names[i]);
      if (value < 0) continue;
      const opkit_value& known = *opkit_value_at(const_cast<opkit_value*>(graph.values), i);
      types_[value] = InfoOfAbi(known);
      if (known.constant) types_.SetData(value, TensorOfView(*known.constant));
    }
    view_.emplace(structure_, types_,
                  std::vector<char>(partition.taken, partition.taken + graph.num_nodes));
    work_ = partitioner.Begin(*view_, OptionsOfAbi(partition));
  }

  void Mark(const opkit_partition* partition) {
    PartitionAnswer answer(*view_);
    work_->Mark(answer);
    for (int node = 0; node < view_->num_nodes(); ++node) {
      const size_t at = Index(node);
      if (answer.kinds()[at] != kNotTaken)
        AcceptAnswer(partition->take(partition, at, answer.kinds()[at], answer.sets()[at]));
      else if (!answer.reasons()[at].empty())
        AcceptAnswer(partition->refuse(partition, at, answer.reasons()[at].c_str()));
    }
  }
  void Review(const opkit_partition* partition) {
    Graph body = BorrowGraph(*partition->subgraph);
    OperatorDef def = DefinitionOfAbi(partition->op);
    const OperatorDef before = def;
    const size_t constants = body.constants().size();
    const std::vector<int> nodes(partition->nodes, partition->nodes + partition->num_nodes);
    SubgraphReview review(*view_, nodes, body, def, static_cast<int>(partition->id),
                          partition->kind);
    work_->Review(review);
    if (review.is_rejected())
      return AcceptAnswer(partition->reject(partition, review.why_rejected().c_str()));
    for (const NamedAttribute& one : def.args()) {
      const Attribute* had = before.args().Find(one.name);
      if (had && *had == one.value) continue;
      const AbiAttributes attribute(Arguments{{one.name, one.value}});
      AcceptAnswer(partition->set_attr(partition, *attribute.data()));
    }
    for (size_t i = constants; i < body.constants().size(); ++i) {
      const Graph::Constant& added = body.constants()[i];
      const AbiAttributes tensor(Arguments{{"value", added.value}});
      AcceptAnswer(
          partition->add_constant(partition, added.name.c_str(), (*tensor.data())->tensors[0]));
    }
  }

 private:
  const Graph graph_;
  const GraphView structure_;
  GraphTypes types_;
  std::optional<PartitionView> view_;
  std::unique_ptr<PartitionWork> work_;
};

// Runs `call` for the host. After a FAIL the host already has the reason.
template <class Call>
opkit_status AnswerHost(Call call) {
  return GuardedCall([&] {
    try {
      call();
    } catch (const MxFailure&) {
      return OpStatus(FAIL);
    }
    return OpStatus();
  });
}

// An opkit_partitioner for a registered partitioner.
struct OPKIT_IMAGE_LOCAL ExportedPartitioner : RefCounted {
  explicit ExportedPartitioner(IntrusivePtr<const Partitioner> one)
      : partitioner(std::move(one)), name(partitioner->name()) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.subgraph_op = &SubgraphOp;
    abi.begin = &GuardBy<ExportedPartitioner, &ExportedPartitioner::Begin>;
    abi.mark = [](void* work, const opkit_partition* partition) {
      return AnswerHost([&] { WorkOf(work).Mark(partition); });
    };
    abi.review = [](void* work, const opkit_partition* partition) {
      return AnswerHost([&] { WorkOf(work).Review(partition); });
    };
    abi.end = [](void* work) { GuardedCall([&] { delete &WorkOf(work); }); };
    abi.author = this;
  }
  static ExportedPartitionWork& WorkOf(void* work) {
    return *static_cast<ExportedPartitionWork*>(work);
  }
  static const char* SubgraphOp(const opkit_partitioner* self, int32_t kind) {
    auto& own = *static_cast<ExportedPartitioner*>(const_cast<void*>(self->author));
    const char* op = nullptr;
    GuardedCall([&] {
      MutexLock lock(own.mutex);
      op = own.ops.try_emplace(kind, own.partitioner->SubgraphOperator(kind)).first->second.c_str();
    });
    return op;
  }
  void Begin(const opkit_partition* partition, void** work) const {
    *work = new ExportedPartitionWork(*partitioner, *partition);
  }
  const IntrusivePtr<const Partitioner> partitioner;
  const std::string name;
  Mutex mutex;
  std::map<int, std::string> ops;  // by kind, kept for the host
  opkit_partitioner abi{};
};

// An opkit_pass for a registered pass.
struct OPKIT_IMAGE_LOCAL ExportedPass : RefCounted {
  explicit ExportedPass(IntrusivePtr<const NamedPass> one)
      : pass(std::move(one)), name(pass->name()), place(pass->place()) {
    abi.size = sizeof abi;
    abi.name = name.c_str();
    abi.file = place.c_str();
    abi.run = &Run;
    abi.author = this;
  }
  static opkit_status Run(const opkit_pass* self, const opkit_rewrite* rewrite) {
    return AnswerHost([&] {
      const auto& own = *static_cast<const ExportedPass*>(self->author);
      const Graph result = own.pass->Run(BorrowGraph(*rewrite->graph), OptionsOfAbi(*rewrite));
      const AbiGraph whole{GraphView(result)};
      AcceptAnswer(rewrite->set_graph(rewrite, &whole.view));
    });
  }

  const IntrusivePtr<const NamedPass> pass;
  const std::string name, place;
  opkit_pass abi{};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_EXPORTED_PARTITIONER_HPP_
