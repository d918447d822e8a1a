// REGISTER_PARTITIONER in a library that does not include opkit/partition.hpp: partitioners in
// MXNet's spelling. With that header the macro is defined by
// graph/partition/register_partitioner.hpp, which has the typed forms too.
#ifndef OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_
#define OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_

#include "opkit/base/unique_function.hpp"
#include "opkit/op/function/partition_signature.hpp"
#include "opkit/plugin/export/library_export.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// A partitioner. Its setters fill in the functions; the host calls them through `abi`.
struct OPKIT_IMAGE_LOCAL LibraryPartitionerRecord : RefCounted {
  LibraryPartitionerRecord(const char* its_name, const char* file, int line);

  std::string name, problem, subgraph_op = "Subgraph";
  std::vector<std::pair<int, std::string>> subgraph_ops;  // for kinds with their own operator
  UniqueFunction<MXReturnValue(std::string, std::vector<int>&, StringMapArgument&)> mark;
  UniqueFunction<MXReturnValue(std::string, int, bool*, StringMapArgument&, StringMapArgument&,
                               TensorMapArgument&, TensorMapArgument&)>
      review;
  opkit_partitioner abi{};
};

}  // namespace detail

// Fills in a partitioner. Several threads may call its functions, which return MX_SUCCESS or
// MX_FAIL; OPKIT_ERROR_MSG gives the reason.
class OPKIT_IMAGE_LOCAL LibraryPartitionerBuilder {
 public:
  LibraryPartitionerBuilder(const char* name, const char* file, int line)
      : record_(detail::MakeIntrusive<detail::LibraryPartitionerRecord>(name, file, line)) {
    detail::ThisLibrary().own_partitioners.push_back(record_);
    detail::ThisLibrary().own_partitioner_pointers.push_back(&record_->abi);
  }
  // Sets the function that takes nodes: MXReturnValue f(std::string json, const int num_ids, int*
  // ids, std::unordered_map<std::string, std::string>& options), or the same with std::vector<int>&
  // ids. `ids` has a number for each node of the JSON. -2, its value at first, leaves the node
  // alone; -1 takes it; a number from 0 on takes it for the kind of that number. With int* ids, 0
  // leaves it alone too, as in MXNet 1.7.
  template <class F>
  LibraryPartitionerBuilder& setSupportedOps(F f) {
    static_assert(detail::SupportedOpsOfJson<F> || detail::SupportedOpsOfVector<F>,
                  "setSupportedOps(f): write MXReturnValue f(std::string json, const int num_ids, "
                  "int* ids, std::unordered_map<std::string, std::string>& options); the typed "
                  "forms need opkit/partition.hpp");
    return Once(
        record_->mark, "setSupportedOps",
        [f](std::string json, std::vector<int>& ids, detail::StringMapArgument& options) mutable {
          return detail::CallSupportedOps(f, std::move(json), ids, options);
        });
  }
  // Sets the operator that replaces a subgraph; with a kind, only subgraphs of that kind.
  LibraryPartitionerBuilder& setSubgraphOp(std::string op) {
    record_->subgraph_op = std::move(op);
    return *this;
  }
  LibraryPartitionerBuilder& setSubgraphOp(std::string op, int kind) {
    record_->subgraph_ops.emplace_back(kind, std::move(op));
    return *this;
  }
  // Sets the function that reviews every legal subgraph: MXReturnValue f(std::string json, int
  // subgraph_id, bool* accept, std::unordered_map<std::string, std::string>& options,
  // std::unordered_map<std::string, std::string>& attrs, std::map<std::string, MXTensor>& args,
  // std::map<std::string, MXTensor>& aux), or with the first four or five parameters alone. `attrs`
  // become attributes of the operator, `args` are the constants of the subgraph, `aux` is empty.
  template <class F>
  LibraryPartitionerBuilder& setAcceptSubgraph(F f) {
    static_assert(
        detail::AcceptOfJson<F> || detail::AcceptWithAttributes<F> || detail::AcceptWithTensors<F>,
        "setAcceptSubgraph(f): write MXReturnValue f(std::string json, int subgraph_id, "
        "bool* accept, std::unordered_map<std::string, std::string>& options)");
    return Once(record_->review, "setAcceptSubgraph",
                [f](std::string json, int id, bool* accept, detail::StringMapArgument& options,
                    detail::StringMapArgument& attrs, detail::TensorMapArgument& args,
                    detail::TensorMapArgument& aux) mutable {
                  return detail::CallAcceptSubgraph(f, std::move(json), id, accept, options, attrs,
                                                    args, aux);
                });
  }
  // Does the same as setAcceptSubgraph, under MXNet's later name.
  template <class F>
  LibraryPartitionerBuilder& setReviewSubgraph(F f) {
    return setAcceptSubgraph(std::move(f));
  }

 private:
  template <class Function, class F>
  LibraryPartitionerBuilder& Once(Function& slot, const char* setter, F f) {
    if (slot)
      record_->problem = StrCat(setter, " is called twice");
    else
      slot = std::move(f);
    return *this;
  }

  detail::IntrusivePtr<detail::LibraryPartitionerRecord> record_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/export/impl/library_partitioner.ipp"
#endif

#endif  // OPKIT_PLUGIN_EXPORT_LIBRARY_PARTITIONER_HPP_
