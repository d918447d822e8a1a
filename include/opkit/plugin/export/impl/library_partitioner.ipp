// Lets the host call a partitioner in MXNet's spelling.
#ifndef OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_PARTITIONER_IPP_
#define OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_PARTITIONER_IPP_

#include <algorithm>

#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/plugin/export/library_partitioner.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Functions of an opkit_partitioner whose `author` is a LibraryPartitionerRecord.
struct OPKIT_IMAGE_LOCAL LibraryPartitionerFunctions {
  static const char* SubgraphOp(const opkit_partitioner* self, int32_t kind) {
    return RecordOf(self->author).SubgraphOp(kind).c_str();
  }
  static opkit_status Mark(void* author, const opkit_partition* partition) {
    return GuardedCall([&] {
      LibraryPartitionerRecord& record = RecordOf(author);
      if (!record.problem.empty() || !record.mark)
        return OpStatus::Failure(record.problem.empty() ? "setSupportedOps(f) is missing"
                                                        : record.problem);
      const GraphText graph(partition);
      std::vector<int> ids(graph.count, -2);
      StringMapArgument options(OptionsOfAbi(*partition));
      if (OpStatus status = record.mark(graph.text, ids, options); !status.ok()) return status;
      if (ids.size() != graph.count)
        return OpStatus::Failure("it answered ", ids.size(), " ids for ", graph.count, " nodes");
      for (uint64_t i = 0; i < graph.count; ++i)
        if (graph.nodes[i] >= 0 && ids[i] != -2)
          AcceptAnswer(
              partition->take(partition, static_cast<uint64_t>(graph.nodes[i]), ids[i], 0));
      return OpStatus();
    });
  }
  static opkit_status Review(void* author, const opkit_partition* partition) {
    return GuardedCall([&] {
      LibraryPartitionerRecord& record = RecordOf(author);
      if (!record.review) return OpStatus();
      const GraphText graph(partition);
      StringMapArgument options(OptionsOfAbi(*partition)), attributes;
      TensorMapArgument::Items constants;
      const opkit_graph& body = *partition->subgraph;
      for (uint64_t i = 0; i < body.num_constants; ++i)
        constants.emplace_back(body.constant_names[i], OpTensor(*body.constants[i]));
      TensorMapArgument args(std::move(constants)), aux;
      bool accept = true;
      if (OpStatus status = record.review(graph.text, static_cast<int>(partition->id), &accept,
                                          options, attributes, args, aux);
          !status.ok())
        return status;
      if (!accept) {
        AcceptAnswer(partition->reject(partition, ""));
        return OpStatus();
      }
      OptionStrings given = attributes.Read();
      std::sort(given.begin(), given.end());  // the order of a map may differ
      for (const auto& [name, value] : given) {
        const AbiAttributes attribute(Arguments{{name, value}});
        AcceptAnswer(partition->set_attr(partition, *attribute.data()));
      }
      return OpStatus();
    });
  }

 private:
  // The JSON of the partition's graph, and the graph's number of each node in the JSON.
  struct GraphText {
    explicit GraphText(const opkit_partition* partition) {
      AcceptAnswer(partition->json(partition, &text, &count, &nodes));
    }
    const char* text = nullptr;
    uint64_t count = 0;
    const int64_t* nodes = nullptr;
  };
  static LibraryPartitionerRecord& RecordOf(const void* author) {
    return *static_cast<LibraryPartitionerRecord*>(const_cast<void*>(author));
  }
};

OPKIT_INLINE LibraryPartitionerRecord::LibraryPartitionerRecord(const char* its_name,
                                                                const char* file, int line) {
  name = its_name;
  abi.size = sizeof abi;
  abi.name = name.c_str();
  abi.file = file;
  abi.line = line;
  abi.subgraph_op = &LibraryPartitionerFunctions::SubgraphOp;
  abi.mark = &LibraryPartitionerFunctions::Mark;
  abi.review = &LibraryPartitionerFunctions::Review;
  abi.author = this;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_EXPORT_IMPL_LIBRARY_PARTITIONER_IPP_
